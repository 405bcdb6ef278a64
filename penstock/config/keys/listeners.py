"""Keys of the listeners and their log buffers."""

from __future__ import annotations

import os
import re
from datetime import UTC, tzinfo
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from penstock.config.default_listeners import Protocol
from penstock.config.keys.handlers import ForwardedHandler, HandlerConfig, LogHandler
from penstock.config.keys.secrets import SECRET
from penstock.config.keys.security.senders import SenderTlsConfig
from penstock.config.keys.values import NAME_PATTERN, Network, Port, Seconds, Section, Size
from penstock.config.nearest_name import nearest

CODECS = ("plog", "syslog", "gelf", "forward", "raw")
"""Built-in codecs; others are entry points of the group OWN_CODECS."""
OWN_CODECS = "penstock.codecs"
MAX_SOCKET_PATH_BYTES = 107
"""Limit of Linux for the name of a socket's file: sun_path of unix(7) without its NUL."""
MIN_EXPECT_S = 2
"""Arrivals of a sender are noted once a second, so its silence is known to a second."""
MAX_NAME_LENGTH = 32
"""Limit of a listener's name: it is part of file and process names."""
RESERVED_NAMES = ("grpc", "http", "flight", "kafka", "ledger", "unknown")
"""Names of the other sources in the balance, which no listener may have."""


def zone_of(name: str) -> tzinfo | None:
    """Return the time zone of a name; None is the machine's own (``local``). Raises ValueError."""
    if name == "local":
        return None
    if name.upper() in ("UTC", "Z"):
        return UTC
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"{name!r} is not a time zone such as Europe/Berlin, UTC or local") from None


class BufferConfig(Section):
    """The log buffer of each listener, and the slots for received datagrams."""

    term_length: Size = Field(
        64 << 20, description="Length of each of the three terms of a log buffer, a power of two."
    )
    slots: int = Field(1024, ge=16, le=1024, description="Maximum number of datagrams in one receive round.")

    @model_validator(mode="after")
    def _check_power_of_two(self) -> BufferConfig:
        if self.term_length & (self.term_length - 1) or not 1 << 16 <= self.term_length <= 1 << 30:
            raise ValueError("term_length must be a power of two from 64KiB to 1GiB")
        return self


class HoleConfig(Section):
    """Detection of holes in a sender's message ids."""

    enabled: bool = Field(True, description="Detect missing message ids.")
    ports: int = Field(1024, ge=1, description="Number of senders whose ids are followed.")
    ids_per_port: int = Field(10, ge=2, description="Number of recent ids kept per sender.")
    expire_time: Seconds = Field(60.0, description="Silence after which a sender's ids are forgotten.")
    maximum_hole: int = Field(
        10, ge=1, description="Largest gap that counts as missing messages; a larger one counts as a jump."
    )


class DefragConfig(Section):
    """Reassembly of fragmented messages."""

    max_size: Size = Field(1 << 20, description="Maximum size of a message, and of all unfinished messages together.")
    expire_time: Seconds = Field(
        10.0, description="Time without a fragment after which an unfinished message is dropped and counted."
    )
    detect_holes: HoleConfig = Field(default_factory=HoleConfig, description="holes in the ids of messages")


class MultilineConfig(Section):
    """Rules that join lines of one connection to one message."""

    indented: bool = Field(False, description="Append lines that begin with a space or tab to the previous message.")
    begins: str = Field(
        "",
        description=(
            "Regular expression (RE2) that matches the first line of each message; other lines are appended to it."
        ),
    )
    max_lines: int = Field(
        500, ge=2, description="Maximum number of lines of a message; further lines begin a new message."
    )
    wait: Seconds = Field(1.0, description="Silence of the connection after which a message is complete.")

    @model_validator(mode="after")
    def _check_one_rule(self) -> MultilineConfig:
        if self.indented and self.begins:
            raise ValueError("indented and begins exclude each other")
        if self.begins:
            import pyarrow as pa  # here, because only this check needs it: the expression is for its RE2
            import pyarrow.compute as pc

            try:
                pc.match_substring_regex(pa.array([""]), self.begins)
            except pa.ArrowInvalid as error:
                raise ValueError(f"begins: {error}") from None
        return self


ORIGIN = re.compile(r"\*|https?://[a-z0-9.-]{1,253}(:[0-9]{1,5})?|https?://\[[0-9a-f:.]+\](:[0-9]{1,5})?")
"""An origin as browsers send it: in lower case, without a path."""
REQUEST_PROTOCOLS = ("http", "otlp_grpc")
"""Protocols with a response, which confirms that the log has the messages."""
LOCAL_PROTOCOLS = ("unix_datagram", "unix_stream")
"""Protocols of sockets that are files of this host, such as /dev/log."""


