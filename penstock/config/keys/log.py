"""Keys of the log daemon and its topics."""

from __future__ import annotations

import importlib.util
from typing import Literal

from pydantic import Field, field_validator

from penstock.config.keys.values import Address, AddressOrOff, Seconds, Section, Size


class TopicConfig(Section):
    """Settings of one topic."""

    message_size_limit: Size = Field(16 << 20, ge=1, description="largest payload of one message")
    segment_size_limit: Size = Field(16 << 20, ge=1, description="a segment is closed at this size")
    rotate_after: Seconds = Field(6 * 3600, description="a segment is closed when its oldest entry is this old")
    stale_after: Seconds = Field(7 * 86400, description="a segment is dropped when its newest entry is this old")
    retain_bytes: Size = Field(0, description="older segments are dropped when a topic is larger; 0 = no limit")
    retention_policy: Literal["expire", "keep"] = Field(
        "expire", description="keep = never drop what a named cursor has not passed"
    )
    durability: Literal["received", "written", "synced"] = Field("synced", description="what an answer promises")
    compression: Literal["none", "zstd"] = Field("none", description="of segments that are closed")
    readers: tuple[str, ...] = Field(("*",), description="names of the tokens that may read; * = anybody")
    writers: tuple[str, ...] = Field(("*",), description="names of the tokens that may write; * = anybody")


class TransactionsConfig(Section):
    """Transactions and producers."""

    timeout: Seconds = Field(60, gt=0, description="a transaction that is open for longer is aborted")
    max_size: Size = Field(64 << 20, ge=1, description="largest size of one transaction's entries")
    max_open: int = Field(1000, ge=1, description="most transactions that may be open at once")
    max_open_per_token: int = Field(100, ge=1, description="most of them that one token may have")
    producer_memory: Seconds = Field(86400, description="how long the sequence numbers of producers are remembered")


class LogConfig(Section):
    """The log daemon."""

    grpc: Address = Field("127.0.0.1:8845", description="address of the gRPC server")
    http: Address = Field("127.0.0.1:8844", description="address of the HTTP server")
    flight: AddressOrOff = Field(
        "", description='address of the Arrow Flight server, by which Spark on other machines reads topics; "" = off'
    )
    kafka: AddressOrOff = Field("", description='address at which clients of Kafka are served; "" = off')
    kafka_advertised: AddressOrOff = Field(
        "", description='the address that clients of Kafka are told to connect to; "" = where they came'
    )
    max_bodies: Size = Field(
        256 << 20,
        ge=1,
        description="most bytes of HTTP requests' bodies under way at once; of Kafka's requests as many",
    )
    max_connections: int = Field(
        1000, ge=1, description="most connections of HTTP clients at once; of gRPC's, Flight's and Kafka's as many each"
    )
    request_timeout: Seconds = Field(
        30, gt=0, description="how long a client of HTTP may take for a head or small body, one of Kafka for a request"
    )
    max_topics: int = Field(1000, ge=1, description="most topics there may be")
    max_bytes: Size = Field(0, description="appends are refused when all topics together are larger; 0 = no limit")
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
