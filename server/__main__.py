"""``python -m server``: the command line, ``turnwire``; without a command it serves."""

import sys

from server.cli import main

if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.argv.append("serve")
    main()
