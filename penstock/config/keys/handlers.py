"""Keys of the handlers, which forward a listener's messages.

``type`` determines the keys of a handler. Other types than Penstock's own are entry points of the group
``penstock.handlers``, which define their keys themselves (``penstock.sinks``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, Field, Tag, TypeAdapter, field_validator, model_validator

from penstock.config.keys.relay import HOST_PATTERN, MAX_HOST_LENGTH, machine_name
from penstock.config.keys.secrets import SECRET, check_kafka_secrets
from penstock.config.keys.values import OwnTopic, Seconds, Section
from penstock.config.nearest_name import nearest
from penstock.files.secret_files import read_secret

ENTRY_POINTS = "penstock.handlers"
HANDLER_NAME = r"^[a-z0-9_\-]+$"
KAFKA_TOPIC = re.compile(r"[a-zA-Z0-9._\-]{1,249}")
_ACKNOWLEDGEMENTS = re.compile(r"(topic\.)?(request\.required\.)?acks")
_ZERO = re.compile(r"\s*[+-]?(0[xX]0+(?![0-9a-fA-F])|0+(?![0-7]|[xX][0-9a-fA-F]))")
"""A text that librdkafka reads as 0, in decimal, octal or hexadecimal digits; it ignores what follows them."""
KEY_LENGTHS = (16, 24, 32)
"""Bytes of an AES key."""
PADDINGS: Mapping[str, tuple[str, ...]] = {
    "GCM": ("NoPadding",),
    "CTR": ("NoPadding",),
    "CBC": ("PKCS5Padding", "NoPadding"),
    "CFB": ("NoPadding", "PKCS5Padding"),
    "CFB8": ("NoPadding", "PKCS5Padding"),
    "OFB": ("NoPadding", "PKCS5Padding"),
}
"""Modes with an initialization vector, each with its paddings, the default first."""

_JAVA_NAMES: Mapping[str, str] = {
    **{name.upper(): name for mode, paddings in PADDINGS.items() for name in ("AES", mode, *paddings)},
    "CFB128": "CFB",
    "OFB128": "OFB",
}
"""Java's names of a transformation in upper case, and Penstock's names."""

Overflow = Literal["drop", "block"]


class HandlerGroup(Section):
    """The keys of all handlers."""

    overflow: Overflow = Field(
        "drop", description="Policy when the handler lags by a term of the log buffer: drop (counted), or block (tcp)."
    )

    @property
    def label(self) -> str:
        """The handler's name in the balance, in statistics and in file names."""
        name: str = getattr(self, "name", None) or getattr(self, "type")  # noqa: B009 - each type declares its own
        return name

    @property
    def propagates(self) -> bool:
        """Later handlers receive the messages, too."""
        return True


class LogHandler(HandlerGroup):
    """Handler that appends to a topic of the log."""

    type: Literal["log"] = Field("log", description="Kind of handler: log, kafka, console, discard, or your own.")
    topic: OwnTopic = Field("events", description="Topic for messages without a kt: tag.")


class Forwarded(HandlerGroup):
    """The keys of all handlers that run in their own process."""

    name: str | None = Field(
        None, pattern=HANDLER_NAME, max_length=32, description="Name in the balance; default: the type."
    )
    timeout: Seconds = Field(60.0, gt=0, description="Time after which a delivery is aborted and retried.")


class ConsoleHandler(Forwarded):
    """Handler that writes to the standard output of ``penstock serve``."""

    type: Literal["console"] = Field(description="Kind of handler: log, kafka, console, discard, or your own.")
    format: Literal["text", "json"] = Field("text", description="text = payloads, json = one JSON object per line.")


class DiscardHandler(Forwarded):
    """Handler that counts and drops messages."""

    type: Literal["discard"] = Field(description="Kind of handler: log, kafka, console, discard, or your own.")


