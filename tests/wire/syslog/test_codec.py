"""syslog headers as annotations."""

from __future__ import annotations

import zlib
from datetime import UTC, datetime, tzinfo
from unittest import mock
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.counts import open_books
from penstock.handover.frames.frame_size import MESSAGE_OVERHEAD_BYTES
from penstock.wire.codecs import CODECS
from penstock.wire.datagrams import Datagrams
from penstock.wire.growth import FIELDS
from penstock.wire.syslog import codec
from penstock.wire.syslog.codec import MIN_RUN, SyslogDecoder, annotations_in_columns, build_annotations
from tests.wire.syslog.hostile import HOSTILE, generate_messages, messages_of

NOTICE = {"facility": "user", "severity": "notice"}
SOURCE_COST = 500
"""Bytes that the sender's address and certificate's name may take in addition."""
RECEIVED = np.array([datetime(2026, 11, 22, tzinfo=UTC).timestamp() * 1_000_000], np.int64)


def parsed(*messages: bytes) -> list[dict[str, str]]:
    return [dict(each) for each in build_annotations(pa.array(messages, pa.binary()), RECEIVED, UTC).to_pylist()]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            b"<34>1 2003-10-11T22:14:15.003Z mymachine.example.com su - ID47 - \xef\xbb\xbf'su root' failed",
            {
                "facility": "auth",
                "severity": "crit",
                "timestamp": "2003-10-11T22:14:15.003Z",
                "hostname": "mymachine.example.com",
                "app_name": "su",
                "msg_id": "ID47",
            },
        ),
        (
            rb'<165>1 2003-08-24T05:14:15.000003-07:00 192.0.2.1 myproc 8710 - [a@1 k="v \" \] x" l=""][b@2] %% text',
            {
                "facility": "local4",
                "severity": "notice",
                "timestamp": "2003-08-24T05:14:15.000003-07:00",
                "hostname": "192.0.2.1",
                "app_name": "myproc",
                "proc_id": "8710",
                "a@1.k": 'v " ] x',
                "a@1.l": "",
            },
        ),
        (b"<0>1 - - - - - -", {"facility": "kern", "severity": "emerg"}),
        (b"<191>1 - h - - - [broken text", {"facility": "local7", "severity": "debug", "hostname": "h"}),
    ],
    ids=["message", "structured data", "nothing but nil", "broken structured data"],
)
def test_rfc_5424(message: bytes, expected: dict[str, str]) -> None:
    assert parsed(message) == [expected]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (b"<34>Oct 11 22:14:15 mymachine su: 'su root' failed", ("2026-10-11T22:14:15Z", "mymachine", "su", None)),
        (b"<34>Oct  1 22:14:15 ::1 cron[7]: x", ("2026-10-01T22:14:15Z", "::1", "cron", "7")),
        (b"<34>Oct 11 22:14:15 sshd[123]: from a local sender", ("2026-10-11T22:14:15Z", None, "sshd", "123")),
        (b"<34>Oct 11 22:14:15 su: local: too", ("2026-10-11T22:14:15Z", None, "su", None)),
        (b"<34>Oct 11 2026 22:14:15.25 h a/b.c[x]:", ("2026-10-11T22:14:15.250000Z", "h", "a/b.c", "x")),
        (b"<34>2026-10-11T22:14:15+02:00 h app[1]: x", ("2026-10-11T22:14:15+02:00", "h", "app", "1")),
        (b"<34>Oct 11 22:14:15 h sshd(pam_unix)[9]: x", ("2026-10-11T22:14:15Z", "h", "sshd(pam_unix)", "9")),
        (b"<34>Oct 11 22:14:15 10.0.0.99 Use the BFG!", ("2026-10-11T22:14:15Z", "10.0.0.99", None, None)),
        (b"<34>2026 Oct 11 22:14:15 h app: x", ("2026-10-11T22:14:15Z", "h", "app", None)),
        (b"<34>2026-10-11 22:14:15,123 h app: x", ("2026-10-11T22:14:15.123000Z", "h", "app", None)),
        (
            b"<34>48: *Oct 11 22:14:15.003: %SYS-5-CONFIG_I: x",
            ("2026-10-11T22:14:15.003000Z", None, "%SYS-5-CONFIG_I", None),
        ),
        (b"<34>Oct 11 22:14:15 h last message repeated 3 times", ("2026-10-11T22:14:15Z", "h", None, None)),
        (b"<34>Oct 11 22:14:15 h\tapp: x", ("2026-10-11T22:14:15Z", "h", "app", None)),
        (b"<34>Oct 11 22:14:15 192.0.2.1\tapp[5]: x", ("2026-10-11T22:14:15Z", "192.0.2.1", "app", "5")),
        (b"<34>2026-10-11T22:14:15Z fe80::1\tapp: x", ("2026-10-11T22:14:15Z", "fe80::1", "app", None)),
        (b"<34>Oct 11 22:14:15 error\tno tag", ("2026-10-11T22:14:15Z", None, None, None)),
        (b"<34>Oct 11 22:14:15 app:\tno host: x", ("2026-10-11T22:14:15Z", None, "app", None)),
        (b"<34>Oct 11 22:14:15 h\t", ("2026-10-11T22:14:15Z", None, None, None)),
        (b"<34>app[5]: no header", (None, None, "app", "5")),
        (b"<34>no header at all", (None, None, None, None)),
    ],
)
def test_rfc_3164_as_it_is_found(message: bytes, expected: tuple[str | None, ...]) -> None:
    names = ("timestamp", "hostname", "app_name", "proc_id")
    decoded_rows = {name: value for name, value in zip(names, expected, strict=True) if value is not None}
    assert parsed(message) == [{"facility": "auth", "severity": "crit", **decoded_rows}]