class ListenerConfig(SenderTlsConfig):
    """A socket that receives messages."""

    name: str = Field(
        pattern=NAME_PATTERN, max_length=MAX_NAME_LENGTH, description="Name in statistics and in the balance."
    )
    protocol: Protocol = Field(
        description=(
            "udp, tcp, http (the path selects the protocol of a request), otlp_grpc, unix_datagram or unix_stream."
        )
    )
    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: Port = Field(23456, description="Port to listen on; 0 = a free one.")
    path: str = Field("", description="File of the socket, such as /dev/log (unix_datagram, unix_stream).")
    mode: str = Field(
        "0666",
        pattern=r"^0?[0-7]{3}$",
        description="Permissions of the socket's file, octal; who may write to it may send (unix_*).",
    )
    owner: str = Field(
        "",
        description="Owner of the socket's file: user or user:group; empty = this process's (unix_*).",
    )
    codec: str = Field(
        "plog",
        description=(
            "Decoder of messages: plog, syslog, gelf, forward, raw, or your own (all but http and otlp_grpc); "
            "the default of unix_datagram and unix_stream is syslog."
        ),
    )
    framing: Literal["auto", "lf", "nul", "octet"] = Field(
        "auto",
        description=(
            "Framing of messages of the codecs syslog, gelf and raw; auto = recognised by the first "
            "messages of a connection (tcp)."
        ),
    )
    timezone: str = Field("local", description="Time zone of timestamps without one; local = this machine's (syslog).")
    so_rcvbuf: Size = Field(4 << 20, description="Receive buffer requested from the kernel.")
    receivers: int = Field(
        1,
        ge=1,
        le=64,
        description="Number of processes that receive at the port; the further ones are named NAME-2 and so on (udp).",
    )
    max_line: Size = Field(
        1 << 20, description="Maximum length of a line (tcp), or of a message with its annotations (http, otlp_grpc)."
    )
    max_connections: int = Field(
        10_000,
        ge=1,
        description=(
            "Maximum number of connections; a further one closes the one with the most unfinished bytes, or the "
            "longest silent one (tcp), or an idle one (http, otlp_grpc)."
        ),
    )
    max_unfinished: Size = Field(
        128 << 20,
        description="Maximum bytes of unfinished lines (tcp) or requests (http, otlp_grpc) of all connections.",
    )
    max_body: Size = Field(
        32 << 20, ge=1024, description="Maximum size of a request, also unpacked (http, otlp_grpc, codec forward)."
    )
    max_messages: int = Field(
        250_000, ge=1, description="Maximum number of messages of one request (http, otlp_grpc, codec forward)."
    )
    request_timeout: Seconds = Field(
        30,
        gt=0,
        description=(
            "Time within which a client must send a head or small body, and after which a silent "
            "connection is closed (http)."
        ),
    )
    tokens: tuple[str, ...] = Field(
        (),
        json_schema_extra=SECRET,
        description="Tokens, one of which each request must carry; empty = no token is required (http, otlp_grpc).",
    )
    allow_from: tuple[Network, ...] = Field((), description="Networks that may send; empty = all.")
    allow_origins: tuple[str, ...] = Field(
        (), description="Web origins whose pages may send from a browser, such as https://app.example; * = all (http)."
    )
    idle_timeout: Seconds = Field(0, description="Time after which a silent connection is closed; 0 = never (tcp).")
    shared_key: str = Field(
        "",
        json_schema_extra=SECRET,
        description="Shared key of the forward protocol; empty = no authentication (codec forward).",
    )
    commands_from: tuple[Network, ...] = Field(
        ("127.0.0.0/8",), description="Networks that may send commands (codec plog)."
    )
    kill: bool = Field(False, description="Obey the command KILL, which ends the receiver (codec plog).")
    annotate_source: bool = Field(
        False,
        description=(
            "Add the sender's address to each message as an annotation; of local senders process, user and group."
        ),
    )
    senders: Literal["address", "host", "off"] = Field(
        "address",
        description=(
            "Counts by sender: address (of local sockets the user), host = the host name in the header "
            "(codec syslog, behind a relay), or off."
        ),
    )
    expect: Seconds = Field(
        0,
        description=(
            "Silence of a sender after which an alarm fires, within alarms.every; at least 2s; "
            "0 = learned from its usual pauses."
        ),
    )
    multiline: MultilineConfig = Field(default_factory=MultilineConfig, description="lines that are one message (tcp)")
    defrag: DefragConfig = Field(default_factory=DefragConfig, description="reassembly (udp)")
    handlers: tuple[HandlerConfig, ...] = Field((LogHandler(),), description="where its messages go")

    @model_validator(mode="after")
    def _check_handlers(self) -> ListenerConfig:
        if not self.handlers:
            raise ValueError("a listener needs a handler")
        labels = [handler.label for handler in self.handlers]
        if [handler.type for handler in self.handlers].count("log") > 1:
            raise ValueError("two handlers of type 'log'")
        if any(handler.label == "log" and handler.type != "log" for handler in self.handlers):
            raise ValueError("handlers: only the one of type log is called 'log'")
        if twice := {label for label in labels if labels.count(label) > 1}:
            raise ValueError(f"handlers: two are called {min(twice)!r}: give each a name of its own")
        # The balance has one row per source name; a listener of that name would be added to an API's row.
        if self.name in RESERVED_NAMES:
            raise ValueError(f"the name {self.name!r} is reserved in the balance")
        if self.protocol == "udp" and any(h.overflow == "block" for h in self.handlers):
            # Blocking a UDP reader only moves the loss into the kernel's socket buffer. Local senders wait instead.
            raise ValueError("overflow = block is for tcp listeners only")
        return self

    @model_validator(mode="after")
    def _check_buffer_limits(self) -> ListenerConfig:
        # Limit: with less room a single permitted line would evict its own connection.
        if self.takes_lines and self.max_unfinished < self.max_line:
            raise ValueError("max_unfinished is less than one line (max_line)")
        if self.has_responses and self.max_unfinished < self.max_body:
            raise ValueError("max_unfinished is less than one request (max_body)")
        return self

    @model_validator(mode="after")
    def _check_settings_of_requests(self) -> ListenerConfig:
        if self.allow_origins and self.protocol != "http":
            raise ValueError("allow_origins is for http listeners only")
        if wrong := [origin for origin in self.allow_origins if not ORIGIN.fullmatch(origin)]:
            raise ValueError(f"allow_origins: {wrong[0]!r} is neither * nor such as https://app.example:8443")
        if not self.has_responses:
            if self.tokens:
                raise ValueError("tokens are for http and otlp_grpc listeners only")
            return self
        if self.codec != "plog":
            raise ValueError(
                f"codec is for udp and tcp listeners and local sockets only: {self.protocol} determines it"
            )
        if self.joins_lines or self.framing != "auto":
            raise ValueError("multiline and framing are for tcp listeners only")
        if any(not token or not token.isascii() or not token.isprintable() for token in self.tokens):
            raise ValueError("tokens: a token consists of printable ASCII characters")
        return self

    @model_validator(mode="before")
    @classmethod
    def _default_codec_of_local_sockets(cls, keys: Any) -> Any:
        # A host's own programs send syslog; plog's senders use networks.
        return (
            {"codec": "syslog", **keys} if isinstance(keys, dict) and keys.get("protocol") in LOCAL_PROTOCOLS else keys
        )

    @model_validator(mode="after")
    def _check_local_socket(self) -> ListenerConfig:
        if not self.is_local:
            if self.path or self.owner or self.mode != "0666":
                raise ValueError("path, mode and owner are for unix_datagram and unix_stream listeners only")
            return self
        if not self.path.startswith("/"):
            raise ValueError(f"{self.protocol} needs path: the absolute name of the socket's file, such as /dev/log")
        if len(os.fsencode(self.path)) > MAX_SOCKET_PATH_BYTES:
            raise ValueError(f"path has more than {MAX_SOCKET_PATH_BYTES} bytes, the longest name of a socket's file")
        if self.tls_cert is not None or self.allow_from:
            raise ValueError(
                f"tls_cert and allow_from do not apply to {self.protocol}: mode and owner say who may send"
            )
        return self

    @model_validator(mode="after")
    def _check_senders(self) -> ListenerConfig:
        if self.senders == "host" and (self.codec != "syslog" or self.has_responses):
            raise ValueError("senders = host is for codec syslog only: other messages have no host in a header")
        if self.expect and self.senders == "off":
            raise ValueError("expect needs senders: without counts by sender nobody notices a silent one")
        if 0 < self.expect < MIN_EXPECT_S:
            raise ValueError(f"expect must be at least {MIN_EXPECT_S} s: arrivals are noted once a second")
        return self

    @model_validator(mode="after")
    def _check_keys_of_connections(self) -> ListenerConfig:
        if self.takes_datagrams and self.tls_cert is not None:
            raise ValueError("tls_cert is for tcp listeners only")
        if self.takes_datagrams and self.joins_lines:
            raise ValueError("multiline is for tcp and unix_stream listeners only")
        if self.takes_datagrams and self.codec == "forward":
            raise ValueError("codec forward is for tcp and unix_stream listeners only")
        if self.codec == "forward" and (self.framing != "auto" or self.joins_lines):
            raise ValueError("framing and multiline do not apply to codec forward")
        if self.codec != "forward" and self.shared_key:
            raise ValueError("shared_key is for codec forward only")
        # plog's protocol over TCP is defined as lines; other framings would change messages of existing senders.
        if self.codec == "plog" and self.framing not in ("auto", "lf"):
            raise ValueError("framing: the lines of codec plog end with LF")
        return self

    @field_validator("codec")
    @classmethod
    def _check_codec(cls, name: str) -> str:
        if name not in CODECS:
            from importlib.metadata import entry_points  # here, because most processes do not need its memory

            installed = {entry.name for entry in entry_points(group=OWN_CODECS)}
            if name not in installed:
                raise ValueError(f"unknown codec {name!r}{nearest(name, [*CODECS, *sorted(installed)])}")
        return name

    @field_validator("timezone")
    @classmethod
    def _check_zone(cls, name: str) -> str:
        zone_of(name)
        return name

    @model_validator(mode="after")
    def _port_can_be_shared(self) -> ListenerConfig:
        # Port 0 gives each socket another port, so several receivers cannot share one.
        if self.receivers > 1 and (self.protocol != "udp" or self.port == 0):
            raise ValueError("receivers is for udp listeners with a port of their own")
        if len(self.receiver_name(self.receivers)) > MAX_NAME_LENGTH:
            raise ValueError(f"receivers: no room for their number in a name of {MAX_NAME_LENGTH} letters")
        return self

    @property
    def listening_address(self) -> tuple[str, str, int]:
        """The listening address; a reload keeps the socket while it is unchanged."""
        return (self.protocol, self.path, 0) if self.is_local else (self.protocol, self.host, self.port)

    @property
    def address_text(self) -> str:
        """The listening address for people."""
        return self.path if self.is_local else f"{self.host}:{self.port}"

    @property
    def is_local(self) -> bool:
        """The socket is a file, which only programs of this host can write to."""
        return self.protocol in LOCAL_PROTOCOLS

    @property
    def takes_datagrams(self) -> bool:
        """Each read of the socket is a message or a fragment."""
        return self.protocol in ("udp", "unix_datagram")

    @property
    def takes_lines(self) -> bool:
        """Senders connect and write messages that are framed, such as lines."""
        return self.protocol in ("tcp", "unix_stream")

    @property
    def shares_port(self) -> bool:
        """Several receivers have sockets at its port."""
        return self.receivers > 1

    def receiver_name(self, number: int) -> str:
        """Return the name of a receiver by its number; the first one has the listener's name."""
        return self.name if number == 1 else f"{self.name}-{number}"

    @property
    def zone(self) -> tzinfo | None:
        """The time zone of times without one; None is the machine's own."""
        return zone_of(self.timezone)

    @property
    def has_responses(self) -> bool:
        """Senders wait for a response, which confirms that the log has their messages."""
        return self.protocol in REQUEST_PROTOCOLS

    @property
    def transport(self) -> Literal["udp", "tcp"]:
        """The kind of the socket: datagrams or connections."""
        return "udp" if self.takes_datagrams else "tcp"

    @property
    def joins_lines(self) -> bool:
        """Several lines may form one message."""
        return self.multiline.indented or bool(self.multiline.begins)

    @property
    def defragments(self) -> bool:
        """Messages may arrive in fragments and be larger than a datagram."""
        return self.takes_datagrams and self.codec in ("plog", "gelf")

    @property
    def most_beyond(self) -> int:
        """Bytes of messages that a round may yield in addition to its datagrams; GELF also unpacks a message."""
        return self.defrag.max_size * (1 + (self.codec == "gelf")) if self.defragments else 0

    @property
    def routed(self) -> tuple[HandlerConfig, ...]:
        """The handlers that receive messages: up to the first that does not propagate."""
        last = next((n for n, handler in enumerate(self.handlers) if not handler.propagates), len(self.handlers))
        return self.handlers[: last + 1]

    @property
    def log(self) -> LogHandler | None:
        """The handler of type log, if it receives messages."""
        return next((handler for handler in self.routed if isinstance(handler, LogHandler)), None)

    @property
    def forwarded(self) -> tuple[ForwardedHandler, ...]:
        """The handlers with a process of their own that receive messages."""
        return tuple(handler for handler in self.routed if not isinstance(handler, LogHandler))