class EncryptionConfig(Section):
    """Encryption of messages for Kafka: a value is the initialization vector, then the ciphertext."""

    key: str | None = Field(None, json_schema_extra=SECRET, description="Key of 16, 24 or 32 bytes.")
    key_file: Path | None = Field(None, description="File of the key.")
    algorithm: Literal["AES"] = Field(description="Cipher.")
    mode: str = Field("GCM", description="GCM, CTR, CBC, CFB, CFB8 or OFB")
    padding: str | None = Field(None, description="NoPadding or PKCS5Padding; default: the mode's.")

    @model_validator(mode="before")
    @classmethod
    def _split_transformation(cls, keys: Any) -> Any:
        """Split ``transformation = "AES/CBC/PKCS5Padding"``, plog's notation, into algorithm, mode and padding."""
        if not isinstance(keys, dict) or "transformation" not in keys:
            return keys
        parts = [_JAVA_NAMES.get(part.upper(), part) for part in str(keys["transformation"]).split("/")]
        from_transformation = dict(zip(("algorithm", "mode", "padding"), parts, strict=False))
        other_keys = {key: value for key, value in keys.items() if key != "transformation"}
        if len(parts) != 3 or any(other_keys.get(key, value) != value for key, value in from_transformation.items()):
            raise ValueError("transformation must be like AES/GCM/NoPadding, and agree with the other keys")
        return from_transformation | other_keys

    @model_validator(mode="after")
    def _check_complete(self) -> EncryptionConfig:
        if (self.key is None) == (self.key_file is None):
            raise ValueError("needs key or key_file, and only one of them")
        # ECB is missing on purpose: equal blocks would give equal ciphertext.
        if self.mode not in PADDINGS:
            raise ValueError(f"mode {self.mode!r} is unknown{nearest(self.mode, list(PADDINGS))}")
        # Java accepts a padding only with a mode that fills blocks; the others are stream modes.
        if self.padding is not None and self.padding not in PADDINGS[self.mode]:
            raise ValueError(f"padding {self.padding!r} is not one of {self.mode}: {', '.join(PADDINGS[self.mode])}")
        self.key_bytes()
        return self

    @property
    def padded(self) -> bool:
        """Messages are padded to complete blocks."""
        return (self.padding or PADDINGS[self.mode][0]) != "NoPadding"

    def key_bytes(self) -> bytes:
        """Return the key. Raises ValueError when it cannot be read or has a length that AES does not support."""
        if self.key is not None:
            return _check_key("key", self.key.encode())
        assert self.key_file
        try:
            data = read_secret(self.key_file)
        except OSError as error:
            raise ValueError(f"key_file {self.key_file} cannot be read: {error.strerror}") from None
        # Editors append a line end: it is removed unless the file has exactly a key's length.
        return _check_key("key_file", data if len(data) in KEY_LENGTHS else data.rstrip(b"\r\n"))


def _check_key(name: str, key: bytes) -> bytes:
    if len(key) not in KEY_LENGTHS:
        raise ValueError(f"{name} has {len(key)} bytes: an AES key has 16, 24 or 32")
    return key


def check_acknowledged(producer: Mapping[str, Any]) -> None:
    """Refuse properties of a Kafka producer with which lost messages count as delivered. Raises ValueError."""
    for name, value in producer.items():
        if _ACKNOWLEDGEMENTS.fullmatch(name) and _ZERO.match(str(value)):
            raise ValueError(
                f"{name} = 0: the broker reports nothing, so messages that it refuses or loses would count as "
                "delivered; use 1 or all"
            )


