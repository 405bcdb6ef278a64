"""Reads a topic over Arrow Flight: batches as the log stores them, several times as fast as over gRPC."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from penstock.client.log.connection import OPTIONS, Endpoint
from penstock.client.log.types import Start
from penstock.errors import PenstockError

FLIGHT_OPTIONS = [(name, value) for name, value in OPTIONS if "backoff" in name or "proxy" in name]
"""A restarted server is reached within a second, and without the environment's proxy, as over gRPC."""


class Gone(PenstockError):
    """The stream ended early, or the Flight server is missing or refuses; the caller continues over gRPC."""


def flight_client(link: Endpoint) -> Any:
    """Return a client of the Flight server; pass ``call_options`` with each call. Raises OSError for a bad file."""
    # Imported here: only reads over Flight need it.
    from pyarrow import flight

    scheme = "grpc+tls" if link.tls else "grpc"
    return flight.connect(f"{scheme}://{link.flight}", generic_options=FLIGHT_OPTIONS, **_tls(link))


def call_options(link: Endpoint, timeout: float | None = None) -> Any:
    """Return the credentials for a call; ``timeout`` in seconds, for the whole call."""
    from pyarrow import flight

    headers = [(name.encode(), value.encode()) for name, value in link.metadata]
    return flight.FlightCallOptions(timeout=timeout, headers=headers)  # type: ignore[arg-type]  # the stub says texts


def flight_batches(
    link: Endpoint, topic: str, start: Start, end: int | None, filter: str | None, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the batches in [start, end). Raises Gone."""
    try:
        with flight_client(link) as client:
            for chunk in client.do_get(flight_ticket(topic, start, end, filter, columns), call_options(link)):
                yield chunk.data
    except (pa.ArrowException, OSError, KeyError) as error:
        # pyarrow maps the status codes of Flight to these exceptions.
        raise Gone(str(error)) from error


def flight_ticket(topic: str, start: Start, end: int | None, filter: str | None, columns: Sequence[str]) -> Any:
    """Return a ticket for the rows of [start, end) that match the filter."""
    from pyarrow import flight

    begin = start.astimezone(UTC).isoformat() if isinstance(start, datetime) else start
    arguments = {"topic": topic, "from": begin, "to": end, "filter": filter, "columns": list(columns)}
    fields = {name: argument for name, argument in arguments.items() if argument is not None}
    return flight.Ticket(json.dumps(fields).encode())


def _tls(link: Endpoint) -> dict[str, Any]:
    if link.tls is None:
        return {}
    ca, cert, key = link.pem
    options = {"tls_root_certs": ca, "cert_chain": cert, "private_key": key, "override_hostname": link.tls.name}
    return {name: option for name, option in options.items() if option}
