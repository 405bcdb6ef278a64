"""The whole tree."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator, model_validator

from penstock.config.default_listeners import default_listener_tables
from penstock.config.keys.alarms import AlarmsConfig
from penstock.config.keys.console import ConsoleConfig
from penstock.config.keys.listeners import BufferConfig, ListenerConfig
from penstock.config.keys.log import LogConfig, TopicConfig, TransactionsConfig
from penstock.config.keys.otel import OtelConfig
from penstock.config.keys.pipeline import PipelineConfig
from penstock.config.keys.security import SecurityConfig, check_console, check_exposure
from penstock.config.keys.values import Seconds, Section, TopicName
from penstock.config.tables_url import TablesPlace, TablesUrl, is_url


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
    alarms: AlarmsConfig = Field(default_factory=AlarmsConfig)

    @field_validator("listener")
    @classmethod
    def _one_for_each_receiver(cls, listeners: tuple[ListenerConfig, ...]) -> tuple[ListenerConfig, ...]:
        """Those of a port that several share are there already in what was written out."""
        found: dict[str, ListenerConfig] = {}
        fellows: set[str] = set()
        for one in listeners:
            if one.name in fellows and found[one.name] == one:
                continue
            names = [one.fellow(number) for number in range(1, one.receivers + 1)]
            if twice := found.keys() & names:
                raise ValueError(f"two listeners have the name {min(twice)!r}")
            if other := next((o.name for o in found.values() if one.receivers > 1 and o.place == one.place), None):
                raise ValueError(f"listeners {other!r} and {one.name!r} have the same port")
            found |= {name: one.model_copy(update={"name": name}) for name in names}
            fellows.update(names[1:])
        return tuple(found.values())

    @model_validator(mode="after")
    def _not_exposed(self) -> Settings:
        check_exposure(self.log.addresses, self.security)
        check_console(self.console.http, self.security)
        return self

    @property
    def tables(self) -> TablesPlace:
        """The folder of the tables, or their URL."""
        given = self.pipeline.tables
        if is_url(given):
            return TablesUrl.beside(given, self.data_dir, self.pipeline.storage_options)
        return Path(given) if given else self.data_dir / "tables"

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
