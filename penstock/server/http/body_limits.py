"""Refusals of clients by limits (``process.servers.http_limits``), as answers and as metrics."""

from __future__ import annotations

from penstock.process.servers.http_limits import BODY, CHUNKS, CONNECTION, SLOW, BodyTooSlow, HttpLimits, TinyChunks
from penstock.server.metrics.prometheus import Family
from penstock.slogd.errors import ApiError, Busy, TooLong, TooSlow


def refused_family(limits: HttpLimits) -> Family:
    """Return the refusals as a metric."""
    samples = [({"reason": reason}, limits.refused[reason]) for reason in (CONNECTION, BODY, SLOW, CHUNKS)]
    return Family("penstock_http_refused_total", "counter", "What HTTP clients were refused, by reason", samples)


def closed_family(limits: HttpLimits) -> Family:
    """Return the connections of gRPC and Flight that were closed for new ones, as a metric."""
    samples = [
        ({"protocol": protocol, "reason": CONNECTION}, limit.closed)
        for protocol, limit in sorted(limits.rpc_connections.items())
    ]
    return Family("penstock_rpc_closed_total", "counter", "Connections closed by protocol and reason", samples)


def api_error(error: Exception) -> ApiError:
    """Translate BodyTooSlow, TinyChunks and TooManyBodies into the API's errors."""
    if isinstance(error, TinyChunks):
        return TooLong(str(error))
    return TooSlow(str(error)) if isinstance(error, BodyTooSlow) else Busy(str(error))