@pytest.mark.parametrize("message", [b"", b"text", b"<192>x", b"<013>x", b"<>x", b"<13", b"\xff\xfe", b" <34>x"])
def test_without_a_priority_it_is_user_notice(message: bytes) -> None:
    assert parsed(message) == [NOTICE]


def test_without_a_priority_the_rest_of_the_header_counts() -> None:
    assert parsed(b"Jun 14 15:16:01 combo su[1]: x") == [
        NOTICE | {"timestamp": "2026-06-14T15:16:01Z", "hostname": "combo", "app_name": "su", "proc_id": "1"}
    ]


def test_messages_of_all_kinds_keep_their_order() -> None:
    messages = [
        b"<34>1 - first - - - -",
        b"none",
        b"<34>Jan  1 00:00:00 third x",
        b"<34>4th: x",
        b"<34>1 - fifth - - - -",
    ]
    names = [decoded_rows.get("hostname", decoded_rows.get("app_name")) for decoded_rows in parsed(*messages)]
    assert names == ["first", None, "third", "4th", "fifth"]


def test_bytes_that_are_no_utf8_become_replacement_characters_in_annotations_only() -> None:
    message = b"<13>Oct 11 22:14:15 h\xff \xfe\xc3\xa9[1]: \xff"
    decoded = SyslogDecoder().decode(Datagrams.from_bytes([message]), 0.0)
    decoded.body.validate(full=True)
    (row,) = decoded.body.to_pylist()
    assert row["payload"] == message
    assert (dict(row["annotations"])["hostname"], dict(row["annotations"])["app_name"]) == ("h\ufffd", "\ufffdé")


def test_a_round_is_counted_and_whole() -> None:
    decoded = SyslogDecoder().decode(Datagrams.from_bytes([b"<34>x", b"", b"\0\0PING"]), 0.0)
    assert decoded.body["payload"].to_pylist() == [b"<34>x", b"\0\0PING"]
    assert decoded.counts.pruned() == {"taken": 3, "empty": 1, "unboxed": 2, "seen": 2, "accepted": 2}
    assert open_books(decoded.counts) == []


