"""The answer to a Produce of one batch that is stored: kio makes it once, from then on only the numbers are new."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache

from penstock.server.kafka.schema.messages import Api, Parts, Request, encode_answer

# Numbers with bytes that no topic's name has.
_OFFSET, _MILLIS = 0x0102030405060708, 0x010203040506


@dataclass(frozen=True, slots=True)
class _Form:
    size: int
    before: bytes
    between: bytes
    behind: bytes


def stored_answer(request: Request, topic: str, offset: int, millis: int) -> Parts:
    """The frame that says so: the batch is in partition 0 from ``offset`` on, with a time in milliseconds."""
    form = _form(request.version, topic)
    numbers = struct.pack(">ii", form.size, request.correlation), struct.pack(">q", offset), struct.pack(">q", millis)
    return [b"".join((numbers[0], form.before, numbers[1], form.between, numbers[2], form.behind))]


@lru_cache(1024)
def _form(version: int, topic: str) -> _Form:
    """What stands around the numbers."""
    part = {"index": 0, "base_offset": _OFFSET, "log_append_time": _MILLIS, "log_start_offset": 0}
    values = {"responses": [{"name": topic, "partition_responses": [part]}]}
    (whole,) = encode_answer(Request(Api.PRODUCE, version, 0, "", None), values)
    before, rest = bytes(whole).split(struct.pack(">q", _OFFSET))
    between, behind = rest.split(struct.pack(">q", _MILLIS))
    return _Form(len(whole) - 4, before[8:], between, behind)
