"""One settings tree: a TOML file, then PENSTOCK_ variables, then ``-o key=value``.

Unknown keys and bad values stop the start with the key's name and the nearest known one.
"""

from __future__ import annotations

import difflib
import ipaddress
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

DEFAULT_FILE = "penstock.toml"
ENVIRONMENT_PREFIX = "PENSTOCK_"
TAKEN_NAMES = ("grpc", "http", "flight", "kafka", "ledger", "unknown")
"""Sources of the balance that are no listeners."""
NAME_PATTERN = r"^[a-z0-9_\-.]+$"
SIZE_UNITS = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "KB": 10**3, "MB": 10**6, "GB": 10**9}
TIME_UNITS = {"us": 1e-6, "ms": 1e-3, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class ConfigError(ValueError):
    """The configuration cannot be used; the text has one line for each bad key."""


def parse_size(value: object) -> object:
    """Bytes of "16MiB", "4 KiB", "1MB" or a plain number. Raises ValueError."""
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"\s*(\d+)\s*([A-Za-z]*)\s*", value)
    if not match or match[2].upper() not in SIZE_UNITS:
        raise ValueError(f"{value!r} is not a size such as 16MiB")
    return int(match[1]) * SIZE_UNITS[match[2].upper()]


def parse_time(value: object) -> object:
    """Seconds of "10s", "5m", "6h", "7d", "250ms" or a plain number. Raises ValueError."""
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", value)
    if not match or match[2] not in TIME_UNITS:
        raise ValueError(f"{value!r} is not a time such as 10s, 5m or 7d")
    return float(match[1]) * TIME_UNITS[match[2]]


def _check_address(value: str) -> str:
    host, _, port = value.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{value!r} is not an address such as 127.0.0.1:8844")
    return value


def split_address(value: str) -> tuple[str, int]:
    """Host and port of a checked ``host:port``."""
    host, _, port = value.rpartition(":")
    return host.strip("[]"), int(port)


def _check_topic(value: str) -> str:
    if value in (".", "..") or value.startswith("_"):
        raise ValueError(f"{value!r} cannot be a topic of your own")
    return value


def _check_network(value: str) -> str:
    ipaddress.ip_network(value)
    return value


Size = Annotated[int, BeforeValidator(parse_size), Field(ge=0)]
Seconds = Annotated[float, BeforeValidator(parse_time), Field(ge=0)]
Address = Annotated[str, AfterValidator(_check_address)]
Port = Annotated[int, Field(ge=0, le=65535)]
TopicName = Annotated[str, Field(pattern=NAME_PATTERN, max_length=200)]
OwnTopic = Annotated[TopicName, AfterValidator(_check_topic)]
Network = Annotated[str, AfterValidator(_check_network)]


class Group(BaseModel):
    """A group of keys: immutable, unknown keys refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class TopicConfig(Group):
    """Settings of one topic."""

    message_size_limit: Size = Field(16 << 20, description="largest payload of one message")
    segment_size_limit: Size = Field(16 << 20, description="a segment is closed at this size")
    index_after_bytes: Size = Field(4 << 10, description="accepted for slogd's sake; every batch is indexed")
    rotate_after: Seconds = Field(6 * 3600, description="a segment is closed when its oldest entry is this old")
    durability: Literal["received", "written", "synced"] = Field("synced", description="what an answer promises")


class LogConfig(Group):
    """The log daemon."""

    grpc: Address = Field("127.0.0.1:8845", description="address of the gRPC server")
    http: Address = Field("127.0.0.1:8844", description="address of the HTTP server")
    max_topics: int = Field(1000, ge=1, description="most topics there may be")
    topic_defaults: TopicConfig = Field(default_factory=TopicConfig, description="settings of every topic")


class BufferConfig(Group):
    """Each listener's log buffer, and the slots its datagrams are received into."""

    term_length: Size = Field(64 << 20, description="length of one of its three terms, a power of two")
    slots: int = Field(1024, ge=16, le=1024, description="datagrams in one receive round")

    @model_validator(mode="after")
    def _power_of_two(self) -> BufferConfig:
        if self.term_length & (self.term_length - 1) or not 1 << 16 <= self.term_length <= 1 << 30:
            raise ValueError("term_length must be a power of two from 64KiB to 1GiB")
        return self


class HoleConfig(Group):
    """Detection of holes in a sender's message ids."""

    enabled: bool = Field(True, description="look for holes at all")
    ports: int = Field(1024, ge=1, description="senders remembered")
    ids_per_port: int = Field(10, ge=2, description="ids remembered of each")
    expire_time: Seconds = Field(60.0, description="a sender is forgotten after this silence")
    maximum_hole: int = Field(10, ge=1, description="larger gaps count as jumps")


class DefragConfig(Group):
    """Reassembly of fragmented messages."""

    max_size: Size = Field(1 << 20, description="largest message, and most bytes of unfinished ones")
    expire_time: Seconds = Field(10.0, description="an unfinished message is given up after this silence")
    detect_holes: HoleConfig = Field(default_factory=HoleConfig, description="holes in the ids of messages")


