"""Keys of the relays to other Penstocks."""

from __future__ import annotations

import re
import socket
from pathlib import Path

from pydantic import Field, field_validator, model_validator

from penstock.config.keys.security.servers import is_loopback
from penstock.config.keys.values import NAME_PATTERN, Address, OwnTopic, Section

HOST_PATTERN = r"^[A-Za-z0-9_.-]*$"
MAX_HOST_LENGTH = 20
"""Limit of a host's name: HOST/SOURCE has 32 bytes in the index of a segment, and sources differ in the rest."""


class RelayConfig(Section):
    """A relay: topics of this host are copied into topics of another Penstock, each entry once."""

    name: str = Field(pattern=NAME_PATTERN, max_length=32, description="Name in the log; its cursors are relay-NAME.")
    topic: tuple[OwnTopic, ...] = Field((), description="Topic of this host, or a list.")
    kafka: bool = Field(
        False,
        description="Post the counts of this host's handlers kafka with origin_header; then topic may be left out.",
    )
    to: Address = Field(description="Address of the other Penstock's gRPC API.")
    to_topic: OwnTopic | None = Field(None, description="Topic of the other Penstock; default: the same name.")
    host: str = Field(
        "",
        pattern=HOST_PATTERN,
        max_length=MAX_HOST_LENGTH,
        description="Name of this host in the other balance; default: the machine's.",
    )
    token_file: Path | None = Field(
        None,
        json_schema_extra={"secret": False},
        description="File with a token that has the rights relay and write; needs TLS to other machines.",
    )
    host_token_file: Path | None = Field(
        None,
        json_schema_extra={"secret": False},
        description="File with a token that has the right host, to post this host's counts; default: token_file.",
    )
    tls: bool = Field(False, description="Use TLS, and trust the system's authorities.")
    tls_ca: Path | None = Field(None, description="File of the trusted authorities (PEM); turns TLS on.")
    tls_cert: Path | None = Field(None, description="File of this host's certificate (PEM); needs tls_key.")
    tls_key: Path | None = Field(None, description="File of the private key of tls_cert (PEM).")
    tls_name: str = Field("", description="Name in the other side's certificate, if it differs from the address.")

    @field_validator("topic", mode="before")
    @classmethod
    def _accept_single_topic(cls, topic: object) -> object:
        return (topic,) if isinstance(topic, str) else topic

    @model_validator(mode="after")
    def _check_relay(self) -> RelayConfig:
        if not (self.topic or self.kafka):
            raise ValueError("topic is missing, or kafka = true")
        if len(set(self.topic)) < len(self.topic):
            raise ValueError("topic has a name twice")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key need each other")
        if (self.tls_cert or self.tls_name) and not self.uses_tls:
            raise ValueError("tls_cert and tls_name need tls or tls_ca")
        for key in ("token_file", "host_token_file"):
            if getattr(self, key) and not self.uses_tls and not is_loopback(self.to):
                raise ValueError(f"{key} needs tls or tls_ca: others on the network could read the token")
        return self

    @property
    def uses_tls(self) -> bool:
        """Report whether the connection uses TLS."""
        return self.tls or self.tls_ca is not None

    @property
    def host_name(self) -> str:
        """Name of this host in the other balance."""
        return self.host or machine_name()


def machine_name() -> str:
    """Return the machine's name without its domain, as a host's name in a balance."""
    return re.sub(r"[^A-Za-z0-9_-]", "-", socket.gethostname().partition(".")[0])[:MAX_HOST_LENGTH]
