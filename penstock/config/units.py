"""Parsing of sizes, times and addresses, and the error of a configuration; without pydantic, for fast commands."""

from __future__ import annotations

import re

from penstock.errors import PenstockError

SIZE_UNITS = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "KB": 10**3, "MB": 10**6, "GB": 10**9}
TIME_UNITS = {"us": 1e-6, "ms": 1e-3, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class ConfigError(PenstockError, ValueError):
    """A configuration that cannot be used; the text has one line for each bad key."""


def parse_size(value: object) -> object:
    """Return the bytes of "16MiB", "4 KiB", "1MB" or a plain number. Raises ValueError."""
    if isinstance(value, bool):
        raise ValueError("true and false are not sizes")
    if not isinstance(value, str):
        return value
    # Other types pass through: pydantic reports them in its own words.
    match = re.fullmatch(r"\s*(\d+)\s*([A-Za-z]*)\s*", value)
    if not match or match[2].upper() not in SIZE_UNITS:
        raise ValueError(f"{value!r} is not a size such as 16MiB")
    return int(match[1]) * SIZE_UNITS[match[2].upper()]


def parse_time(value: object) -> object:
    """Return the seconds of "10s", "5m", "6h", "7d", "250ms" or a plain number. Raises ValueError."""
    if isinstance(value, bool):
        raise ValueError("true and false are not times")
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", value)
    if not match or match[2] not in TIME_UNITS:
        raise ValueError(f"{value!r} is not a time such as 10s, 5m or 7d")
    return float(match[1]) * TIME_UNITS[match[2]]


def check_address(value: str) -> str:
    """Return ``value`` if it is a ``host:port``. Raises ValueError."""
    host, _, port = value.rpartition(":")
    is_whole = host.startswith("[") == host.endswith("]") and not re.search(r"[/\s]", host)
    if not (host and is_whole) or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{value!r} is not an address such as 127.0.0.1:8844")
    return value


def split_address(value: str) -> tuple[str, int]:
    """Return host and port of a checked ``host:port``."""
    host, _, port = value.rpartition(":")
    return host.strip("[]"), int(port)


def overlap(address: tuple[str, int], other: tuple[str, int]) -> bool:
    """Report whether two servers cannot listen on these hosts and ports at once; other names are not resolved."""
    hosts = {"127.0.0.1" if host == "localhost" else host for host in (address[0], other[0])}
    # A wildcard has each address of its family. Port 0 is any free one.
    wildcard = ("0.0.0.0" in hosts and not any(":" in host for host in hosts)) or (
        "::" in hosts and all(":" in host for host in hosts)
    )
    return address[1] == other[1] != 0 and (len(hosts) == 1 or wildcard)