@pytest.mark.parametrize("end", [b"", b"\n", b"\0", b"\r\n", b"\n\0"])
def test_a_message_has_the_same_bytes_over_datagrams_and_lines(end: bytes) -> None:
    message = b"<34>Oct 11 22:14:15 h app[1]: text\r and more"
    by_datagram = SyslogDecoder().decode(Datagrams.from_bytes([message + end]), 0.0).body
    by_line = SyslogDecoder().decode_lines(pa.array([message + end], pa.binary())).body
    assert by_datagram["payload"].to_pylist() == by_line["payload"].to_pylist() == [message]
    assert by_datagram.equals(by_line)


@pytest.mark.parametrize("end", [b"\n", b"\0", b"\r\n", b"\n\0"])
def test_message_of_delimiters_alone_is_empty(end: bytes) -> None:
    decoded = SyslogDecoder().decode(Datagrams.from_bytes([end, b"<34>x" + end]), 0.0)
    assert (decoded.body["payload"].to_pylist(), decoded.rows.tolist()) == ([b"<34>x"], [1])
    assert decoded.counts.pruned() == {"taken": 2, "empty": 1, "unboxed": 1, "seen": 1, "accepted": 1}
    assert open_books(decoded.counts) == []
    lines = SyslogDecoder().decode_lines(pa.array([b"<34>x", end], pa.binary()))
    assert (lines.body["payload"].to_pylist(), lines.rows.tolist()) == ([b"<34>x"], [0])
    assert lines.counts.pruned() == {"line.message": -1, "line.empty": 1, "seen": -1, "accepted": -1}


def test_compressed_messages_are_refused_by_name_and_the_others_stay() -> None:
    sent = [b"<34>a: 1", b"z" + zlib.compress(b"<34>a: 2"), b"zx^ is a text", b"zoo", b"z", b"<34>a: 3"]
    plain = [sent[0], *sent[2:]]
    decoded = SyslogDecoder().decode(Datagrams.from_bytes(sent), 0.0)
    assert decoded.body["payload"].to_pylist() == plain
    assert decoded.rows.tolist() == [0, 2, 3, 4, 5]
    counts = {"taken": 6, "unboxed": 6, "seen": 6, "accepted": 5, "refused.compressed": 1}
    assert (decoded.counts.pruned(), open_books(decoded.counts)) == (counts, [])
    lines = SyslogDecoder().decode_lines(pa.array(sent, pa.binary()))
    assert (lines.body["payload"].to_pylist(), lines.rows.tolist()) == (plain, [0, 2, 3, 4, 5])
    assert lines.counts.pruned() == {"accepted": -1, "refused.compressed": 1}


def test_a_compressed_bomb_is_not_unpacked() -> None:
    bomb = b"z" + zlib.compress(b"\0" * 50_000_000)
    decoded = SyslogDecoder().decode(Datagrams.from_bytes([bomb[:60_000]]), 0.0)
    assert decoded.counts["refused.compressed"] == 1


def test_structured_data_of_more_parameters_than_are_taken_stays_one_text() -> None:
    text = "[a@1 " + " ".join(f'k{number}="v"' for number in range(40)) + "]"
    few, many = parsed(b'<34>1 - - - - - [a@1 k="v"] x', b"<34>1 - - - - - " + text.encode() + b" x")
    assert few["a@1.k"] == "v"
    assert many["structured_data"] == text


@given(messages_of(HOSTILE))
def test_any_bytes_are_a_message(messages: list[bytes]) -> None:
    check(messages)


def test_ten_thousand_hostile_messages_are_one_each() -> None:
    check(generate_messages(10_000))


def check(messages: list[bytes]) -> None:
    batch = SyslogDecoder().decode_lines(pa.array(messages, pa.binary())).body
    batch.validate(full=True)
    for decoded_rows in batch["annotations"].to_pylist():
        names = [name for name, _ in decoded_rows]
        fixed = [name for name in ("facility", "severity", *FIELDS) if name in names]
        assert names[: len(fixed)] == fixed
        assert names[:2] == ["facility", "severity"]
        assert len(set(names)) == len(names)
    for message, decoded_rows in zip(batch["payload"].to_pylist(), batch["annotations"].to_pylist(), strict=True):
        room = len(message) + min(2 * len(message), CODECS["syslog"].growth) + MESSAGE_OVERHEAD_BYTES
        assert sum(len(name.encode()) + len(value.encode()) + 8 for name, value in decoded_rows) < room - SOURCE_COST


