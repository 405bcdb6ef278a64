"""The root of the configuration: all sections, and the checks that concern several of them."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

from pydantic import Field, field_validator, model_validator

from penstock.config.default_listeners import default_listener_tables
from penstock.config.keys.alarms import AlarmsConfig
from penstock.config.keys.console import DEFAULT_ADDRESS, ConsoleConfig
from penstock.config.keys.export import ExportConfig
from penstock.config.keys.handlers import KafkaHandler
from penstock.config.keys.listeners import BufferConfig, ListenerConfig
from penstock.config.keys.log import LogConfig, TopicConfig, TransactionsConfig
from penstock.config.keys.otel import OtelConfig
from penstock.config.keys.pipeline import PipelineConfig
from penstock.config.keys.relay import RelayConfig
from penstock.config.keys.security.servers import SecurityConfig, check_console, check_exposure, is_loopback
from penstock.config.keys.sql import SqlConfig
from penstock.config.keys.values import Seconds, Section, TopicName
from penstock.config.syntax.tables_url import TablesPlace, TablesUrl, is_url
from penstock.config.units import overlap, split_address


class Settings(Section):
    """The settings of one Penstock: its sections and the keys outside of sections."""

    data_dir: Path = Field(Path("penstock-data"), description="Folder of all data.")
    shutdown_time: Seconds = Field(10.0, description="Time until processes that do not stop are killed.")
    log: LogConfig = Field(default_factory=LogConfig)
    topic: dict[TopicName, TopicConfig] = Field(default_factory=dict, description="Settings of single topics.")
    transactions: TransactionsConfig = Field(default_factory=TransactionsConfig)
    buffer: BufferConfig = Field(default_factory=BufferConfig)
    listener: tuple[ListenerConfig, ...] = Field(default_factory=lambda: default_listeners())
    relay: tuple[RelayConfig, ...] = Field((), description="Copies of topics to other Penstocks.")
    security: SecurityConfig = Field(default_factory=SecurityConfig)
    pipeline: PipelineConfig = Field(default_factory=PipelineConfig)
    export: tuple[ExportConfig, ...] = Field((), description="Copies of tables in databases and other Delta tables.")
    console: ConsoleConfig = Field(default_factory=ConsoleConfig)
    sql: SqlConfig = Field(default_factory=SqlConfig)
    otel: OtelConfig = Field(default_factory=OtelConfig)
    alarms: AlarmsConfig = Field(default_factory=AlarmsConfig)

    @field_validator("data_dir", mode="before")
    @classmethod
    def _check_data_dir(cls, folder: object) -> object:
        # An empty variable of a template would otherwise mean the current folder.
        if folder == "":
            raise ValueError("is empty: name a folder")
        return folder

    @field_validator("listener")
    @classmethod
    def _expand_receivers(cls, listeners: tuple[ListenerConfig, ...]) -> tuple[ListenerConfig, ...]:
        """Add a listener for each further receiver of a shared port; dumped settings contain them already."""
        by_name: dict[str, ListenerConfig] = {}
        extra_names: set[str] = set()
        for listener in listeners:
            # A child process receives dumped settings: the copies in them are recognised and not added again.
            if listener.name in extra_names and by_name[listener.name] == listener:
                continue
            names = [listener.receiver_name(number) for number in range(1, listener.receivers + 1)]
            if twice := by_name.keys() & names:
                raise ValueError(f"two listeners have the name {min(twice)!r}")
            same_port = [
                other.name for other in by_name.values() if other.listening_address == listener.listening_address
            ]
            if same_port and listener.receivers > 1:
                raise ValueError(f"listeners {same_port[0]!r} and {listener.name!r} have the same port")
            by_name |= {name: listener.model_copy(update={"name": name}) for name in names}
            extra_names.update(names[1:])
        return tuple(by_name.values())

    @field_validator("relay")
    @classmethod
    def _check_relay_names(cls, relays: tuple[RelayConfig, ...]) -> tuple[RelayConfig, ...]:
        names = [relay.name for relay in relays]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"two relays have the name {min(twice)!r}")
        return relays

    @field_validator("export")
    @classmethod
    def _check_exports(cls, exports: tuple[ExportConfig, ...]) -> tuple[ExportConfig, ...]:
        names = [export.name for export in exports]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"two exports have the name {min(twice)!r}")
        targets = [(export.to, export.target_table) for export in exports]
        if same := [export.name for export in exports if targets.count((export.to, export.target_table)) > 1]:
            raise ValueError(f"exports {same[0]!r} and {same[1]!r} have the same target")
        return exports

    @model_validator(mode="after")
    def _check_loops(self) -> Settings:
        for relay in self.relay:
            if relay.topic and _leads_to(relay.to, self.log.grpc) and (relay.to_topic or relay.topic[0]) in relay.topic:
                raise ValueError(f"relay.{relay.name}.to is this Penstock, and the topic would be copied into itself")
        return self

    @model_validator(mode="after")
    def _check_hosts_of_kafka(self) -> Settings:
        for relay in (relay for relay in self.relay if relay.kafka):
            for listener in self.listener:
                handlers = [h for h in listener.forwarded if isinstance(h, KafkaHandler) and h.origin_header]
                if len(handlers) > 1:
                    raise ValueError(f"relay.{relay.name}.kafka: listener {listener.name} has two origin_header")
                if handlers and handlers[0].host_name != relay.host_name:
                    raise ValueError(
                        f"relay.{relay.name}.host is {relay.host_name}, and the handler of listener {listener.name} "
                        f"names the host {handlers[0].host_name}"
                    )
        return self

    @model_validator(mode="after")
    def _check_addresses(self) -> Settings:
        for (first_key, first_address), (key, address) in combinations(self.servers.items(), 2):
            if overlap(split_address(first_address), split_address(address)):
                raise ValueError(f"{key}: {address} is the address of {first_key}: choose another port")
        return self

    @model_validator(mode="after")
    def _check_exposure(self) -> Settings:
        check_exposure({**self.log.addresses, **self.sql.addresses}, self.security)
        check_console(self.console, self.security)
        return self

    @property
    def servers(self) -> dict[str, str]:
        """Listening addresses of all servers by key, without listeners; servers that are off are omitted, and so is
        the console at its default address: most commands start none (``listener_checks.check_console_address``).
        """
        console = {"console.http": self.console.http} if self.console.http != DEFAULT_ADDRESS else {}
        return {**self.log.addresses, **self.sql.addresses, **console}

    @property
    def tables(self) -> TablesPlace:
        """The folder of the tables, or their URL."""
        location = self.pipeline.tables
        if is_url(location):
            return TablesUrl.with_state_in(location, self.data_dir, self.pipeline.storage_options)
        return Path(location) if location else self.data_dir / "tables"

    @property
    def export_states(self) -> Path:
        """The folder of the state of exports, which the pipeline writes."""
        return self._pipeline_state / "exports"

    @property
    def contracts(self) -> Path:
        """The file of counted violations of contracts, which the pipeline writes."""
        return self._pipeline_state / "contracts.json"

    @property
    def landing_failure(self) -> Path:
        """The page of the failure for which nothing lands, which the pipeline writes."""
        return self._pipeline_state / "landed.failure"

    @property
    def _pipeline_state(self) -> Path:
        tables = self.tables
        return (tables.state if isinstance(tables, TablesUrl) else tables) / "_checkpoints"

    @property
    def audits(self) -> Path:
        """The folder of the recorded checks of audits."""
        return self.data_dir / "audits"

    @property
    def topics(self) -> Path:
        """The folder of the topics."""
        return self.data_dir / "topics"

    @property
    def buffers(self) -> Path:
        """The folder of the log buffers."""
        return self.data_dir / "buffers"


def default_listeners() -> tuple[ListenerConfig, ...]:
    """Return the listeners of ``penstock up`` without a file."""
    return tuple(ListenerConfig.model_validate(listener) for listener in default_listener_tables())


def _leads_to(address: str, listening: str) -> bool:
    """Report whether an address surely is the listening one; names are not resolved."""
    (host, port), (own_host, own_port) = split_address(address), split_address(listening)
    same = host == own_host or {host, own_host} == {"localhost", "127.0.0.1"}
    return port == own_port and (same or (own_host in ("0.0.0.0", "::") and is_loopback(address)))
