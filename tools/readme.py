"""Keep the table of settings in the README equal to the settings: write it, or ``--check`` it."""

import sys
from pathlib import Path
from typing import Final

from server.cli.settings import markdown_table

README: Final = Path(__file__).resolve().parent.parent / "README.md"
BEGIN: Final = "<!-- settings: begin, written by tools/readme.py -->\n"
END: Final = "<!-- settings: end -->\n"


def main(arguments: list[str]) -> int:
    """Entry of the command line."""
    text = README.read_text(encoding="utf-8")
    fresh = with_table(text)
    if arguments == ["--check"]:
        if text != fresh:
            print("README.md: the table of settings is old; run `make docs`", file=sys.stderr)
        return int(text != fresh)
    if arguments:
        print(__doc__, file=sys.stderr)
        return 2
    README.write_text(fresh, encoding="utf-8")
    return 0


def with_table(text: str) -> str:
    """The README with the present table between the markers."""
    before, _, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise SystemExit(f"README.md: the marks {BEGIN.strip()!r} and {END.strip()!r} are not there")
    return f"{before}{BEGIN}\n{markdown_table()}\n\n{END}{after}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
