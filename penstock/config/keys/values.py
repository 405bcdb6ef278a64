"""Types of values, and what a group of keys is."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from penstock.errors import PenstockError

NAME_PATTERN = r"^[a-z0-9_\-.]+$"
SIZE_UNITS = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "KB": 10**3, "MB": 10**6, "GB": 10**9}
TIME_UNITS = {"us": 1e-6, "ms": 1e-3, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class ConfigError(PenstockError, ValueError):
    """The configuration cannot be used; the text has one line for each bad key."""


def parse_size(value: object) -> object:
    """Bytes of "16MiB", "4 KiB", "1MB" or a plain number. Raises ValueError."""
    if isinstance(value, bool):
        raise ValueError("true and false are no sizes")
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"\s*(\d+)\s*([A-Za-z]*)\s*", value)
    if not match or match[2].upper() not in SIZE_UNITS:
        raise ValueError(f"{value!r} is not a size such as 16MiB")
    return int(match[1]) * SIZE_UNITS[match[2].upper()]


def parse_time(value: object) -> object:
    """Seconds of "10s", "5m", "6h", "7d", "250ms" or a plain number. Raises ValueError."""
    if isinstance(value, bool):
        raise ValueError("true and false are no times")
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", value)
    if not match or match[2] not in TIME_UNITS:
        raise ValueError(f"{value!r} is not a time such as 10s, 5m or 7d")
    return float(match[1]) * TIME_UNITS[match[2]]


def _check_address(value: str) -> str:
    host, _, port = value.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{value!r} is not an address such as 127.0.0.1:8844")
    return value


def split_address(value: str) -> tuple[str, int]:
    """Host and port of a checked ``host:port``."""
    host, _, port = value.rpartition(":")
    return host.strip("[]"), int(port)


def _check_topic(value: str) -> str:
    if value in (".", "..") or value.startswith("_"):
        raise ValueError(f"{value!r} cannot be a topic of your own")
    return value


def _check_network(value: str) -> str:
    ipaddress.ip_network(value)
    return value


Size = Annotated[int, BeforeValidator(parse_size), Field(ge=0)]
Seconds = Annotated[float, BeforeValidator(parse_time), Field(ge=0)]
Address = Annotated[str, AfterValidator(_check_address)]
AddressOrOff = Annotated[str, AfterValidator(lambda value: _check_address(value) if value else value)]
Port = Annotated[int, Field(ge=0, le=65535)]
TopicName = Annotated[str, Field(pattern=NAME_PATTERN, max_length=200)]
OwnTopic = Annotated[TopicName, AfterValidator(_check_topic)]
Network = Annotated[str, AfterValidator(_check_network)]


class Section(BaseModel):
    """A group of keys: immutable, unknown keys refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)
