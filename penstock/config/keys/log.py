"""Keys of the log daemon and its topics."""

from __future__ import annotations

import importlib.util
from typing import Literal

from pydantic import Field, field_validator

from penstock.config.keys.values import Address, AddressOrOff, Seconds, Section, Size


class TopicConfig(Section):
    """Settings of one topic."""

    message_size_limit: Size = Field(16 << 20, ge=1, description="Maximum size of the payload of one message.")
    segment_size_limit: Size = Field(16 << 20, ge=1, description="Size at which a segment is closed.")
    rotate_after: Seconds = Field(6 * 3600, description="Age of its oldest entry at which a segment is closed.")
    stale_after: Seconds = Field(7 * 86400, description="Age of its newest entry at which a segment is dropped.")
    retain_bytes: Size = Field(
        0, description="Size of a topic above which its oldest segments are dropped; 0 = no limit."
    )
    retention_policy: Literal["expire", "keep"] = Field(
        "expire",
        description=(
            "expire = drop old segments by age and size, keep = never drop entries that a named cursor has not passed."
        ),
    )
    durability: Literal["received", "written", "synced"] = Field(
        "synced",
        description=(
            "State of an entry when its append is acknowledged: synced = on disk, written and received = in the "
            "page cache."
        ),
    )
    compression: Literal["none", "zstd"] = Field("none", description="Compression of closed segments.")
    timestamp_type: Literal["append", "create"] = Field(
        "append",
        description="Time of a record for Kafka clients: append = the log's, create = the producer's (CreateTime).",
    )
    readers: tuple[str, ...] = Field(("*",), description="Names of tokens that may read; * = everybody.")
    writers: tuple[str, ...] = Field(("*",), description="Names of tokens that may write; * = everybody.")


class TransactionsConfig(Section):
    """Transactions and producers."""

    timeout: Seconds = Field(60, gt=0, description="Age at which an open transaction is aborted.")
    max_size: Size = Field(64 << 20, ge=1, description="Maximum size of the entries of one transaction.")
    max_open: int = Field(1000, ge=1, description="Maximum number of open transactions.")
    max_open_per_token: int = Field(100, ge=1, description="Maximum number of open transactions of one token.")
    producer_memory: Seconds = Field(
        86400,
        description="Time for which a repeated append of an idle producer is recognised; counts while the daemon runs.",
    )


class LogConfig(Section):
    """The log daemon."""

    grpc: Address = Field("127.0.0.1:8845", description="Address of the gRPC server.")
    http: Address = Field("127.0.0.1:8844", description="Address of the HTTP server.")
    flight: AddressOrOff = Field(
        "", description='Address of the Arrow Flight server, from which Spark on other machines reads topics; "" = off.'
    )
    kafka: AddressOrOff = Field("", description='Address for clients of Kafka; "" = off.')
    kafka_advertised: AddressOrOff = Field(
        "",
        description=(
            'Address that clients of Kafka connect to, if it differs from log.kafka; "" = the address they used.'
        ),
    )
    max_bodies: Size = Field(
        256 << 20,
        ge=1,
        description="Maximum bytes of all HTTP request bodies in flight; the same limit holds for Kafka requests.",
    )
    max_connections: int = Field(
        1000,
        ge=1,
        description=(
            "Maximum number of HTTP connections; the same limit holds for gRPC, Flight and Kafka each. "
            "Idle ones are closed for new ones."
        ),
    )
    request_timeout: Seconds = Field(
        30,
        gt=0,
        description="Time within which an HTTP client must send a head or small body, and a Kafka client a request.",
    )
    max_topics: int = Field(1000, ge=1, description="Maximum number of topics.")
    max_bytes: Size = Field(0, description="Total size of all topics at which appends are refused; 0 = no limit.")
    topic_defaults: TopicConfig = Field(default_factory=TopicConfig, description="settings of every topic")

    @property
    def addresses(self) -> dict[str, str]:
        """Listening addresses by key; servers that are off are omitted."""
        servers = {"grpc": self.grpc, "http": self.http, "flight": self.flight, "kafka": self.kafka}
        return {f"log.{name}": address for name, address in servers.items() if address}

    @field_validator("kafka")
    @classmethod
    def _has_kio(cls, kafka: str) -> str:
        if kafka and importlib.util.find_spec("kio") is None:
            raise ValueError("kafka needs kio: pip install 'penstock-pipe[kafka]'")
        return kafka
