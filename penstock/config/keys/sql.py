"""Keys of the SQL servers."""

from __future__ import annotations

import importlib.util

from pydantic import Field, field_validator

from penstock.config.keys.values import AddressOrOff, Seconds, Section, Size


class SqlConfig(Section):
    """SQL over the tables and the log for other programs."""

    postgres: AddressOrOff = Field(
        "", description='Address for clients of PostgreSQL (psql, JDBC, Grafana and others); "" = off.'
    )
    flight_sql: AddressOrOff = Field("", description='Address for clients of Arrow Flight SQL (ADBC); "" = off.')
    max_connections: int = Field(20, ge=1, le=1000, description="Maximum number of connections of clients.")
    max_queries: int = Field(4, ge=1, le=100, description="Maximum number of queries that run at once; others wait.")
    max_rows: int = Field(1_000_000, ge=1, description="Maximum number of rows of an answer; more are an error.")
    timeout: Seconds = Field(30, gt=0, description="Time limit of one query, with the fetching of its rows.")
    memory: Size = Field(2 << 30, ge=64 << 20, description="Maximum memory of one query.")

    @property
    def addresses(self) -> dict[str, str]:
        """Listening addresses by key; servers that are off are omitted."""
        servers = {"postgres": self.postgres, "flight_sql": self.flight_sql}
        return {f"sql.{name}": address for name, address in servers.items() if address}

    @field_validator("postgres", "flight_sql")
    @classmethod
    def _has_duckdb(cls, address: str) -> str:
        if address and importlib.util.find_spec("duckdb") is None:
            raise ValueError("sql needs DuckDB: pip install 'penstock-pipe[sql]'")
        return address