class KafkaHandler(Forwarded):
    """Handler that sends to Kafka."""

    type: Literal["kafka"] = Field(description="Kind of handler: log, kafka, console, discard, or your own.")
    default_topic: str = Field(
        description='Topic for messages without a kt: tag; "" = such messages are dropped and counted.'
    )
    propagate: bool = Field(True, description="Pass messages on to the handlers behind this one.")
    producer: dict[str, str | int | float | bool] = Field(description="Properties of the Kafka producer.")
    encryption: EncryptionConfig | None = Field(None, description="encryption of the messages")
    # Flink derives a key group from this number, so it must equal the maxParallelism of the job that reads the topic.
    max_parallelism: int | None = Field(
        None,
        ge=1,
        le=32768,
        description="Partition by Flink's key groups with this maximum parallelism; default: Kafka's partitioner.",
    )
    # Off by default: plog sends no headers, and the broker stores about 45 bytes more for each record.
    origin_header: bool = Field(
        False, description="Send each record with the header _penstock_origin: HOST/LISTENER@MINUTE."
    )
    host: str = Field(
        "",
        pattern=HOST_PATTERN,
        max_length=MAX_HOST_LENGTH,
        description="Name of this host in the header; default: the machine's.",
    )

    @model_validator(mode="before")
    @classmethod
    def _move_padding(cls, keys: Any) -> Any:
        """Move ``padding``, which plog also accepts outside, into ``encryption``."""
        if not isinstance(keys, dict) or "padding" not in keys:
            return keys
        other_keys = {key: value for key, value in keys.items() if key != "padding"}
        encryption = other_keys.get("encryption")
        if not isinstance(encryption, dict) or "padding" in encryption:
            raise ValueError("padding is a setting of encryption")
        return other_keys | {"encryption": encryption | {"padding": keys["padding"]}}

    @field_validator("default_topic")
    @classmethod
    def _check_topic(cls, topic: str) -> str:
        if topic and (not KAFKA_TOPIC.fullmatch(topic) or topic in (".", "..")):
            raise ValueError(f"{topic!r} is not a valid Kafka topic")
        return topic

    @field_validator("producer")
    @classmethod
    def _check_servers(cls, producer: dict[str, Any]) -> dict[str, Any]:
        if not producer.get("bootstrap.servers"):
            # Without servers librdkafka starts, queues messages and never delivers one.
            raise ValueError("bootstrap.servers is missing")
        check_acknowledged(producer)
        check_kafka_secrets(producer)
        return producer

    @property
    def propagates(self) -> bool:
        return self.propagate

    @property
    def host_name(self) -> str:
        """Name of this host in the header of its records."""
        return self.host or machine_name()


class UserHandler(Forwarded):
    """A user's own handler, by the name of its entry point; additional keys are its settings."""

    model_config = ConfigDict(extra="allow")
    type: str = Field(description="name of an entry point of the group penstock.handlers")

    @field_validator("type")
    @classmethod
    def _check_installed(cls, name: str) -> str:
        from importlib.metadata import entry_points  # here, because most processes do not need its memory

        installed = {entry.name for entry in entry_points(group=ENTRY_POINTS)}
        if name not in installed:
            raise ValueError(f"unknown handler {name!r}{nearest(name, [*BUILT_IN, *sorted(installed)])}")
        if not re.fullmatch(HANDLER_NAME, name):
            raise ValueError(f"the name of the entry point {name!r} must match {HANDLER_NAME}")
        return name

    @property
    def settings(self) -> dict[str, Any]:
        """The handler's own settings."""
        return dict(self.model_extra or {})


BUILT_IN: dict[str, type[HandlerGroup]] = {
    "log": LogHandler,
    "console": ConsoleHandler,
    "kafka": KafkaHandler,
    "discard": DiscardHandler,
}


def _handler_tag(handler: Any) -> str:
    kind = handler.get("type", "log") if isinstance(handler, dict) else getattr(handler, "type", "")
    return kind if kind in BUILT_IN else "own"


HandlerConfig = Annotated[
    Annotated[LogHandler, Tag("log")]
    | Annotated[ConsoleHandler, Tag("console")]
    | Annotated[KafkaHandler, Tag("kafka")]
    | Annotated[DiscardHandler, Tag("discard")]
    | Annotated[UserHandler, Tag("own")],
    Discriminator(_handler_tag),
]
ForwardedHandler = ConsoleHandler | KafkaHandler | DiscardHandler | UserHandler


def forwarded_handler(settings: Any) -> ForwardedHandler:
    """Return a handler that runs in its own process, from its dumped settings."""
    handler: HandlerConfig = TypeAdapter(HandlerConfig).validate_python(settings)
    if isinstance(handler, LogHandler):
        raise ValueError("a handler of type log is not a forwarder")
    return handler
