"""Keys of exports: copies of views and typed tables in databases and other Delta tables."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, field_validator, model_validator

from penstock.config.keys.values import NAME_PATTERN, Seconds, Section
from penstock.config.syntax.tables_url import SCHEMES, check_place
from penstock.files.secret_files import read_secret

SOURCE = r"^(landed|events|syslog|messages|quarantine|events_[a-z][a-z0-9_]{0,63})$"
TABLE = r"^([A-Za-z_][A-Za-z0-9_]{0,62}(\.[A-Za-z_][A-Za-z0-9_]{0,62})?)?$"
POSTGRESQL, CLICKHOUSE, DUCKDB = ("postgresql", "postgres"), ("clickhouse", "clickhouses", "chdb"), ("duckdb",)
DELTA = ("delta", *SCHEMES)
_DRIVERS: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(POSTGRESQL, ("psycopg", "export-postgresql")),
    **dict.fromkeys(CLICKHOUSE, ("clickhouse_connect", "export-clickhouse")),
}
"""Module and extra of each scheme that needs more than Penstock's own dependencies."""
Option = Annotated[str, BeforeValidator(lambda value: str(value).lower() if isinstance(value, bool) else str(value))]


class ExportConfig(Section):
    """A view or typed table that is copied, each row once, into a table of a database or another Delta table."""

    name: str = Field(pattern=NAME_PATTERN, max_length=64, description="Name in the log, in alarms and in the target.")
    source: str = Field("events", pattern=SOURCE, description="View (landed, events, ...) or typed table to copy.")
    to: str = Field(
        description=(
            "Address of the target, without a password: postgresql://USER@HOST/DATABASE, clickhouse://USER@HOST:8123/"
            "DATABASE (clickhouses: with TLS), duckdb:/FILE, delta:/FOLDER, or s3://, gs://, abfss:// for Delta."
        )
    )
    table: str = Field("", pattern=TABLE, description="Table in the database, or SCHEMA.TABLE; default: the source.")
    every: Seconds = Field(10.0, ge=1, description="Time between two steps.")
    retention: bool = Field(True, description="Also delete rows that pipeline.retention removes.")
    password_file: Path | None = Field(None, description="File of the password.")
    password_env: str = Field("", description="Environment variable with the password.")
    options: dict[str, Option] = Field(
        default_factory=dict, description="Options of delta-rs for a Delta table in an object store."
    )

    @property
    def scheme(self) -> str:
        """The kind of the target."""
        return self.to.partition(":")[0]

    @property
    def target_table(self) -> str:
        """The name of the table in a database."""
        return self.table or self.source

    @property
    def path(self) -> str:
        """Path of a target in a file or folder."""
        path = self.to.partition(":")[2]
        # Both duckdb:/srv/copy.duckdb and duckdb:///srv/copy.duckdb.
        return path.removeprefix("//") if path.startswith("//") else path

    def password(self) -> str:
        """Return the password; "" for none. Raises OSError, UnsafeFile, KeyError (variable)."""
        if self.password_file is not None:
            return read_secret(self.password_file).decode().strip()
        return os.environ[self.password_env] if self.password_env else ""

    @field_validator("to")
    @classmethod
    def _check_target(cls, to: str) -> str:
        # The texts do not repeat the address: it may contain a password, and errors reach logs.
        scheme = to.partition(":")[0] if ":" in to else ""
        if scheme not in (*POSTGRESQL, *CLICKHOUSE, *DUCKDB, *DELTA):
            raise ValueError("is not a target: postgresql://, clickhouse://, duckdb:/FILE, delta:/FOLDER or s3://")
        if scheme in SCHEMES:
            return check_place(to)
        try:
            parts = urlsplit(to)
            has_password = bool(parts.password) or "password" in parts.query.lower()
        except ValueError:
            raise ValueError("is not an address") from None
        if has_password:
            raise ValueError("has a password: use password_file or password_env")
        if scheme in (*POSTGRESQL, "clickhouse", "clickhouses") and not to.startswith(f"{scheme}://"):
            raise ValueError(f"is not an address: {scheme}://USER@HOST/DATABASE")
        if scheme in (*DUCKDB, "delta", "chdb") and not to.partition(":")[2].strip("/"):
            raise ValueError(f"names no path: {scheme}:/PATH")
        if scheme in _DRIVERS and importlib.util.find_spec(_DRIVERS[scheme][0]) is None:
            raise ValueError(f"{scheme} needs a driver: pip install 'penstock-pipe[{_DRIVERS[scheme][1]}]'")
        return to

    @model_validator(mode="after")
    def _check_keys(self) -> ExportConfig:
        if self.password_file and self.password_env:
            raise ValueError("one of password_file and password_env is enough")
        if (self.password_file or self.password_env) and self.scheme in (*DUCKDB, *DELTA, "chdb"):
            raise ValueError("a password is for PostgreSQL and ClickHouse")
        if self.options and self.scheme not in SCHEMES:
            raise ValueError("options are for a Delta table in an object store")
        if self.table and self.scheme in DELTA:
            raise ValueError("table is for databases: a Delta table is named by its address")
        return self
