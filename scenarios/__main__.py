"""``python -m scenarios run …``: the runner without the rest of Turnwire."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import anyio

from scenarios.runner import run_scenarios


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m scenarios", description="Run scenarios against a server."
    )
    run = parser.add_subparsers(dest="command", required=True).add_parser("run", help="run files and folders")
    run.add_argument("paths", nargs="+", type=Path)
    run.add_argument("--url", required=True, help="ws://host:port")
    run.add_argument("-j", "--jobs", type=int, default=1, help="how many scenarios at the same time")
    run.add_argument("--repeat", type=int, default=1, help="how often each")
    run.add_argument("--clients", type=int, default=1, help="how many copies of each start together")
    run.add_argument("--strict", action="store_true", help="what cannot be run counts as failed")
    run.add_argument("--junit", type=Path, help="write JUnit XML here")
    run.add_argument("--token", help="bearer token")
    run.add_argument("--restart-command", help="restarts the server (SCENARIO_RESTART is term or kill)")
    run.add_argument("--http-url", help="the REST interface, if not at the same host and port")
    run.add_argument("-k", "--filter", help="part of the ids, or a pattern")
    run.add_argument("-v", "--verbose", action="store_true", help="show all steps")
    run.add_argument("--patience", type=float, default=1.0, help="stretches all time-outs")
    run.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="another value of a variable"
    )
    return parser


def main() -> int:
    """Read the arguments and run."""
    arguments = vars(_parser().parse_args())
    del arguments["command"]
    paths = arguments.pop("paths")
    arguments["values"] = dict(text.split("=", 1) for text in arguments.pop("set") if "=" in text)

    async def run() -> int:
        return await run_scenarios(paths, **arguments)

    return anyio.run(run)


if __name__ == "__main__":
    sys.exit(main())
