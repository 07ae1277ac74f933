"""Bytes to client frames, server frames to bytes: the only place that knows how frames look on the wire.

Client frames are closed unions with one decoder each, built once. What goes wrong is a
:class:`~protocol.errors.BadFrame` that names the field (ER1, ER2).
"""

from __future__ import annotations

from typing import Any, Final, Generic, Literal, TypeVar, Union, cast, get_args

import msgspec
import orjson
from msgspec import Struct

from protocol.canonical import canonical_sha256
from protocol.client_frames import (
    Ack,
    Address,
    CanvasFrame,
    ClientFrame,
    ConversationFrame,
    ConversationList,
    Domain,
    Ping,
    ProjectFrame,
)
from protocol.ids import Ulid
from protocol.server_frames import AnyServerFrame, ServerFrame
from protocol.strict import bad_frame, clean_text, is_plain, parse

__all__ = [
    "PROJECT_FORMS",
    "FrameLimits",
    "body_sha256",
    "canonical_sha256",
    "clean_text",
    "decode_client_frame",
    "decode_project_frame",
    "decode_server_frame",
    "encode",
    "encode_client_frame",
    "tag_of",
]

T = TypeVar("T")


class FrameLimits(Struct, frozen=True):
    """What a frame may be; its size is the connection's to check."""

    max_depth: int = 64


DEFAULT_LIMITS: Final = FrameLimits()


class _Decoder(Generic[T]):
    """Decodes one closed union, strictly."""

    def __init__(self, union: Any) -> None:
        self._fast: msgspec.json.Decoder[T] = msgspec.json.Decoder(union)

    def decode(self, data: bytes, max_depth: int) -> T:
        if is_plain(data, max_depth):
            try:
                return self._fast.decode(data)
            except msgspec.MsgspecError:
                pass
        # Look closer: find what the struct decoder would not name, and let the last of repeated keys count.
        exact = orjson.dumps(parse(data, max_depth))
        try:
            return self._fast.decode(exact)
        except msgspec.MsgspecError as error:
            raise bad_frame(error) from None


def tag_of(frame: type[Struct]) -> str:
    """The ``type`` of a frame on the wire."""
    return str(frame.__struct_config__.tag)


def _on_project(frame: type[ClientFrame]) -> type[ClientFrame]:
    """The form that a frame has on a project's socket: with its address."""
    address: list[Any] = []
    if frame in get_args(CanvasFrame):
        address = [("domain", Literal["canvas"])]
    elif frame is ConversationList:
        address = [("domain", Literal["conversation"], "conversation")]
    elif not issubclass(frame, Ack | Ping):
        address = [("domain", Literal["conversation"]), ("conversation_id", Ulid)]
    form = msgspec.defstruct(
        f"Project{frame.__name__}",
        address,
        bases=(frame,),
        module=__name__,
        tag=tag_of(frame),
        namespace={"__doc__": frame.__doc__},
        kw_only=True,
        frozen=True,
        forbid_unknown_fields=True,
    )
    return cast("type[ClientFrame]", form)


PROJECT_FORMS: Final = tuple(_on_project(frame) for frame in get_args(ProjectFrame))

_conversation: Final[_Decoder[ConversationFrame]] = _Decoder(ConversationFrame)
_project: Final[_Decoder[ClientFrame]] = _Decoder(Union[PROJECT_FORMS])  # noqa: UP007
_server: Final[msgspec.json.Decoder[AnyServerFrame]] = msgspec.json.Decoder(AnyServerFrame)
_encoder: Final = msgspec.json.Encoder()


def decode_client_frame(data: bytes, *, limits: FrameLimits = DEFAULT_LIMITS) -> ConversationFrame:
    """Parse one frame from a conversation's socket.

    Args:
        data: One WebSocket message, at most ``max_frame_bytes`` long (the connection has checked).

    Raises:
        BadFrame: Not JSON, an unknown ``type``, or a wrong field, which the message names
            (``Expected `str`, got `int` - at `$.content```). Rules ER1, ER2.
    """
    return _conversation.decode(data, limits.max_depth)


def decode_project_frame(
    data: bytes, *, limits: FrameLimits = DEFAULT_LIMITS
) -> tuple[Address | None, ProjectFrame]:
    """Parse one frame from a project's socket, and where in the project it belongs.

    Returns:
        ``None`` for the address of a connection frame (``ack``, ``ping``).

    Raises:
        BadFrame: As :func:`decode_client_frame`; also without ``domain`` or ``conversation_id``, where due.
    """
    frame = _project.decode(data, limits.max_depth)
    plain: type[Any] = type(frame).__mro__[1]
    body: ProjectFrame = plain(**{name: getattr(frame, name) for name in plain.__struct_fields__})
    domain = getattr(frame, "domain", None)
    if domain is None:
        return None, body
    return Address(Domain(domain), getattr(frame, "conversation_id", None)), body


def decode_server_frame(data: bytes) -> AnyServerFrame:
    """Parse one server frame, as a client would; fields that are not known are ignored.

    Raises:
        BadFrame: Not JSON, an unknown ``type``, or a wrong field.
    """
    try:
        return _server.decode(data)
    except msgspec.MsgspecError as error:
        raise bad_frame(error) from None


def encode(frame: ServerFrame) -> bytes:
    """One server frame as it goes on the wire, without the WebSocket header."""
    return _encoder.encode(frame)


def encode_client_frame(frame: ClientFrame, address: Address | None = None) -> bytes:
    """One client frame as a client sends it; with its address on a project's socket."""
    data = _encoder.encode(frame)
    if address is None:
        return data
    extra = {"domain": address.domain.value}
    if address.conversation_id is not None:
        extra["conversation_id"] = address.conversation_id
    return data[:-1] + b"," + _encoder.encode(extra)[1:]


def body_sha256(frame: ClientFrame) -> str:
    """The hash of all that a frame asks for, its ``request_id`` aside: equal bodies are repeats (ST4).

    A default that is left out and one that is spelt out hash alike.
    """
    body = orjson.loads(_encoder.encode(frame))
    body.pop("request_id", None)
    return canonical_sha256(body)
