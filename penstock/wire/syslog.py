"""syslog: whole batches parsed into annotations by RE2, the message itself left whole.

RFC 5424 first, then RFC 3164 as it is found in the wild, then whatever else: a PRI alone, or nothing at
all, which means user.notice (RFC 3164, section 4.3.3). Nothing is refused: what cannot be read stays a
message with fewer annotations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.counts import Counts
from penstock.records import annotation_maps, body, from_numpy
from penstock.wire.datagrams import Datagrams
from penstock.wire.decoded import Decoded
from penstock.wire.plog.statistics import Statistics
from penstock.wire.raw import whole_datagrams
from penstock.wire.sender_text import strings

FACILITIES = (
    *("kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp"),
    *("ntp", "audit", "alert", "clock", *(f"local{i}" for i in range(8))),
)
SEVERITIES = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")
DEFAULT_PRIORITY = 13
FIELDS = ("timestamp", "hostname", "app_name", "proc_id", "msg_id", "structured_data")
"""Annotations taken from the header, besides facility and severity; absent where the message has none."""

_PRI = r"<(?P<pri>[0-9]|[1-9][0-9]|1[0-8][0-9]|19[01])>"
# Repetitions are not bounded by numbers: RE2 would unroll them and be ten times slower.
_SD = r'(?:\[[^ =\]"]+(?: +[^ =\]"]+="(?:[^"\\]|\\.)*")* *\])+'
RFC5424 = (
    rf"(?s)\A{_PRI}[1-9][0-9]?[0-9]? (?P<timestamp>[^ ]+) (?P<hostname>[^ ]+) "
    rf"(?P<app_name>[^ ]+) (?P<proc_id>[^ ]+) (?P<msg_id>[^ ]+)(?: (?P<structured_data>-|{_SD})(?: |\z))?"
)
"""RFC 5424, section 6. Structured data that is not well-formed is left in the message."""
_TIME = r"[0-9][0-9]:[0-9][0-9]:[0-9][0-9](?:[.,][0-9]+)?"
_STAMP = (
    rf"(?:[0-9][0-9][0-9][0-9] )?[A-Z][a-z][a-z] [ 0-9]?[0-9] (?:[0-9]+ )?{_TIME}"
    rf"|[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9](?:T[^ ]+| {_TIME})"
)
_COUNTED = r"(?:[0-9]+: )?[*.]?"  # what Cisco's devices put before the time: a sequence number, a clock not set
_TAG = r"(?P<app_name>[^\s:\[\]]+)(?:\[(?P<proc_id>[^\]\s]*)\])?:(?:\s|\z)"
_HOST = r"(?P<hostname>[^\s\[\]]*[^\s\[\]:])(?: |\z)"
RFC3164 = rf"(?s)\A(?:{_PRI})?{_COUNTED}(?P<timestamp>{_STAMP}):? (?:{_HOST})?(?:{_TAG})?"
"""RFC 3164, section 4.1; also with years, fractions, RFC 3339 times, sequence numbers, and without host (local)."""
BARE = rf"(?s)\A{_PRI}(?:{_TAG})?"
"""A PRI with no header behind it; a tag is taken where there is one."""


class SyslogDecoder:
    """Datagrams or lines of syslog to messages with annotations. ``statistics`` has plog's keys."""

    open_messages = 0
    open_fragments = 0
    held_bytes = 0

    def __init__(self) -> None:
        self.statistics = Statistics()

    def decode(self, datagrams: Datagrams, now: float) -> Decoded:
        """One message per datagram that is not empty."""
        payloads, rows, counts = whole_datagrams(datagrams, self.statistics)
        return Decoded(body(payloads, annotations=parse_headers(payloads)), counts, rows=rows)

    def decode_lines(self, lines: pa.Array[Any]) -> pa.RecordBatch:
        """One message per line."""
        self.statistics.udp_simple_messages += len(lines)
        return body(lines, annotations=parse_headers(lines))

    def expire(self, now: float) -> Counts:
        """Nothing waits here."""
        return Counts()


def parse_headers(messages: pa.Array[Any]) -> pa.Array[Any]:
    """What the headers of ``messages`` (type binary) say, as maps; see FIELDS."""
    header = _header(messages)
    priority: pa.Array[Any] = pc.index_in(header["pri"], _PRIORITIES).fill_null(DEFAULT_PRIORITY)
    facility = pc.take(pa.array(FACILITIES), pc.shift_right(priority, pa.scalar(3)))
    severity = pc.take(pa.array(SEVERITIES), pc.bit_wise_and(priority, pa.scalar(7)))
    columns = [strings(pc.if_else(pc.is_in(column, _NIL), None, column)) for column in map(header.__getitem__, FIELDS)]
    return _maps(("facility", "severity", *FIELDS), [facility, severity, *columns])


_NIL = pa.array([b"-", b""], pa.binary())
_PRIORITIES = pa.array([str(priority).encode() for priority in range(192)], pa.binary())


def _header(messages: pa.Array[Any]) -> dict[str, pa.Array[Any]]:
    """The fields of each message's header by the first pattern that fits; null where it says nothing."""
    parts: list[dict[str, pa.Array[Any]]] = []
    order: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = []
    rows = np.arange(len(messages))
    for pattern in (RFC5424, RFC3164, BARE):
        found = pc.extract_regex(messages, pattern)
        fits = found.is_valid()
        taken = fits.to_numpy(zero_copy_only=False)
        parts.append(_fields(found.filter(fits)))
        order.append(rows[taken])
        rows = rows[~taken]
        if not len(rows):
            break
        messages = messages.filter(pc.invert(fits))
    parts.append(_fields(pa.nulls(len(rows), pa.struct([]))))
    back = from_numpy(np.argsort(np.concatenate([*order, rows])))
    return {name: pa.concat_arrays([part[name] for part in parts]).take(back) for name in ("pri", *FIELDS)}


def _fields(found: pa.StructArray) -> dict[str, pa.Array[Any]]:
    """The named groups of matches; a group that the pattern has not, or that matched nothing, is null or empty."""
    names = {field.name for field in found.type}
    none = pa.nulls(len(found), pa.binary())
    return {name: found.field(name) if name in names else none for name in ("pri", *FIELDS)}


def _maps(names: Sequence[str], columns: Sequence[pa.Array[Any]]) -> pa.Array[Any]:
    """One map per row of those columns that are not null there, in the order of ``names``."""
    rows, width = len(columns[0]), len(columns)
    values = pa.concat_arrays(list(columns)).take(from_numpy(np.arange(rows * width).reshape(width, rows).T.ravel()))
    kept = values.is_valid()
    per_row = kept.to_numpy(zero_copy_only=False).reshape(rows, width).sum(axis=1)
    keys = pa.array(names).take(from_numpy(np.tile(np.arange(width), rows))).filter(kept)
    offsets = np.concatenate([[0], np.cumsum(per_row)])
    return annotation_maps(offsets, keys, values.filter(kept))