@given(messages_of(HOSTILE))
def test_message_is_parsed_independently_of_its_neighbours(messages: list[bytes]) -> None:
    assert parsed(*messages) == [parsed(message)[0] for message in messages]


@given(messages_of(HOSTILE))
def test_repeated_messages_have_the_annotations_of_one(messages: list[bytes]) -> None:
    repeated = [message for message in messages for _ in range(2 * MIN_RUN)]
    assert parsed(*repeated) == [row for message in messages for row in parsed(message) * (2 * MIN_RUN)]


_TIMES = st.one_of(
    st.from_regex(r"\A(Feb|Mar|Oct|oct|Foo) [ 1-4][0-9] [0-2][0-9]:[0-6][0-9]:[0-6][0-9]\Z"),
    st.from_regex(r"\A(0000|1969|2026)-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-6][0-9]:[0-6][0-9]([.,][0-9]{1,7})?"
                  r"(Z|z|[+-][0-9]{2}:?[0-9]{2})?\Z"),
)  # fmt: skip


@pytest.mark.parametrize("zone", [UTC, ZoneInfo("Europe/Berlin")])
@given(time=_TIMES)
def test_few_distinct_times_are_those_of_columns(zone: tzinfo, time: str) -> None:
    messages = [f"<34>{time} host app: text".encode(), f"<34>1 {time} host app - - - text".encode()]
    for message in messages:
        repeated = pa.array([message] * MIN_RUN, pa.binary())
        maps = annotations_in_columns(repeated, RECEIVED, zone).to_pylist()
        with mock.patch.object(codec, "MAX_FEW_TIMES", 0):
            assert maps == annotations_in_columns(repeated, RECEIVED, zone).to_pylist()


def test_batch_of_several_blocks_has_the_annotations_of_its_parts() -> None:
    messages = generate_messages(3_000)
    assert sum(map(len, messages)) > 100_000, "more than one block is searched"
    parts = [messages[begin : begin + 100] for begin in range(0, len(messages), 100)]
    assert parsed(*messages) == [annotations for part in parts for annotations in parsed(*part)]


# Lines as they stand in the log files of a few machines and programs.
FOUND = {
    b"Jun 19 04:09:11 combo syslogd 1.4.1: restart.": {"timestamp": "2026-06-19T04:09:11Z", "hostname": "combo"},
    b"Jul 27 14:41:58 combo kernel: klogd 1.4.1, log source = /proc/kmsg started.": {
        "timestamp": "2026-07-27T14:41:58Z",
        "hostname": "combo",
        "app_name": "kernel",
    },
    b"Jun 15 04:06:18 combo su(pam_unix)[21416]: session opened for user cyrus by (uid=0)": {
        "timestamp": "2026-06-15T04:06:18Z",
        "hostname": "combo",
        "app_name": "su(pam_unix)",
        "proc_id": "21416",
    },
    b"Dec 10 06:55:46 LabSZ sshd[24200]: Invalid user webmaster from 173.234.31.186": {
        "timestamp": "2026-12-10T06:55:46Z",
        "hostname": "LabSZ",
        "app_name": "sshd",
        "proc_id": "24200",
    },
    b"[Sun Dec 04 04:47:44 2005] [notice] workerEnv.init() ok /etc/httpd/conf/workers2.properties": {},
    b"081109 203615 148 INFO dfs.DataNode$PacketResponder: PacketResponder 1 for block blk_38865049064139660": {},
}


def test_lines_of_real_logs_are_read_as_far_as_they_say_something() -> None:
    assert parsed(*FOUND) == [NOTICE | decoded_rows for decoded_rows in FOUND.values()]
