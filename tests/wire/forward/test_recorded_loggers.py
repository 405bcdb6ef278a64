"""Three orders each as fluent-logger of Go and of Node sent them, with acknowledgements, byte by byte."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import msgpack
import pytest

from penstock.wire.forward.codec import ForwardDecoder
from penstock.wire.forward.splitter import ForwardSplitter

RECORDED = json.loads((Path(__file__).parents[1] / "vectors" / "forward_loggers.json").read_text())
EXPECTED_TIME = "2026-11-22T17:36:40.123456789Z"


@pytest.mark.parametrize("sent", RECORDED, ids=lambda sent: sent["sender"])
@pytest.mark.parametrize("size", [1, 1 << 16], ids=["byte by byte", "at once"])
def test_each_record_is_stored_once_with_its_own_id(sent: dict[str, str], size: int) -> None:
    data, splitter = base64.b64decode(sent["body"]), ForwardSplitter(10_000, 1 << 20)
    rows = []
    for begin in range(0, len(data), size):
        lines = splitter.feed(data[begin : begin + size])
        rows += ForwardDecoder().decode_lines(lines.lines).body.to_pylist()
    records = [json.loads(row["payload"]) for row in rows]
    assert records == [{"order": n, "note": "grüße", "lines": ["x"]} for n in range(3)]
    annotations = [dict(row["annotations"]) for row in rows]
    assert len({each.pop("uuid") for each in annotations}) == 3
    assert annotations == [{"tag": "shop.orders", "timestamp": EXPECTED_TIME}] * 3
    chunks = [msgpack.unpackb(each)["ack"] for each in splitter.acknowledgements]
    assert len(chunks) == len(set(chunks)) == (3 if sent["sender"].endswith(("1.10.2", "Message")) else 1)