class HandlerConfig(Group):
    """One handler of a listener."""

    type: Literal["log"] = Field("log", description="what becomes of the messages")
    topic: OwnTopic = Field("events", description="topic of its messages")
    overflow: Literal["drop", "block"] = Field("drop", description="when the handler lags by the whole buffer")


class ListenerConfig(Group):
    """One socket that messages come in by."""

    name: str = Field(pattern=NAME_PATTERN, max_length=32, description="its name in statistics and the balance")
    protocol: Literal["udp", "tcp"] = Field(description="udp or tcp")
    host: str = Field("127.0.0.1", description="address to listen on")
    port: Port = Field(23456, description="port to listen on; 0 takes a free one")
    codec: Literal["plog", "syslog", "raw"] = Field("plog", description="how bytes become messages")
    so_rcvbuf: Size = Field(4 << 20, description="receive buffer asked of the kernel")
    max_line: Size = Field(1 << 20, description="longest line (tcp)")
    commands_from: tuple[Network, ...] = Field(("127.0.0.0/8",), description="networks that may send commands")
    kill: bool = Field(False, description="whether KILL is obeyed")
    defrag: DefragConfig = Field(default_factory=DefragConfig, description="reassembly (udp)")
    handlers: tuple[HandlerConfig, ...] = Field((HandlerConfig(),), description="where its messages go")

    @model_validator(mode="after")
    def _handlers_fit(self) -> ListenerConfig:
        if not self.handlers:
            raise ValueError("a listener needs a handler")
        types = [handler.type for handler in self.handlers]
        if twice := {kind for kind in types if types.count(kind) > 1}:
            raise ValueError(f"two handlers of type {sorted(twice)[0]!r}")
        if self.name in TAKEN_NAMES:
            raise ValueError(f"the name {self.name!r} means something else in the balance")
        if self.protocol == "udp" and any(h.overflow == "block" for h in self.handlers):
            raise ValueError("overflow = block is for tcp listeners only")
        return self


class PipelineConfig(Group):
    """Topics to tables."""

    source: Literal["penstock"] = Field("penstock", description="where messages are read")
    topics: tuple[str, ...] = Field(("*",), description="topics read; * = all but internal ones")
    tables: Path | None = Field(None, description="folder of the tables; default: data_dir/tables")
    format: Literal["parquet"] = Field("parquet", description="format of the tables")
    data_format: Literal["variant", "json"] = Field("variant", description="type of an event's data column")
    target_lag: Seconds = Field(1.0, description="how far the tables may be behind; sets the trigger")
    duplicate_window: Seconds = Field(600.0, description="how long a uuid is remembered")
    event_types: tuple[str, ...] = Field((), description="types let in; empty: any, at most max_types")
    max_types: int = Field(1000, ge=1, description="most types where event_types is empty")
    keep_payload: bool = Field(True, description="keep the raw payload of valid events")
    spark: dict[str, str | int | float | bool] = Field(
        default={"master": "local[2,3]"}, description="master, and anything else Spark takes"
    )


class Settings(Group):
    """All settings."""

    data_dir: Path = Field(Path("penstock-data"), description="where everything is kept")
    shutdown_time: Seconds = Field(10.0, description="how long a stop may take before processes are killed")
    log: LogConfig = Field(default_factory=LogConfig)
    topic: dict[TopicName, TopicConfig] = Field(default_factory=dict, description="settings of single topics")
    buffer: BufferConfig = Field(default_factory=BufferConfig)
    listener: tuple[ListenerConfig, ...] = Field(default_factory=lambda: default_listeners())
    pipeline: PipelineConfig = Field(default_factory=PipelineConfig)

    @model_validator(mode="after")
    def _names_differ(self) -> Settings:
        names = [listener.name for listener in self.listener]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"two listeners have the name {sorted(twice)[0]!r}")
        return self

    @property
    def tables(self) -> Path:
        """The folder of the tables."""
        return self.pipeline.tables or self.data_dir / "tables"

    @property
    def topics(self) -> Path:
        """The folder of the topics."""
        return self.data_dir / "topics"

    @property
    def buffers(self) -> Path:
        """The folder of the log buffers."""
        return self.data_dir / "buffers"


def default_listeners() -> tuple[ListenerConfig, ...]:
    """The listeners of ``penstock up`` without a file."""
    return tuple(ListenerConfig.model_validate(listener) for listener in _default_listener_tables())


def _default_listener_tables() -> list[dict[str, Any]]:
    ports = {"events": (23456, "plog"), "syslog": (5514, "syslog")}
    return [
        {
            "name": f"{topic}-{protocol}",
            "protocol": protocol,
            "port": port,
            "codec": codec,
            "handlers": [{"type": "log", "topic": topic}],
        }
        for topic, (port, codec) in ports.items()
        for protocol in ("udp", "tcp")
    ]


