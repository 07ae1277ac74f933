"""The pages of ``server/ui/``: read once, served from memory, so that no path can lead anywhere else."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from starlette.responses import Response

from protocol.codes import ErrorCode
from protocol.errors import Fault
from server.rest.context import Call
from server.rest.declare import Ownership, Routes
from server.rest.schemas import NoBody, NoQuery

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.resources.abc import Traversable

    from starlette.requests import Request

__all__ = ["POLICY", "ROUTES"]

ROUTES: Final = Routes()

POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "manifest-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
"""Nothing from elsewhere, nothing inline: what comes from outside can be shown, never run."""

_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".mjs": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}
"""What is served; files of other kinds are not."""


class _File(Struct, frozen=True):
    content: bytes
    media: str
    etag: str


@ROUTES.declare(
    "GET",
    "/",
    ownership=Ownership.PUBLIC,
    response=None,
    media="text/html",
    errors=(ErrorCode.NOT_FOUND,),
)
async def index_page(call: Call[NoQuery, NoBody]) -> Response:
    """The page to talk on."""
    return _serve(call.request, "index.html")


@ROUTES.declare(
    "GET",
    "/trace",
    ownership=Ownership.PUBLIC,
    response=None,
    media="text/html",
    errors=(ErrorCode.NOT_FOUND,),
)
async def trace_page(call: Call[NoQuery, NoBody]) -> Response:
    """The page that shows a run."""
    return _serve(call.request, "trace.html")


@ROUTES.declare(
    "GET",
    "/ui/{file:path}",
    ownership=Ownership.PUBLIC,
    response=None,
    media="*/*",
    errors=(ErrorCode.NOT_FOUND,),
)
async def ui_file(call: Call[NoQuery, NoBody]) -> Response:
    """A file of the pages."""
    return _serve(call.request, call.path["file"])


def _serve(request: Request, name: str) -> Response:
    found = _all_files().get(name)
    if found is None:
        raise Fault(ErrorCode.NOT_FOUND, "There is no such file.")
    headers = {
        "etag": found.etag,
        "cache-control": "no-cache",  # stored, but asked again each time
        "content-security-policy": POLICY,
        "cross-origin-opener-policy": "same-origin",
        "x-frame-options": "DENY",
    }
    known = {tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")}
    if found.etag in known:
        return Response(status_code=304, headers=headers)
    return Response(found.content, headers={**headers, "content-type": found.media})


@cache
def _all_files() -> dict[str, _File]:
    """Every file of the folder by its path within it."""
    return dict(_walk(files("server").joinpath("ui"), ""))


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, _File]]:
    if not folder.is_dir():
        return
    for entry in folder.iterdir():
        media = _TYPES.get("." + entry.name.rpartition(".")[2])
        if entry.is_dir():
            yield from _walk(entry, f"{prefix}{entry.name}/")
        elif media is not None and not entry.name.startswith("."):
            content = entry.read_bytes()
            etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            yield prefix + entry.name, _File(content, media, etag)
