"""Settings: one frozen struct, read once when the process starts.

A flag wins over the environment, the environment over the TOML file, the file over the default. Every
value is checked by the type and the bounds written beside it, and the same annotations make the table in
the README. Units are in the names: ``_ms``, ``_s``, ``_bytes``. This module imports nothing of ours and
reads nothing but what :func:`load_settings` is given.
"""

import ipaddress
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct

__all__ = [
    "AgentSettings",
    "McpServer",
    "ModelPrice",
    "SettingInfo",
    "Settings",
    "SettingsError",
    "describe_settings",
    "load_settings",
    "require_authentication",
    "unknown_variables",
]

PREFIX: Final = "TURNWIRE_"
TEST_PREFIX: Final = "TURNWIRE_TEST_"

WELL_KNOWN: Final[Mapping[str, str]] = {
    "openai_base_url": "OPENAI_BASE_URL",
    "openai_api_key": "OPENAI_API_KEY",
    "database_url": "DATABASE_URL",
    "redis_url": "REDIS_URL",
}
"""Settings that are also understood under the name everybody gives them; the prefixed name wins."""

SECRETS: Final = frozenset({"openai_api_key", "database_url", "redis_url", "mcp"})
"""Values that never appear in a message, a log or a representation."""

HIDDEN: Final = "***"


class SettingsError(ValueError):
    """A setting is wrong; the text names the setting, the value and what is allowed."""


