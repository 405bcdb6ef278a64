"""Types of values, and the base of all groups of keys."""

from __future__ import annotations

import ipaddress
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from penstock.config.units import check_address, parse_size, parse_time

NAME_PATTERN = r"^[a-z0-9_\-.]+$"


def _check_topic(value: str) -> str:
    # A topic is a folder; names with an underscore are internal topics such as _ledger.
    if value in (".", "..") or value.startswith("_"):
        raise ValueError(f"{value!r} is reserved for internal topics")
    return value


def _check_network(value: str) -> str:
    ipaddress.ip_network(value)
    return value


Size = Annotated[int, BeforeValidator(parse_size), Field(ge=0)]
Seconds = Annotated[float, BeforeValidator(parse_time), Field(ge=0)]
Address = Annotated[str, AfterValidator(check_address)]
AddressOrOff = Annotated[str, AfterValidator(lambda value: check_address(value) if value else value)]
Port = Annotated[int, Field(ge=0, le=65535)]
TopicName = Annotated[str, Field(pattern=NAME_PATTERN, max_length=200)]
OwnTopic = Annotated[TopicName, AfterValidator(_check_topic)]
Network = Annotated[str, AfterValidator(_check_network)]


class Section(BaseModel):
    """A group of keys: immutable, without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)
