"""What fluent-logger of Go and of Node sent that ask for acknowledgements: three orders each, byte by byte."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import msgpack
import pytest

from penstock.wire.forward.codec import ForwardDecoder
from penstock.wire.forward.splitter import ForwardSplitter

RECORDED = json.loads((Path(__file__).parents[1] / "vectors" / "forward_loggers.json").read_text())
AT = "2026-11-22T17:36:40.123456789Z"


@pytest.mark.parametrize("sent", RECORDED, ids=lambda sent: sent["sender"])
@pytest.mark.parametrize("size", [1, 1 << 16], ids=["byte by byte", "at once"])
def test_every_record_is_there_once_with_an_id_of_its_own(sent: dict[str, str], size: int) -> None:
    data, splitter = base64.b64decode(sent["body"]), ForwardSplitter(10_000, 1 << 20)
    found = []
    for begin in range(0, len(data), size):
        lines = splitter.feed(data[begin : begin + size])
        found += ForwardDecoder().decode_lines(lines.lines).body.to_pylist()
    records = [json.loads(row["payload"]) for row in found]
    assert records == [{"order": n, "note": "grüße", "lines": ["x"]} for n in range(3)]
    said = [dict(row["annotations"]) for row in found]
    assert len({each.pop("uuid") for each in said}) == 3
    assert said == [{"tag": "shop.orders", "timestamp": AT}] * 3
    chunks = [msgpack.unpackb(each)["ack"] for each in splitter.acknowledgements]
    assert len(chunks) == len(set(chunks)) == (3 if sent["sender"].endswith(("1.10.2", "Message")) else 1)
