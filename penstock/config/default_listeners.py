"""The listeners of a pipe without a configuration file."""

from __future__ import annotations

from typing import Any, Literal

Protocol = Literal["udp", "tcp", "http", "otlp_grpc", "unix_datagram", "unix_stream"]
"""Protocols of senders."""


def default_listener_tables() -> list[dict[str, Any]]:
    """Return the tables of ``default_listeners`` as TOML would give them."""
    ports = {"events": (23456, "plog"), "syslog": (5514, "syslog")}
    return [
        {
            "name": f"{topic}-{protocol}",
            "protocol": protocol,
            "port": port,
            "codec": codec,
            "handlers": [{"type": "log", "topic": topic}],
        }
        for topic, (port, codec) in ports.items()
        for protocol in ("udp", "tcp")
    ]
