"""Messages of devices, by the table in docs/syslog.md."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock.wire.datagrams import Datagrams
from penstock.wire.syslog.codec import SyslogDecoder, build_annotations

PAGE = Path(__file__).parents[3] / "docs" / "syslog.md"
RECEIVED_S = datetime(2026, 11, 22, tzinfo=UTC).timestamp()
FIELDS = ("timestamp", "hostname", "app_name", "proc_id")


def device_rows() -> list[list[str]]:
    text = PAGE.read_text().split("### What devices send")[1].split("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("| ")][2:]
    return [[cell.strip().strip("`") for cell in line.split("|")[1:-1]] for line in lines]


def test_table_of_devices_has_rows() -> None:
    assert len(device_rows()) > 25


@pytest.mark.parametrize("row", device_rows(), ids=lambda row: row[0])
def test_header_of_device_is_read_as_the_page_says(row: list[str]) -> None:
    _, sent, *cells = row
    decoded = SyslogDecoder(UTC, lambda: RECEIVED_S).decode(Datagrams.from_bytes([sent.encode()]), 0.0)
    (annotations,) = decoded.body["annotations"].to_pylist()
    expected = {name: cell for name, cell in zip(FIELDS, cells, strict=True) if cell}
    assert {name: text for name, text in annotations if name in FIELDS} == expected
    # The text of the device stays as it was sent, but for a length that belongs to the transport.
    assert decoded.body["payload"].to_pylist() == [sent.removeprefix("45 ").encode()]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (b"<13>Oct 11 22:14:15 h http://example.test/x y", {"hostname": "h"}),
        (b"<13>Oct 11 22:14:15 fe80::1 app: x", {"hostname": "fe80::1", "app_name": "app"}),
        (b"<13>Oct 11 22:14:15 h 10:20:30 text", {"hostname": "h"}),
        (b"<13>Oct 11 22:14:15 h C:\\temp\\x is full", {"hostname": "h"}),
        (b"<13>1 first item of a list", {}),
        (b"<13>99999999T999999 is refused", {}),
        (b"<13>20254513T122935 is refused", {}),
        (b"<13>20250513T127935 is refused", {}),
        (b"<13>2 2026-10-11 items", {}),
        (b"<13>Oct 11 22:14:15 a: b: text", {"app_name": "a"}),
        (b"<13>kernel: %CPU usage: 5", {"app_name": "kernel"}),
    ],
)
def test_text_that_looks_like_a_header_stays_text(message: bytes, expected: dict[str, str]) -> None:
    received = np.array([RECEIVED_S * 1_000_000], np.int64)
    (annotations,) = build_annotations(pa.array([message], pa.binary()), received, UTC).to_pylist()
    names = ("hostname", "app_name", "proc_id", "msg_id")
    assert {name: text for name, text in annotations if name in names} == expected


def test_only_an_exact_length_of_a_datagram_is_left_out() -> None:
    sent = [b"6 <13>ab", b"7 <13>ab", b"5 <13>ab", b"6 <13>ab\n", b"7 <13>ab\n", b"404 not found", b"<13>x"]
    decoded = SyslogDecoder().decode(Datagrams.from_bytes(sent), 0.0)
    complete = [b"<13>ab", b"7 <13>ab", b"5 <13>ab", b"<13>ab", b"<13>ab", b"404 not found", b"<13>x"]
    assert decoded.body["payload"].to_pylist() == complete
    lines = SyslogDecoder().decode_lines(pa.array(sent[:1], pa.binary()))
    assert lines.body["payload"].to_pylist() == sent[:1]
