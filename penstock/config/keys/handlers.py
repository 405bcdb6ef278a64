"""Keys of the handlers: what becomes of a listener's messages.

A handler's ``type`` says which keys it has. Types that are not Penstock's own are entry points of the group
``penstock.handlers``; what keys those take, they say themselves (``penstock.sinks``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, Field, Tag, TypeAdapter, field_validator, model_validator

from penstock.config.keys.secrets import SECRET
from penstock.config.keys.values import OwnTopic, Seconds, Section
from penstock.config.nearest_name import nearest

ENTRY_POINTS = "penstock.handlers"
HANDLER_NAME = r"^[a-z0-9_\-]+$"
KAFKA_TOPIC = re.compile(r"[a-zA-Z0-9._\-]{1,249}")
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
"""Modes that have an initialization vector, each with its paddings, its own first."""

_JAVA_NAMES: Mapping[str, str] = {
    **{name.upper(): name for mode, paddings in PADDINGS.items() for name in ("AES", mode, *paddings)},
    "CFB128": "CFB",
    "OFB128": "OFB",
}
"""Names in a transformation as Java takes them, in any case, and ours."""

Overflow = Literal["drop", "block"]


class HandlerGroup(Section):
    """What all handlers have."""

    overflow: Overflow = Field("drop", description="when it lags by a whole term of the log buffer; block is for tcp")

    @property
    def label(self) -> str:
        """Its name in the balance, in statistics and in file names."""
        named: str = getattr(self, "name", None) or getattr(self, "type")  # noqa: B009 - each type declares its own
        return named

    @property
    def propagates(self) -> bool:
        """Whether the handlers after it get messages."""
        return True


class LogHandler(HandlerGroup):
    """Into a topic of the log, by the log daemon."""

    type: Literal["log"] = Field("log", description="what becomes of the messages")
    topic: OwnTopic = Field("events", description="topic of its messages; a kt: tag wins")


class Forwarded(HandlerGroup):
    """What all handlers have that are processes of their own."""

    name: str | None = Field(
        None, pattern=HANDLER_NAME, max_length=32, description="its name in the balance; default: its type"
    )
    timeout: Seconds = Field(60.0, gt=0, description="a delivery that takes longer is broken off and tried again")


class ConsoleHandler(Forwarded):
    """To the standard output of ``penstock serve``."""

    type: Literal["console"] = Field(description="what becomes of the messages")
    format: Literal["text", "json"] = Field("text", description="the payloads, or one JSON object a line")


class DiscardHandler(Forwarded):
    """To nowhere, counted."""

    type: Literal["discard"] = Field(description="what becomes of the messages")


class EncryptionConfig(Section):
    """Encryption of messages for Kafka: the value is the initialization vector and then the ciphertext."""

    key: str | None = Field(None, json_schema_extra=SECRET, description="the key: a text of 16, 24 or 32 bytes")
    key_file: Path | None = Field(None, description="a file with the key")
    algorithm: Literal["AES"] = Field(description="the cipher")
    mode: str = Field("GCM", description="GCM, CTR, CBC, CFB, CFB8 or OFB")
    padding: str | None = Field(None, description="NoPadding or PKCS5Padding; default: what the mode takes")

    @model_validator(mode="before")
    @classmethod
    def _transformation(cls, given: Any) -> Any:
        """``transformation = "AES/CBC/PKCS5Padding"`` says algorithm, mode and padding, as in plog."""
        if not isinstance(given, dict) or "transformation" not in given:
            return given
        parts = [_JAVA_NAMES.get(part.upper(), part) for part in str(given["transformation"]).split("/")]
        named = dict(zip(("algorithm", "mode", "padding"), parts, strict=False))
        rest = {key: value for key, value in given.items() if key != "transformation"}
        if len(parts) != 3 or any(rest.get(key, value) != value for key, value in named.items()):
            raise ValueError("transformation must be like AES/GCM/NoPadding, and not say otherwise than other keys")
        return named | rest

    @model_validator(mode="after")
    def _complete(self) -> EncryptionConfig:
        if (self.key is None) == (self.key_file is None):
            raise ValueError("needs key or key_file, and only one of them")
        if self.mode not in PADDINGS:
            raise ValueError(f"mode {self.mode!r} is unknown{nearest(self.mode, list(PADDINGS))}")
        if self.padding is not None and self.padding not in PADDINGS[self.mode]:
            raise ValueError(f"padding {self.padding!r} is not one of {self.mode}: {', '.join(PADDINGS[self.mode])}")
        self.key_bytes()
        return self

    @property
    def padded(self) -> bool:
        """Whether a message is filled up to whole blocks."""
        return (self.padding or PADDINGS[self.mode][0]) != "NoPadding"

    def key_bytes(self) -> bytes:
        """The key. Raises ValueError when it cannot be read or has no length that AES takes."""
        if self.key is not None:
            return _key("key", self.key.encode())
        assert self.key_file
        try:
            data = self.key_file.read_bytes()
        except OSError as error:
            raise ValueError(f"key_file {self.key_file} cannot be read: {error.strerror}") from None
        return _key("key_file", data if len(data) in KEY_LENGTHS else data.rstrip(b"\r\n"))


def _key(name: str, key: bytes) -> bytes:
    if len(key) not in KEY_LENGTHS:
        raise ValueError(f"{name} holds {len(key)} bytes: a key of AES has 16, 24 or 32")
    return key


class KafkaHandler(Forwarded):
    """To Kafka."""

    type: Literal["kafka"] = Field(description="what becomes of the messages")
    default_topic: str = Field(description='topic of what has no kt: tag; "" = such messages are dropped and counted')
    propagate: bool = Field(True, description="whether the handlers after it get the messages too")
    producer: dict[str, str | int | float | bool] = Field(description="settings of the Kafka producer")
    encryption: EncryptionConfig | None = Field(None, description="encryption of the messages")
    max_parallelism: int | None = Field(
        None, ge=1, le=32768, description="partitions by Flink's key groups, with this many; default: Kafka's own way"
    )

    @model_validator(mode="before")
    @classmethod
    def _padding(cls, given: Any) -> Any:
        """``padding`` may stand beside ``encryption`` too."""
        if not isinstance(given, dict) or "padding" not in given:
            return given
        rest = {key: value for key, value in given.items() if key != "padding"}
        encryption = rest.get("encryption")
        if not isinstance(encryption, dict) or "padding" in encryption:
            raise ValueError("padding is a setting of encryption")
        return rest | {"encryption": encryption | {"padding": given["padding"]}}

    @field_validator("default_topic")
    @classmethod
    def _topic(cls, topic: str) -> str:
        if topic and (not KAFKA_TOPIC.fullmatch(topic) or topic in (".", "..")):
            raise ValueError(f"{topic!r} cannot be a topic of Kafka")
        return topic

    @field_validator("producer")
    @classmethod
    def _servers(cls, producer: dict[str, Any]) -> dict[str, Any]:
        if not producer.get("bootstrap.servers"):
            raise ValueError("bootstrap.servers is missing")
        return producer

    @property
    def propagates(self) -> bool:
        return self.propagate


class UserHandler(Forwarded):
    """A user's own, by the name of its entry point. Further keys are its settings."""

    model_config = ConfigDict(extra="allow")
    type: str = Field(description="name of an entry point of the group penstock.handlers")

    @field_validator("type")
    @classmethod
    def _known(cls, name: str) -> str:
        from importlib.metadata import entry_points  # some megabytes that most processes do without

        installed = {entry.name for entry in entry_points(group=ENTRY_POINTS)}
        if name not in installed:
            raise ValueError(f"there is no handler {name!r}{nearest(name, [*BUILT_IN, *sorted(installed)])}")
        if not re.fullmatch(HANDLER_NAME, name):
            raise ValueError(f"the name of the entry point {name!r} must match {HANDLER_NAME}")
        return name

    @property
    def settings(self) -> dict[str, Any]:
        """Its own settings."""
        return dict(self.model_extra or {})


BUILT_IN: dict[str, type[HandlerGroup]] = {
    "log": LogHandler,
    "console": ConsoleHandler,
    "kafka": KafkaHandler,
    "discard": DiscardHandler,
}


def _which(given: Any) -> str:
    kind = given.get("type", "log") if isinstance(given, dict) else getattr(given, "type", "")
    return kind if kind in BUILT_IN else "own"


HandlerConfig = Annotated[
    Annotated[LogHandler, Tag("log")]
    | Annotated[ConsoleHandler, Tag("console")]
    | Annotated[KafkaHandler, Tag("kafka")]
    | Annotated[DiscardHandler, Tag("discard")]
    | Annotated[UserHandler, Tag("own")],
    Discriminator(_which),
]
ForwardedHandler = ConsoleHandler | KafkaHandler | DiscardHandler | UserHandler


def forwarded_handler(given: Any) -> ForwardedHandler:
    """A handler that is a process of its own, of its settings as they were dumped."""
    handler: HandlerConfig = TypeAdapter(HandlerConfig).validate_python(given)
    if isinstance(handler, LogHandler):
        raise ValueError("the log daemon is no forwarder")
    return handler
