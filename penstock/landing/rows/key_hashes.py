"""What an event is known by: its topic and its uuid, as 128 bits of MD5, made from whole columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.landing.rows.engine import compute

Halves = np.ndarray[tuple[int], np.dtype[np.uint64]]
_HASH = {"hash": "md5_number('u:' || topic || ':' || uuid)"}
_HALVES = {"high": "(hash >> 64)::UBIGINT", "low": "(hash & 18446744073709551615::UHUGEINT)::UBIGINT"}


def key_hashes(topics: pa.Array[Any], uuids: pa.Array[Any]) -> tuple[Halves, Halves]:
    """The upper and lower halves of the key of each topic (of Kafka: without its partition) and uuid; no nulls."""
    found = compute(_HALVES, _HASH, topic=topics, uuid=uuids)
    return found["high"].to_numpy(), found["low"].to_numpy()
