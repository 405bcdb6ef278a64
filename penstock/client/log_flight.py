"""Reading a topic over Arrow Flight: batches as they lie in the log, several times as fast as over gRPC."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from penstock.client.log_link import Link
from penstock.client.log_types import Start


class Gone(Exception):
    """The stream ended early, or there is no Flight server, or it refuses: gRPC goes on, or tells why."""


def flight_batches(
    link: Link, topic: str, start: Start, end: int | None, filter: str | None, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The batches in [start, end). Raises Gone."""
    from pyarrow import flight  # only who reads over it needs it

    try:
        with flight.connect(
            f"grpc+tls://{link.flight}" if link.tls else f"grpc://{link.flight}", **_tls(link)
        ) as client:
            headers = [(name.encode(), value.encode()) for name, value in link.metadata]
            ticket = flight.Ticket(_ticket(topic, start, end, filter, columns))
            for chunk in client.do_get(ticket, flight.FlightCallOptions(headers=headers)):
                yield chunk.data
    except (pa.ArrowException, OSError, KeyError) as error:  # what pyarrow makes of Flight's errors
        raise Gone(str(error)) from error


def _ticket(topic: str, start: Start, end: int | None, filter: str | None, columns: Sequence[str]) -> bytes:
    asked = start.astimezone(UTC).isoformat() if isinstance(start, datetime) else start
    given = {"topic": topic, "from": asked, "to": end, "filter": filter, "columns": list(columns)}
    return json.dumps({name: value for name, value in given.items() if value is not None}).encode()


def _tls(link: Link) -> dict[str, Any]:
    if link.tls is None:
        return {}
    ca, cert, key = link.pem
    given = {"tls_root_certs": ca, "cert_chain": cert, "private_key": key, "override_hostname": link.tls.name}
    return {name: value for name, value in given.items() if value}
