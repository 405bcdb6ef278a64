"""Fast path for the answer to a Produce of one stored batch: kio builds it once per topic, later ones only replace
the numbers.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache

from penstock.server.kafka.schema.messages import Api, Parts, Request, encode_answer

# Placeholders: topic names have no control characters, so each occurs exactly once in the template.
_OFFSET, _MILLIS = 0x0102030405060708, 0x010203040506


@dataclass(frozen=True, slots=True)
class _Template:
    size: int
    before: bytes
    between: bytes
    after: bytes


def stored_answer(request: Request, topic: str, offset: int, millis: int) -> Parts:
    """Return the frame for a batch that is stored at ``offset`` of partition 0, with its time in milliseconds."""
    template = _template(request.version, topic)
    numbers = (
        struct.pack(">ii", template.size, request.correlation),
        struct.pack(">q", offset),
        struct.pack(">q", millis),
    )
    return [b"".join((numbers[0], template.before, numbers[1], template.between, numbers[2], template.after))]


@lru_cache(1024)
def _template(version: int, topic: str) -> _Template:
    partition = {"index": 0, "base_offset": _OFFSET, "log_append_time": _MILLIS, "log_start_offset": 0}
    values = {"responses": [{"name": topic, "partition_responses": [partition]}]}
    (frame,) = encode_answer(Request(Api.PRODUCE, version, 0, "", None), values)
    before, rest = bytes(frame).split(struct.pack(">q", _OFFSET))
    between, after = rest.split(struct.pack(">q", _MILLIS))
    # The length and the correlation number, 4 bytes each, are added per answer.
    return _Template(len(frame) - 4, before[8:], between, after)
