"""Which failures are expected, and how one is said in one line."""

import errno
from collections.abc import Iterator

__all__ = ["Refused", "one_line"]


class Refused(Exception):
    """A command will not or cannot do what it was asked; the text says why and what helps."""


def one_line(error: BaseException) -> str | None:
    """What to tell a person about an expected failure; ``None`` for a bug, whose traceback is wanted."""
    lines = [_line(leaf) for leaf in _leaves(error)]
    return lines[0] if all(line is not None for line in lines) else None


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from _leaves(part)
    else:
        yield error


def _line(error: BaseException) -> str | None:
    from protocol.errors import Fault
    from server.llm.scripts import ScriptError
    from server.settings import SettingsError
    from storage.errors import EmbeddedError
    from storage.migrate import UnsuitableDatabase

    if isinstance(error, Refused | SettingsError | ScriptError | EmbeddedError | UnsuitableDatabase):
        text = str(error)
    elif isinstance(error, Fault):
        text = f"{error.code.value}: {error.message}"
    elif isinstance(error, OSError):
        reason = error.strerror or str(error)
        text = f"{error.filename}: {reason}" if error.filename else reason
        if error.errno == errno.EADDRINUSE:
            text += "; choose another with --port"
    else:
        return None
    return " ".join(text.split())
