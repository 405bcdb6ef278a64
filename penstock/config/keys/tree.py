"""The whole tree."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, model_validator

from penstock.config.default_listeners import default_listener_tables
from penstock.config.keys.console import ConsoleConfig
from penstock.config.keys.listeners import BufferConfig, ListenerConfig
from penstock.config.keys.log import LogConfig, TopicConfig, TransactionsConfig
from penstock.config.keys.otel import OtelConfig
from penstock.config.keys.pipeline import PipelineConfig
from penstock.config.keys.security import SecurityConfig, check_console, check_exposure
from penstock.config.keys.values import Seconds, Section, TopicName


class Settings(Section):
    """All settings."""

    data_dir: Path = Field(Path("penstock-data"), description="where everything is kept")
    shutdown_time: Seconds = Field(10.0, description="how long a stop may take before processes are killed")
    log: LogConfig = Field(default_factory=LogConfig)
    topic: dict[TopicName, TopicConfig] = Field(default_factory=dict, description="settings of single topics")
    transactions: TransactionsConfig = Field(default_factory=TransactionsConfig)
    buffer: BufferConfig = Field(default_factory=BufferConfig)
    listener: tuple[ListenerConfig, ...] = Field(default_factory=lambda: default_listeners())
    security: SecurityConfig = Field(default_factory=SecurityConfig)
    pipeline: PipelineConfig = Field(default_factory=PipelineConfig)
    console: ConsoleConfig = Field(default_factory=ConsoleConfig)
    otel: OtelConfig = Field(default_factory=OtelConfig)

    @model_validator(mode="after")
    def _names_differ(self) -> Settings:
        names = [listener.name for listener in self.listener]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"two listeners have the name {min(twice)!r}")
        return self

    @model_validator(mode="after")
    def _not_exposed(self) -> Settings:
        addresses = {"log.grpc": self.log.grpc, "log.http": self.log.http, "log.flight": self.log.flight}
        check_exposure(addresses, self.security)
        check_console(self.console.http, self.security)
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
    return tuple(ListenerConfig.model_validate(listener) for listener in default_listener_tables())
