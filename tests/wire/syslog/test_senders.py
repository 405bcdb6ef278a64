"""Messages of real senders (recorded by ``record_syslog_senders``) arrive complete and once each."""

from __future__ import annotations

import json
import zoneinfo
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.counts import open_books
from penstock.wire.datagrams import Datagrams
from penstock.wire.framing.lines import LineSplitter
from penstock.wire.syslog.codec import SyslogDecoder
from penstock.wire.syslog.columns import syslog_columns

RECORDED = json.loads((Path(__file__).parents[1] / "vectors" / "syslog_senders.json").read_text())
SENDERS = {each["sender"]: each for each in RECORDED}
TEXTS = ["first message", "second: with a colon", "third one, grüße"]
BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")


def received(sender: dict[str, Any]) -> tuple[list[bytes], dict[str, int]]:
    """The payloads that a listener makes of what a sender sent, and the counts."""
    pieces = [piece.encode("latin-1") for piece in sender["pieces"]]
    decoder = SyslogDecoder(BERLIN, lambda: sender["received"])
    if sender["protocol"] == "udp":
        decoded = decoder.decode(Datagrams.from_bytes(pieces), 0.0)
        assert open_books(decoded.counts) == []
        return decoded.body["payload"].to_pylist(), decoded.counts
    splitter = LineSplitter(100_000, "auto")
    lines = [splitter.feed(b"".join(pieces)), splitter.finish()]
    decoded = decoder.decode_lines(pa.concat_arrays([each.lines for each in lines]))
    return decoded.body["payload"].to_pylist(), decoded.counts


@pytest.mark.parametrize("sender", [name for name in SENDERS if "compressed" not in name])
def test_each_message_arrives_once_with_its_fields(sender: str) -> None:
    payloads, _ = received(SENDERS[sender])
    when = datetime.fromtimestamp(SENDERS[sender]["received"], UTC)
    rows = syslog_columns(pa.array(payloads), np.array([when.timestamp() * 1_000_000], np.int64), BERLIN).to_pylist()
    assert [row["message"].strip() for row in rows] == TEXTS
    for row in rows:
        assert (row["facility"], row["severity"], row["host"]) == ("user", "info", "vm")
        assert (row["app_name"], row["proc_id"]) == ("shop", "77")
        assert abs(row["timestamp"] - when) < timedelta(seconds=10)
    assert all(payload.endswith(text.encode()) for payload, text in zip(payloads, TEXTS, strict=True))


def test_compressed_messages_are_named() -> None:
    payloads, counts = received(SENDERS["rsyslog udp, compressed"])
    assert (payloads, counts["refused.compressed"]) == ([], 3)


def test_structured_data_of_real_senders() -> None:
    for sender, name in (("logger udp", "timeQuality.tzKnown"), ("syslog-ng syslog tcp", "meta.sequenceId")):
        payloads, _ = received(SENDERS[sender])
        rows = syslog_columns(pa.array(payloads), np.zeros(1, np.int64)).to_pylist()
        assert dict(rows[0]["structured_data"])[name] == "1"


def without_time(payload: bytes) -> bytes:
    return payload[payload.index(b" vm shop") :]


@pytest.mark.parametrize("form", ["rsyslog", "syslog-ng network", "syslog-ng syslog", "logger"])
def test_message_has_the_same_bytes_over_every_transport(form: str) -> None:
    kinds: dict[bytes, set[tuple[bytes, ...]]] = {}
    for name, sender in SENDERS.items():
        if name.startswith(form) and "compressed" not in name:
            payloads, _ = received(sender)
            kinds.setdefault(payloads[0][:6], set()).add(tuple(map(without_time, payloads)))
    forms = {kind: payloads_of_transport for kind, payloads_of_transport in kinds.items() if kind != b"<14>20"}
    assert forms
    assert all(len(payloads_of_transport) == 1 for payloads_of_transport in forms.values()), forms