def load(
    file: Path | None = None, overrides: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> Settings:
    """The settings of ``file`` (else ./penstock.toml where there is one), the environment and ``overrides``.

    Raises ConfigError naming every key that is unknown or bad.
    """
    tree = _read_file(file)
    tree.setdefault("listener", _default_listener_tables())
    _check_listener_names(tree["listener"])
    for name, text in sorted((os.environ if environment is None else environment).items()):
        if name.startswith(ENVIRONMENT_PREFIX):
            _set(tree, name[len(ENVIRONMENT_PREFIX) :].lower().split("__"), _value(text), name)
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals:
            raise ConfigError(f"-o {override}: write it as key=value")
        _set(tree, key.strip().split("."), _value(text.strip()), f"-o {key}")
    _inherit(tree)
    try:
        return Settings.model_validate(tree)
    except ValidationError as error:
        raise ConfigError("\n".join(_explain(tree, dict(e)) for e in error.errors())) from None


def _read_file(file: Path | None) -> dict[str, Any]:
    path = file or Path(DEFAULT_FILE)
    if file is None and not path.exists():
        return {}
    try:
        return tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: {error}") from None


def _check_listener_names(listeners: object) -> None:
    if not isinstance(listeners, list) or not all(isinstance(item, dict) for item in listeners):
        raise ConfigError("listener: write each one as [[listener]]")


def _value(text: str) -> Any:
    """A value as TOML reads it, else the text itself (so that 16MiB needs no quotes)."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _set(tree: dict[str, Any], path: Sequence[str], value: Any, said: str) -> None:
    """Set the key at ``path``; a listener is found by its name."""
    if list(path[:2]) == ["pipeline", "spark"]:  # Spark's own keys have dots
        path = [*path[:2], ".".join(path[2:])]
    node: Any = tree
    for depth, part in enumerate(path[:-1]):
        node = _listener(node, part, said) if isinstance(node, list) else node.setdefault(part, {})
        if not isinstance(node, dict | list):
            raise ConfigError(f"{said}: {'.'.join(path[: depth + 1])} is not a group")
    if isinstance(node, list):
        raise ConfigError(f"{said}: name a key of the listener, such as {'.'.join(path)}.port")
    node[path[-1]] = value


def _listener(listeners: list[Any], name: str, said: str) -> dict[str, Any]:
    names = [str(item.get("name")) for item in listeners]
    for item, known in zip(listeners, names, strict=True):
        if name in (known, known.replace("-", "_").replace(".", "_")):
            found: dict[str, Any] = item
            return found
    raise ConfigError(f"{said}: there is no listener {name!r}{_nearest(name, names)}")


def _inherit(tree: dict[str, Any]) -> None:
    """Fill what a listener leaves out from [defaults.udp] or [defaults.tcp], a topic's from log.topic_defaults."""
    defaults = tree.pop("defaults", {})
    for key in defaults:
        if key not in ("udp", "tcp"):
            raise ConfigError(f"defaults.{key}: unknown key{_nearest(key, ['udp', 'tcp'])}")
    tree["listener"] = [_merge(defaults.get(item.get("protocol"), {}), item) for item in tree["listener"]]
    topic_defaults = tree.get("log", {}).get("topic_defaults", {}) if isinstance(tree.get("log"), dict) else {}
    if isinstance(tree.get("topic"), dict):
        tree["topic"] = {name: _merge(topic_defaults, settings) for name, settings in tree["topic"].items()}


def _merge(defaults: Any, given: Any) -> Any:
    if not isinstance(defaults, dict) or not isinstance(given, dict):
        return given
    return {
        key: _merge(defaults.get(key), given[key]) if key in given else defaults[key] for key in {**defaults, **given}
    }


def _explain(tree: dict[str, Any], error: dict[str, Any]) -> str:
    where = list(error["loc"])
    name = ".".join(_named(tree, where))
    if error["type"] == "extra_forbidden":
        return f"{name}: unknown key{_nearest(str(where[-1]), _keys(where[:-1]))}"
    if error["type"] == "missing":
        return f"{name}: is missing"
    message = str(error["msg"]).removeprefix("Value error, ")
    return f"{name}: {message}" if name else message


def _named(tree: Any, where: Sequence[str | int]) -> list[str]:
    """The location with listeners by name instead of by number."""
    names = []
    for part in where:
        tree = tree[part] if isinstance(tree, list) and isinstance(part, int) else (tree or {}).get(part)
        names.append(str(tree.get("name", part)) if isinstance(part, int) and isinstance(tree, dict) else str(part))
    return names


def _keys(where: Sequence[str | int]) -> list[str]:
    """The keys known at a location."""
    model: Any = Settings
    for part in where:
        if isinstance(part, int):
            continue
        annotation = model.model_fields[part].annotation if part in model.model_fields else model
        found = re.findall(r"penstock\.config\.(\w+)", repr(annotation))
        model = globals()[found[0]] if found else model
    return sorted(model.model_fields)


def _nearest(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else f" (known: {', '.join(known)})" if known else ""