class ModelPrice(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a model costs, in USD for a million tokens."""

    input: Annotated[float, Meta(ge=0)] = 0.0
    output: Annotated[float, Meta(ge=0)] = 0.0


ToolPolicy: TypeAlias = Literal["immediate", "confirm"]
"""Whether a tool runs at once or waits for a person's agreement."""

McpName: TypeAlias = Annotated[str, Meta(pattern="^[A-Za-z0-9](_?[A-Za-z0-9-])*$", max_length=32)]
AgentName: TypeAlias = Annotated[str, Meta(pattern="^[^/]+/[^/]+$", max_length=256)]


class McpServer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A server of tools: a ``command`` that speaks MCP on its standard streams, or a ``url``.

    - ``policy`` is that of all its tools but those named in ``tools``, by the server's own names.
    - ``env`` is added to a small set of this process's variables (``PATH``, ``HOME`` and the like).
    - ``headers`` go with every request to ``url``.
    - ``timeout_ms`` is for one call, ``connect_timeout_ms`` for starting and listing its tools.
    - ``expires_s``: how long its calls wait for a person; for ever if not set.
    """

    command: tuple[str, ...] = ()
    url: Annotated[str, Meta(pattern="^https?://")] | None = None
    policy: ToolPolicy = "confirm"
    tools: dict[str, ToolPolicy] = {}
    env: dict[str, str] = {}
    headers: dict[str, str] = {}
    timeout_ms: Annotated[int, Meta(ge=1)] = 30_000
    connect_timeout_ms: Annotated[int, Meta(ge=1)] = 30_000
    expires_s: Annotated[float, Meta(gt=0)] | None = None

    def __post_init__(self) -> None:
        if bool(self.command) is (self.url is not None):
            raise ValueError("an MCP server has either `command` or `url`")
        if self.url is not None and self.env:
            raise ValueError("`env` is for an MCP server with `command`")
        if self.command and self.headers:
            raise ValueError("`headers` are for an MCP server with `url`")

    def __repr__(self) -> str:
        return f"McpServer({self.command[0] if self.command else HIDDEN})"


class AgentSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What ``actor_name`` chooses; what is not set is as the agent has it that ships under this name.

    - ``tools``: names and globs of the tools that it may call.
    - ``policies``: policies by name or glob, in place of the tools' own; the first that fits.
    """

    model: Annotated[str, Meta(min_length=1)] | None = None
    system_prompt: str | None = None
    tools: tuple[str, ...] | None = None
    policies: dict[str, ToolPolicy] = {}


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that can be set, with its default; paths have ``~`` expanded."""

    # Where it listens and keeps things.
    host: Annotated[
        str, Meta(min_length=1, description="Address to listen on; other than loopback needs `tokens_file`.")
    ] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535, description="Port to listen on; 0 takes a free one.")] = 8080
    state_dir: Annotated[
        Path, Meta(description="Folder of the embedded database, used when no database is configured.")
    ] = Path("~/.local/state/turnwire")
    config: Annotated[Path | None, Meta(description="TOML file with settings; not a key of that file.")] = (
        None
    )

    # Models.
    model: Annotated[
        str | None,
        Meta(description="Default model: `openai/NAME`, `local` or `script/NAME`; else the first offered."),
    ] = None
    scripts: Annotated[Path | None, Meta(description="Folder of model scripts, for `script/NAME`.")] = None
    openai_base_url: Annotated[
        str | None, Meta(pattern="^https?://", description="OpenAI-compatible endpoint.")
    ] = None
    openai_api_key: Annotated[str | None, Meta(description="Key for that endpoint.")] = None
    prices: Annotated[
        dict[str, ModelPrice],
        Meta(description="USD per million tokens by model: `input` and `output`; for `estimated_cost`."),
    ] = {}
    system_prompt: Annotated[
        str | None, Meta(description="Put before every conversation as a system message.")
    ] = None

    # Agents and their tools.
    agents: Annotated[
        dict[AgentName, AgentSettings],
        Meta(description="Agents by `namespace/name`; see docs/tools.md."),
    ] = {}
    mcp: Annotated[
        dict[McpName, McpServer],
        Meta(description="MCP servers by name; see docs/tools.md."),
    ] = {}
    tool_output_bytes: Annotated[
        int, Meta(ge=1024, le=1_048_576, description="The most that a model is told of one tool call.")
    ] = 65_536

    # Other services.
    database_url: Annotated[
        str | None,
        Meta(pattern="^postgres(ql)?://", description="Postgres 15 or later; the embedded one if not set."),
    ] = None
    redis_url: Annotated[
        str | None,
        Meta(pattern="^(rediss?|unix)://", description="Redis 7.0 or Valkey; in process if not set."),
    ] = None
    prometheus_url: Annotated[
        str | None, Meta(pattern="^https?://", description="Prometheus to read evidence from.")
    ] = None
    alertmanager_url: Annotated[
        str | None, Meta(pattern="^https?://", description="Alertmanager to read alerts from.")
    ] = None
    logs_glob: Annotated[str | None, Meta(description="JSON-lines log files to read evidence from.")] = None

    # Who may call.
    tokens_file: Annotated[
        Path | None, Meta(description="File of lines `token principal`; without it there is one local user.")
    ] = None
    allowed_origins: Annotated[
        tuple[str, ...],
        Meta(description="Origins of pages that may connect, besides the server's own; comma-separated."),
    ] = ()

    # What a client may send.
    max_frame_bytes: Annotated[int, Meta(ge=1024, description="Largest message of a client.")] = 1_048_576
    max_depth: Annotated[int, Meta(ge=4, le=512, description="Deepest nesting of a client's JSON.")] = 64
    rate_burst: Annotated[int, Meta(ge=1, description="Frames that a connection may send at once.")] = 20
    rate_per_s: Annotated[float, Meta(gt=0, description="Frames per second that it may go on sending.")] = (
        10.0
    )
    max_bad_frames: Annotated[int, Meta(ge=1, description="Bad frames in a row before a close (4400).")] = 10
    queue_limit: Annotated[int, Meta(ge=0, description="Completions that may wait in a conversation.")] = 8
    mailbox_limit: Annotated[int, Meta(ge=8, description="Messages that may wait for a conversation.")] = 256
    max_connections: Annotated[int, Meta(ge=1, description="Connections in all.")] = 10_000
    max_connections_per_principal: Annotated[int, Meta(ge=1, description="Connections of one caller.")] = 1000

    # What a canvas may grow to.
    canvas_nodes: Annotated[int, Meta(ge=1, description="Nodes of a canvas.")] = 10_000
    canvas_edges: Annotated[int, Meta(ge=1, description="Edges of a canvas.")] = 50_000
    canvas_batch_items: Annotated[int, Meta(ge=1, description="Items of a canvas batch.")] = 500
    canvas_data_bytes: Annotated[int, Meta(ge=64, description="`data` of one node or edge, as JSON.")] = (
        65_536
    )
    canvas_bytes: Annotated[int, Meta(ge=4096, description="`data` of a whole canvas, as JSON.")] = 67_108_864

    # What is kept for a client.
    outbox_bytes: Annotated[int, Meta(ge=4096, description="Frames kept for replay, per conversation.")] = (
        4_194_304
    )
    outbox_total_bytes: Annotated[int, Meta(ge=4096, description="Frames kept for replay, in all.")] = (
        268_435_456
    )
    outbox_retention_s: Annotated[
        int, Meta(ge=0, description="How long frames are kept after the last client left.")
    ] = 600
    slow_reader_bytes: Annotated[
        int, Meta(ge=4096, description="How far a client may fall behind before a close (4008).")
    ] = 2_097_152
    send_buffer_bytes: Annotated[int, Meta(ge=4096, description="Kernel send buffer of a connection.")] = (
        262_144
    )

    # Time limits of connections.
    heartbeat_ms: Annotated[int, Meta(ge=10, description="Time between pings.")] = 20_000
    heartbeat_timeout_ms: Annotated[int, Meta(ge=10, description="How late a pong may be.")] = 20_000
    probe_timeout_ms: Annotated[
        int, Meta(ge=10, description="How long a holder has to answer when another client waits.")
    ] = 1000
    close_timeout_ms: Annotated[int, Meta(ge=0, description="How long a closing handshake may take.")] = 5000
    http_request_timeout_s: Annotated[
        int, Meta(ge=1, description="How long a client may take to send a request's head or body.")
    ] = 10
    http_keep_alive_s: Annotated[int, Meta(ge=1, description="How long an idle HTTP connection is kept.")] = (
        30
    )

    # Time limits and bounds of completions.
    llm_connect_timeout_ms: Annotated[int, Meta(ge=1, description="To connect to the model.")] = 5000
    llm_first_token_timeout_ms: Annotated[int, Meta(ge=1, description="To its first token.")] = 60_000
    llm_gap_timeout_ms: Annotated[int, Meta(ge=1, description="Between two of its tokens.")] = 30_000
    llm_total_timeout_ms: Annotated[int, Meta(ge=1, description="For one whole completion.")] = 600_000
    llm_retries: Annotated[int, Meta(ge=0, le=10, description="Retries before the first token.")] = 2
    answer_characters: Annotated[
        int, Meta(ge=1024, description="Longest answer of one model turn; a longer one ends as `length`.")
    ] = 8_388_608
    max_turns: Annotated[int, Meta(ge=1, description="Model turns in one completion.")] = 16
    checkpoint_ms: Annotated[
        int, Meta(ge=10, description="How often streamed text is saved; what a crash may lose.")
    ] = 1000
    snapshot_messages: Annotated[int, Meta(ge=1, description="Messages in a snapshot.")] = 50
    context_messages: Annotated[int, Meta(ge=1, description="Messages sent to the model.")] = 200

    # Database, shutdown, logs.
    database_pool: Annotated[int, Meta(ge=2, description="Connections to the database.")] = 8
    database_timeout_ms: Annotated[int, Meta(ge=10, description="Time limit of one statement.")] = 1500
    drain_grace_ms: Annotated[
        int, Meta(ge=0, description="How long running completions may go on after SIGTERM.")
    ] = 8000
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="Least severe record to log.")
    ] = "info"
    log_json: Annotated[
        bool | None, Meta(description="JSON logs; if not set, only when stderr is not a terminal.")
    ] = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, Path):
                msgspec.structs.force_setattr(self, name, value.expanduser())

    def __repr__(self) -> str:
        shown = (
            f"{name}={HIDDEN if name in SECRETS and value is not None else repr(value)}"
            for name, value in msgspec.structs.asdict(self).items()
        )
        return f"Settings({', '.join(shown)})"


class SettingInfo(Struct, frozen=True):
    """One line of the table of settings, as text for people."""

    name: str
    variables: tuple[str, ...]
    type: str
    default: str
    meaning: str


_HINTS: Final[Mapping[str, Any]] = get_type_hints(Settings, include_extras=True)
_FIELDS: Final[tuple[str, ...]] = Settings.__struct_fields__


def load_settings(
    config: Path | None = None, env: Mapping[str, str] = os.environ, **flags: object
) -> Settings:
    """Read flags, environment and file into one struct.

    Args:
        config: The TOML file; ``TURNWIRE_CONFIG`` if not given, no file if that is not set either.
            Relative paths in it start from its own folder.
        env: The environment. A variable set to nothing counts as not set.
        flags: Values of the command line by field name; ``None`` means not given.

    Raises:
        SettingsError: A value is wrong, a key of the file or a flag is unknown, or the file cannot be read.
    """
    values: dict[str, Any] = {}
    path = config or _path_from(env)
    if path is not None:
        path = path.expanduser()
        values.update(_from_file(path))
    values.update(_from_environment(env))
    for name, given in flags.items():
        if given is not None:
            values[name] = _checked(name, given, f"--{name.replace('_', '-')}", strict=True)
    if path is not None:
        values["config"] = path
    return Settings(**values)


def require_authentication(settings: Settings) -> None:
    """Refuse an address that others can reach while anybody would be let in.

    Raises:
        SettingsError: ``host`` is not a loopback address and there is no ``tokens_file``.
    """
    if settings.tokens_file is None and not _is_loopback(settings.host):
        raise SettingsError(
            f"host: {settings.host!r} can be reached from elsewhere, so tokens_file must be set; "
            "without it only a loopback address such as '127.0.0.1' is allowed"
        )


def unknown_variables(env: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """The names in ``env`` that look like settings but are none, for a warning about typing errors."""
    known = {_variable(name) for name in _FIELDS}
    return tuple(
        sorted(
            name
            for name in env
            if name.startswith(PREFIX) and not name.startswith(TEST_PREFIX) and name not in known
        )
    )


def describe_settings() -> tuple[SettingInfo, ...]:
    """Every setting in the order of the struct, for ``turnwire settings`` and the README."""
    return tuple(
        SettingInfo(
            name=field.name,
            variables=_variables(field.name),
            type=_kind(_HINTS[field.name]),
            default=_default_text(field),
            meaning=_meta(_HINTS[field.name]).description or "",
        )
        for field in msgspec.structs.fields(Settings)
    )


def _from_environment(env: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in _FIELDS:
        for variable in _variables(name):
            text = env.get(variable, "")
            if text.strip():
                found[name] = _checked(name, _split(name, text, variable), variable, strict=False)
                break
    return found


def _path_from(env: Mapping[str, str]) -> Path | None:
    text = env.get(_variable("config"), "").strip()
    return Path(text) if text else None


def _from_file(path: Path) -> dict[str, Any]:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"config: cannot read {str(path)!r}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"config: {str(path)!r} is not TOML: {error}") from error
    found: dict[str, Any] = {}
    for name, given in table.items():
        if name not in _FIELDS or name == "config":
            raise SettingsError(f"{name}: not a setting (in {str(path)!r}); `turnwire settings` lists them")
        value = _checked(name, given, str(path), strict=True)
        found[name] = path.parent / value.expanduser() if isinstance(value, Path) else value
    return found


def _split(name: str, text: str, variable: str) -> object:
    """Bring one variable's text into the shape of its field: lists by comma, tables as JSON."""
    plain = _plain(_HINTS[name])
    if get_origin(plain) is tuple:
        return [part for part in (part.strip() for part in text.split(",")) if part]
    if get_origin(plain) is dict:
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError as error:
            raise SettingsError(f"{name}: {variable} is not JSON: {error}") from error
    return text if plain is str else text.strip()


def _checked(name: str, value: object, source: str, *, strict: bool) -> Any:
    if name not in _FIELDS:
        raise SettingsError(f"{name}: not a setting; `turnwire settings` lists them")
    hint = _HINTS[name]
    try:
        return msgspec.convert(value, Annotated[_plain(hint), _bounds(hint)], strict=strict, dec_hook=_decode)
    except (msgspec.ValidationError, TypeError) as error:
        shown = HIDDEN if name in SECRETS else repr(value)
        where = f" ({error})" if isinstance(value, dict) else ""
        raise SettingsError(f"{name}: {shown} from {source} is not {_kind(hint)}{where}") from error


def _decode(wanted: type, value: object) -> object:
    if wanted is Path and isinstance(value, str | Path) and str(value):
        return Path(value)
    raise msgspec.ValidationError(f"Expected `{wanted.__name__}`")


def _variable(name: str) -> str:
    return PREFIX + name.upper()


def _variables(name: str) -> tuple[str, ...]:
    known = WELL_KNOWN.get(name)
    return (_variable(name),) if known is None else (_variable(name), known)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _meta(hint: Any) -> Meta:
    return next(part for part in get_args(hint)[1:] if isinstance(part, Meta))


def _bounds(hint: Any) -> Meta:
    """The checks of a field; a path has none that msgspec could make."""
    return Meta() if _plain(hint) is Path else _meta(hint)


def _plain(hint: Any) -> Any:
    """The type without its annotation and without ``None``."""
    bare = get_args(hint)[0]
    if get_origin(bare) is UnionType:
        return next(part for part in get_args(bare) if part is not NoneType)
    return bare


_KINDS: Final[Mapping[Any, str]] = {
    int: "an integer",
    float: "a number",
    str: "a text",
    bool: "true or false",
    Path: "a path",
}
_STARTS: Final[Mapping[str, str]] = {
    "^https?://": "a URL that starts with http:// or https://",
    "^postgres(ql)?://": "a URL that starts with postgresql://",
    "^(rediss?|unix)://": "a URL that starts with redis://, rediss:// or unix://",
}


def _kind(hint: Any) -> str:
    plain, meta = _plain(hint), _meta(hint)
    if get_origin(plain) is Literal:
        return "one of " + ", ".join(str(choice) for choice in get_args(plain))
    if get_origin(plain) is tuple:
        return "a list of texts"
    if get_origin(plain) is dict:
        return "a table"
    if meta.pattern is not None:
        return _STARTS[meta.pattern]
    return _KINDS[plain] + _range(meta)


def _range(meta: Meta) -> str:
    if meta.ge is not None and meta.le is not None:
        return f" from {meta.ge} to {meta.le}"
    if meta.ge is not None:
        return f", {meta.ge} or more"
    if meta.gt is not None:
        return f" above {meta.gt}"
    return ""


def _default_text(field: msgspec.structs.FieldInfo) -> str:
    default = field.default if field.default is not msgspec.NODEFAULT else None
    if default is None or default == ():
        return ""
    return str(default)
