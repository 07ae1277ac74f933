"""``python -m server``: the command line, ``turnwire``."""

from server.cli import main

if __name__ == "__main__":
    main()
