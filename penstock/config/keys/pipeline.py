"""Keys of the pipeline."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from penstock.config.keys.secrets import SECRET, check_kafka_secrets
from penstock.config.keys.typed import TypedConfig
from penstock.config.keys.values import AddressOrOff, Seconds, Section, Size
from penstock.config.syntax.json_path import check_path, parse_path
from penstock.config.syntax.spark_ddl import check_ddl
from penstock.config.syntax.tables_url import UNSAFE_RENAME_OPTION, check_place, is_url
from penstock.files.secret_files import read_secret

FUNCTION = r"[A-Za-z_][\w.]*:[A-Za-z_]\w*"
KINDS = ("event", "syslog", "message", "quarantine", "dropped")
Option = Annotated[str, BeforeValidator(lambda value: str(value).lower() if isinstance(value, bool) else str(value))]
Place = Annotated[str, BeforeValidator(lambda value: str(value or "")), AfterValidator(check_place)]


class RedactConfig(Section):
    """Redaction of messages before they land: in payload, ``data`` and all columns derived from them."""

    patterns: tuple[str, ...] = Field((), description="Regular expressions (RE2) of texts to replace, in every column.")
    replacement: str = Field("***", pattern=r'^[^"\\]*$', description="Replacement of matches.")
    hash: tuple[Annotated[str, AfterValidator(check_path)], ...] = Field(
        (), description="Paths of fields of events that are replaced by a keyed hash, such as host or data.user.id."
    )
    salt_file: Path | None = Field(None, description="File of the key of the hashes.")
    salt_env: str = Field("", description="Environment variable with the key of the hashes.")

    @model_validator(mode="after")
    def _fields_can_be_hashed(self) -> RedactConfig:
        for field in self.hash:
            # Duplicates are recognised by these fields, so a changed field would land as a new event.
            if parse_path(field)[0] in ("type", "uuid", "timestamp"):
                raise ValueError(f"hash: {field!r} cannot be hashed: type, uuid and timestamp identify an event")
        if self.hash and bool(self.salt_file) == bool(self.salt_env):
            raise ValueError("hash needs a key: one of salt_file and salt_env")
        return self

    def secret(self) -> bytes:
        """Return the key of the hashes. Raises OSError, UnsafeFile, KeyError (variable); ValueError if it is empty."""
        if not self.hash:
            return b""
        salt = read_secret(self.salt_file).strip() if self.salt_file else os.environ[self.salt_env].encode()
        if not salt:
            raise ValueError("the key is empty")
        return salt


class IcebergConfig(Section):
    """Iceberg tables over the files of the tables, in a catalog, through PyIceberg."""

    catalog: str = Field(
        "", description='Name of the catalog, as in PyIceberg\'s configuration (~/.pyiceberg.yaml); "" = off.'
    )
    namespace: str = Field("penstock", pattern=r"^\w+(\.\w+)*$", description="Namespace of the tables in the catalog.")
    every: Seconds = Field(60.0, ge=1, description="Minimum time between two snapshots.")
    options: dict[str, Option] = Field(
        default_factory=dict,
        description="Properties of the catalog, such as type (rest, sql, hive, glue) and uri; the rest is PyIceberg's.",
    )

    @field_validator("catalog")
    @classmethod
    def _check_catalog(cls, catalog: str) -> str:
        if catalog and importlib.util.find_spec("pyiceberg") is None:
            raise ValueError("catalog needs PyIceberg: pip install 'penstock-pipe[iceberg]'")
        return catalog


def check_master(master: str) -> None:
    """Check a Spark master, because Spark's launcher reports a bad one by the stack of a Java error.

    Raises ValueError.
    """
    if master.startswith("sc://"):
        raise ValueError(
            f"{master} is a Spark Connect server, but the pipeline needs a driver of its own: name the master of the "
            "cluster (spark://HOST:PORT, yarn or k8s://...), or local[2]"
        )
    if master != "yarn" and not master.startswith(("spark://", "k8s://", "local")):
        raise ValueError(f"{master!r} is not a Spark master: local[2], spark://HOST:PORT, yarn or k8s://...")


class PipelineConfig(Section):
    """The way from topics to tables."""

    source: Literal["penstock", "kafka"] = Field(
        "penstock", description="Source of messages: penstock (the log) or kafka."
    )
    uri: AddressOrOff = Field(
        "", description="Flight server (log.flight) from which topics are read; default: the folder of the topics."
    )
    token: str = Field(
        "", json_schema_extra=SECRET, description="Token for that Flight server; default: the one in data_dir."
    )
    kafka: dict[str, str] = Field(default_factory=dict, description="Properties of the Kafka client (source kafka).")
    kafka_group: str = Field(
        "penstock-pipeline",
        description='Consumer group to which landed offsets of Kafka are committed, for lag tools; "" = none.',
    )
    expiry_gap: int = Field(1000, ge=1, description="Maximum number of offsets that a large message spans in Kafka.")
    topics: tuple[str, ...] = Field(("*",), description="Topics to read; * = all except internal ones.")
    tables: Place = Field("", description="Folder of the tables, or URL (s3, gs, abfss); default: data_dir/tables.")
    storage_options: dict[str, Option] = Field(
        default_factory=dict, description="Options of delta-rs for the object store, such as AWS_ENDPOINT_URL."
    )
    merge_files_every: Seconds = Field(600.0, description="Interval of merging small files; 0 = never.")
    batch_rows: int = Field(1_000_000, ge=1, description="Maximum number of messages of one batch.")
    batch_bytes: Size = Field(
        512 << 20, ge=1, description="Maximum bytes of one batch, as stored (not with source kafka)."
    )
    retention: dict[str, Seconds] = Field(
        default_factory=dict, description="Retention of rows by kind or type: event, event/click, quarantine."
    )
    target_lag: Seconds = Field(1.0, description="Time that the tables may be behind; sets Spark's trigger.")
    duplicate_window: Seconds = Field(600.0, description="Time for which uuids are kept to detect duplicates.")
    event_types: tuple[str, ...] = Field((), description="Accepted event types; empty = all.")
    schemas: dict[str, Annotated[str, AfterValidator(check_ddl)]] = Field(
        default_factory=dict, description="Schema of data by event type, in Spark's DDL."
    )
    typed: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")], TypedConfig] = Field(
        default_factory=dict, description="tables of single event types (delta), by name: click is events_click"
    )
    transform: str = Field(
        "",
        pattern=f"^$|^{FUNCTION}$",
        description=(
            "Function (module:function) that changes each batch of rows before it lands: RecordBatch to RecordBatch."
        ),
    )
    fixes: tuple[str, ...] = Field(
        (),
        description=(
            "Functions (module:function) that the console offers to repair quarantined messages: bytes to bytes."
        ),
    )
    redact: RedactConfig = Field(default_factory=RedactConfig)
    iceberg: IcebergConfig = Field(default_factory=IcebergConfig)
    keep_payload: bool = Field(True, description="Keep the raw payload of valid events.")
    proof: Literal["keys", "rows"] = Field(
        "keys",
        description=(
            "Sums by which SQL finds altered rows: keys = uuids and offsets; rows = also all other columns, "
            "for 0.8 us of CPU per event."
        ),
    )
    spark: dict[str, str | int | float | bool] = Field(
        default={"master": "local[2,3]"}, description="Properties of Spark; master selects the cluster."
    )

    @field_validator("fixes")
    @classmethod
    def _check_fixes(cls, fixes: tuple[str, ...]) -> tuple[str, ...]:
        for function in fixes:
            if not re.fullmatch(FUNCTION, function):
                raise ValueError(f"{function!r} is not module:function")
        return fixes

    @field_validator("spark")
    @classmethod
    def _check_spark(cls, spark: dict[str, str | int | float | bool]) -> dict[str, str | int | float | bool]:
        for key in ("master", "spark.master"):
            if key in spark:
                check_master(str(spark[key]))
        return spark

    @model_validator(mode="after")
    def _check_kafka(self) -> PipelineConfig:
        if self.source == "kafka" and not self.kafka.get("bootstrap.servers"):
            raise ValueError('kafka."bootstrap.servers" is missing: source = "kafka" needs it')
        check_kafka_secrets(self.kafka)
        return self

    @model_validator(mode="after")
    def _check_retention(self) -> PipelineConfig:
        for name in self.retention:
            kind, mark, event_type = name.partition("/")
            if kind not in KINDS or (mark and (kind != "event" or not event_type)):
                raise ValueError(f"retention.{name}: an age is of a kind ({', '.join(KINDS)}) or a type (event/click)")
        return self

    @model_validator(mode="after")
    def _check_tables(self) -> PipelineConfig:
        if self.storage_options and not is_url(self.tables):
            raise ValueError("storage_options are for tables at a URL")
        # delta-rs then skips the conditional put that detects a second writer.
        if any(name.lower() == UNSAFE_RENAME_OPTION for name in self.storage_options):
            raise ValueError(f"storage_options.{UNSAFE_RENAME_OPTION.upper()}: it would hide a second writer")
        return self

    @model_validator(mode="after")
    def _check_source(self) -> PipelineConfig:
        if self.uri and self.source != "penstock":
            raise ValueError(f'uri is for source = "penstock", not "{self.source}"')
        return self
