"""Entries of systemd's journal export format, which ``journalctl --output=export`` writes, as columns.

A field is a line ``NAME=text``, or ``NAME``, a length of 64 bits and that many bytes; an empty line ends an entry
(https://systemd.io/JOURNAL_EXPORT_FORMATS).

Invariant: entries depend on the bytes alone, however these are split into reads. An entry without its end is not
returned: its writer ended, and a new one writes the entry again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import PenstockError
from penstock.records import annotation_maps, binary_array, bounds, from_numpy, values_of
from penstock.wire.datagrams import Ints
from penstock.wire.syslog.headers import FACILITIES, SEVERITIES
from penstock.wire.syslog.octets import Bools

MAX_MESSAGE_BYTES = 1 << 20
"""Limit: bytes of a message; the rest is left out and counted. A journal stores up to 768 MiB in one field."""
MAX_TEXT_BYTES = 1024
"""Limit: bytes of any other field. The longest of use, a cursor and the name of a unit, have at most 255."""
MAX_LINE_BYTES = 1 << 16
"""Limit: bytes of a line of another field; nothing of a longer one is kept."""
MAX_ENTRY_BYTES = 64 << 20
"""Limit: bytes of an entry; further fields are left out and counted. It has at most 1,024 fields."""
CURSOR, MESSAGE, TIME = "__CURSOR", "MESSAGE", "__REALTIME_TIMESTAMP"
ANNOTATIONS = {
    CURSOR: "cursor",
    TIME: "time",
    "PRIORITY": "severity",
    "SYSLOG_FACILITY": "facility",
    "SYSLOG_IDENTIFIER": "app_name",
    "MESSAGE_ID": "message_id",
    "_HOSTNAME": "hostname",
    "_PID": "procid",
    "_UID": "uid",
    "_SYSTEMD_UNIT": "unit",
    "_SYSTEMD_USER_UNIT": "user_unit",
    "_TRANSPORT": "transport",
    "CONTAINER_NAME": "container_name",
    "CONTAINER_ID_FULL": "container_id",
    # Docker and Podman cut long lines into several entries, which only these fields show.
    "CONTAINER_PARTIAL_MESSAGE": "partial_message",
    "CONTAINER_PARTIAL_ID": "partial_id",
    "CONTAINER_PARTIAL_ORDINAL": "partial_ordinal",
    "CONTAINER_PARTIAL_LAST": "partial_last",
    MESSAGE: "message",
}
"""Annotation of each field that is read; ``message``: those before the last of several."""
MISSING = "missing"
"""The annotation with the number of entries that are missing before this one."""
_FIELDS = [name.encode() for name in ANNOTATIONS]
_LIMITS = {name: MAX_MESSAGE_BYTES if name == MESSAGE.encode() else MAX_TEXT_BYTES for name in _FIELDS}
_LENGTH_BYTES = 8
_FIRST_LINE, _LATER_LINE = re.compile(rb"([A-Z0-9_]+\n)"), re.compile(rb"\n([A-Z0-9_]+\n)")
"""A line that begins a binary field: it has no ``=``."""
_CURSOR = r"\As=(?P<source>[0-9a-f]{32});i=(?P<number>[0-9a-f]{1,16});b="
_PLACE = re.compile(
    r"s=(?P<source>[0-9a-f]{32});i=(?P<number>[0-9a-f]{1,16});b=(?P<boot>[0-9a-f]{32});"
    r"m=(?P<monotonic>[0-9a-f]{1,16});t=(?P<time>[0-9a-f]{1,16});"
)
_SAME_ENTRY = re.compile(r"(;b=[0-9a-f]+;m=[0-9a-f]+;t=[0-9a-f]+;x=[0-9a-f]+)")
_NIBBLES = np.zeros(256, np.uint64)
_NIBBLES[list(b"0123456789abcdef")] = range(16)


class BadExport(PenstockError, ValueError):
    """Bytes that are not of the export format."""


@dataclass(frozen=True, slots=True)
class JournalEntries:
    """Entries in order. ``cursors``: string; ``payloads``: their messages (binary, empty without one).

    Field i has ``texts[i]`` for the entry ``rows[i]`` (ascending) under the annotation ``names[i]``.
    """

    cursors: pa.Array[Any]
    payloads: pa.Array[Any]
    rows: Ints
    names: pa.Array[Any]
    texts: pa.Array[Any]

    def __len__(self) -> int:
        return len(self.cursors)

    def select(self, is_selected: Bools) -> JournalEntries:
        """Return the entries of a mask."""
        entries, fields = from_numpy(is_selected), from_numpy(is_selected[self.rows])
        return JournalEntries(
            self.cursors.filter(entries),
            self.payloads.filter(entries),
            (np.cumsum(is_selected) - 1)[self.rows[is_selected[self.rows]]],
            self.names.filter(fields),
            self.texts.filter(fields),
        )

    def are_after(self, cursor: str, boot: str) -> Bools:
        """Return which entries follow that of ``cursor``, which the journal no longer has. ``boot``: the present one.

        The order is journald's: by number within a source, by monotonic time within a boot, else by the time of day.
        Entries of the present boot follow any earlier boot: a clock that was ahead must not hide them.
        """
        after = [_is_after(cursor, str(other), boot) for other in self.cursors.to_pylist()]
        return np.array(after, np.bool_)

    def missing_before(self, previous_cursor: str | None) -> Ints:
        """Return how many entries are missing before each one, by the sequence numbers in the cursors.

        Only numbers of one source (``s=``) are compared. A smaller number than before misses nothing: journald restarts
        from the last one that it finds.
        """
        cursors = pa.concat_arrays([pa.array([previous_cursor], pa.string()), self.cursors])
        parts = pc.extract_regex(cursors, _CURSOR)
        sources = pc.struct_field(parts, "source")
        digits = pc.utf8_lpad(pc.struct_field(parts, "number").fill_null("0"), 16, "0").cast(pa.binary())
        nibbles = _NIBBLES[np.frombuffer(b"".join(values_of(digits)), np.uint8)].reshape(-1, 16)
        numbers = (nibbles << (4 * np.arange(15, -1, -1)).astype(np.uint64)).sum(axis=1, dtype=np.uint64)
        is_same_source = pc.equal(sources[1:], sources[:-1]).fill_null(False).to_numpy(zero_copy_only=False)
        is_hole = is_same_source & (numbers[1:] > numbers[:-1])
        holes = np.where(is_hole, numbers[1:] - numbers[:-1] - 1, 0)
        return np.minimum(holes, np.uint64(1 << 62)).astype(np.int64)

    def with_annotations(self, constants: Mapping[str, str], missing: Ints) -> pa.Array[Any]:
        """Return the annotations of each entry: ``constants``, the number of ``missing`` ones if any, its fields."""
        entries, width = len(self), len(constants)
        incomplete = np.flatnonzero(missing)
        rows = np.concatenate([np.repeat(np.arange(entries), width), incomplete, self.rows])
        names = [*(list(constants) * entries), *([MISSING] * len(incomplete))]
        texts = [*(list(constants.values()) * entries), *map(str, missing[incomplete].tolist())]
        order = from_numpy(np.argsort(rows, kind="stable"))
        offsets = np.append(0, np.cumsum(np.bincount(rows, minlength=entries)))
        return annotation_maps(
            offsets,
            pa.concat_arrays([pa.array(names, pa.string()), self.names]).take(order),
            pa.concat_arrays([pa.array(texts, pa.string()), self.texts]).take(order),
        )


def _is_after(cursor: str, other: str, boot: str) -> bool:
    match, other_match = _PLACE.match(cursor), _PLACE.match(other)
    if match is None or other_match is None:
        return True  # twice rather than not at all
    is_of_source = match["source"] == other_match["source"]
    if match["boot"] == other_match["boot"]:
        position = "number" if is_of_source else "monotonic"
        return int(other_match[position], 16) > int(match[position], 16)
    # Crash: after a power failure journald continues at the last number on the disk, so a later boot repeats numbers.
    is_later = int(other_match["time"], 16) > int(match["time"], 16)
    has_larger_number = is_of_source and int(other_match["number"], 16) > int(match["number"], 16)
    return boot == other_match["boot"] or is_later or has_larger_number


def is_same_entry(cursor: str, other: str) -> bool:
    """Whether two cursors are of one entry. Source and number differ once it was moved from /run to /var."""
    parts, other_parts = _SAME_ENTRY.search(cursor), _SAME_ENTRY.search(other)
    return cursor == other or bool(parts and other_parts and parts[1] == other_parts[1])


class ExportReader:
    """Reads entries from pieces of an export. ``cut_fields`` counts fields that were too long.

    Lines of text are collected unchanged; a binary field is collected as the line ``NAME=``, its value separately.
    """

    def __init__(self) -> None:
        self.cut_fields = 0
        self._unread = bytearray()  # begins with a line or, while a value or a long line is read, inside of it
        self._lines = bytearray()
        self._line_count = self._entry_begin = self._entry_bytes = 0
        self._values: dict[int, bytes] = {}  # of binary fields, by the numbers of their lines
        self._value: bytearray | None = None  # of the binary field that is being read
        self._value_bytes = self._value_limit = 0
        self._skips_line = self._skips_entry = False

    @property
    def ready_bytes(self) -> int:
        """About the size of what ``drain`` returns."""
        return self._entry_begin and len(self._lines) + sum(map(len, self._values.values()))

    def feed(self, piece: bytes) -> None:
        """Read the next bytes. Raises BadExport."""
        self._unread += piece
        while self._read_text() if self._value is None else self._read_value():
            continue

    def drain(self) -> JournalEntries | None:
        """Return the complete entries that were read since the last call. Raises BadExport."""
        end = self._entry_begin
        text, self._lines = bytes(self._lines[:end]), self._lines[end:]
        lines = text.count(b"\n")
        values = {line: value for line, value in self._values.items() if line < lines}
        self._values = {line - lines: value for line, value in self._values.items() if line >= lines}
        self._line_count, self._entry_begin = self._line_count - lines, 0
        return self._parse(text, values) if text.strip(b"\n") else None

    def _read_text(self) -> bool:
        """Read lines up to the next binary field; return whether one begins."""
        unread = self._unread
        if self._skips_line:
            end = unread.find(b"\n")
            # The end of the line stays: it completes what ``_lines`` holds of the line.
            del unread[: end + self._skips_entry if end >= 0 else len(unread)]
            if end < 0:
                return False
            self._skips_line = False
        match = _FIRST_LINE.match(unread) or _LATER_LINE.search(unread)
        end = match.start(1) if match else unread.rfind(b"\n") + 1
        name = match[1].removesuffix(b"\n") if match else b""
        if end:
            self._add_lines(bytes(unread[:end]))
            del unread[:end]
        if match is None:
            self._cut_long_line()
            return False
        value_begin = len(name) + 1 + _LENGTH_BYTES
        if len(unread) < value_begin:
            return False
        self._value_bytes = int.from_bytes(unread[value_begin - _LENGTH_BYTES : value_begin], "little")
        del unread[:value_begin]
        self._value, self._value_limit = bytearray(), _kept_bytes(bytes(name))
        self._add_lines(bytes(name) + b"=\n")
        return True

    def _read_value(self) -> bool:
        """Read the value of a binary field; return whether it is complete."""
        assert self._value is not None
        unread, size = self._unread, min(self._value_bytes, len(self._unread))
        # Limit: no memory is allocated by the length, and what is longer than its limit is not kept.
        self._value += unread[: min(size, self._value_limit - len(self._value))]
        del unread[:size]
        self._value_bytes -= size
        if not unread:
            return False
        if unread[0] != ord("\n"):
            raise BadExport("a binary field does not end where its length says")
        del unread[:1]
        if not self._skips_entry:
            self._values[self._line_count - 1] = bytes(self._value)
            self._entry_bytes += len(self._value)
        self._value = None
        return True

    def _add_lines(self, lines: bytes) -> None:
        if not self._skips_entry and self._entry_bytes > MAX_ENTRY_BYTES:
            self._skips_entry = True
            self.cut_fields += 1
        if self._skips_entry:
            end = 0 if lines.startswith(b"\n") else lines.find(b"\n\n") + 1
            if not end and not lines.startswith(b"\n"):
                return
            lines, self._skips_entry = lines[end:], False
        begin = len(self._lines)
        self._lines += lines
        self._line_count += lines.count(b"\n")
        end = self._lines.rfind(b"\n\n", max(begin - 1, 0)) + 2
        if end > 1:
            self._entry_begin, self._entry_bytes = end, len(self._lines) - end
        else:
            self._entry_bytes += len(lines)

    def _cut_long_line(self) -> None:
        """Keep the beginning of a line that is too long, and skip what follows up to its end."""
        unread = self._unread
        if len(unread) <= MAX_LINE_BYTES:
            return
        name_bytes = unread.find(b"=", 0, MAX_LINE_BYTES)
        if name_bytes < 0:
            raise BadExport("a line has no name of a field")
        size = name_bytes + 1 + _kept_bytes(bytes(unread[:name_bytes]))
        if len(unread) < size:
            return
        if not self._skips_entry:
            self._lines += unread[:size]
            self._entry_bytes += size
        self._skips_line = True
        unread.clear()

    def _parse(self, text: bytes, values_by_line: Mapping[int, bytes]) -> JournalEntries:
        octets = np.frombuffer(text, np.uint8)
        ends = np.flatnonzero(octets == ord("\n"))
        begins = np.append(0, ends[:-1] + 1)
        equals = np.append(np.flatnonzero(octets == ord("=")), len(octets))
        separators = equals[np.searchsorted(equals, begins)]
        is_field = begins < ends
        if (separators > ends)[is_field].any():
            raise BadExport("a line has no name of a field")
        rows = np.cumsum(~is_field, dtype=np.int64)[is_field]
        # Parts of the text in turn: a name, "=", a value, the line's end; an empty line belongs to the part before it.
        borders = np.stack([begins, separators, separators + 1, ends], axis=1)[is_field].ravel()
        parts = binary_array(np.append(borders, len(octets)).astype(np.int32), text)
        fields = pc.index_in(parts[0::4], pa.array(_FIELDS)).fill_null(-1).to_numpy().astype(np.int64)
        values = parts[2::4]
        if values_by_line:
            lines = np.cumsum(is_field) - 1
            indices = np.arange(len(values))
            indices[lines[list(values_by_line)]] = len(values) + np.arange(len(values_by_line))
            values = pa.concat_arrays([values, pa.array(values_by_line.values(), pa.binary())]).take(
                from_numpy(indices)
            )
        return self._columns(rows, fields, values)

    def _columns(self, rows: Ints, fields: Ints, values: pa.Array[Any]) -> JournalEntries:
        numbers = {name: index for index, name in enumerate(ANNOTATIONS)}
        entry_rows = rows[fields == numbers[CURSOR]]
        if not np.array_equal(np.unique(rows), entry_rows):
            raise BadExport("an entry has no cursor, or several")
        is_read = fields >= 0
        rows, fields = np.searchsorted(entry_rows, rows)[is_read], fields[is_read]
        values = values.filter(from_numpy(is_read))
        # The last message of an entry is its payload.
        messages = np.flatnonzero(fields == numbers[MESSAGE])
        is_last = np.append(rows[messages][1:] != rows[messages][:-1], True)[: len(messages)]
        payload_indices = np.full(len(entry_rows), -1)
        payload_indices[rows[messages[is_last]]] = messages[is_last]
        is_empty = payload_indices < 0
        payloads = self._cut(values.take(from_numpy(payload_indices, is_empty)).fill_null(b""), MAX_MESSAGE_BYTES)
        is_annotation = np.ones(len(rows), np.bool_)
        is_annotation[messages[is_last]] = False
        rows, fields = rows[is_annotation], fields[is_annotation]
        texts = _decode(self._cut(values.filter(from_numpy(is_annotation)), MAX_TEXT_BYTES))
        cursors = texts.filter(from_numpy(fields == numbers[CURSOR]))
        for name, labels in (("PRIORITY", SEVERITIES), ("SYSLOG_FACILITY", FACILITIES)):
            texts = _replace(texts, fields == numbers[name], _labels(texts, labels))
        texts = _replace(texts, fields == numbers[TIME], _format_times(texts, fields == numbers[TIME]))
        return JournalEntries(cursors, payloads, rows, pa.array(ANNOTATIONS.values()).take(from_numpy(fields)), texts)

    def _cut(self, values: pa.Array[Any], limit: int) -> pa.Array[Any]:
        too_long = np.diff(bounds(values)) > limit
        if not too_long.any():
            return values
        self.cut_fields += int(too_long.sum())
        cut: pa.Array[Any] = pc.binary_slice(values, 0, limit)
        return cut


def _kept_bytes(name: bytes) -> int:
    """Return how much of a long field is kept: a byte more than its limit, so that it is counted as cut."""
    return _LIMITS[name] + 1 if name in _LIMITS else 0


def _decode(values: pa.Array[Any]) -> pa.Array[Any]:
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:  # a binary field, or one that was cut inside a character
        return pa.array([value.decode("utf-8", "replace") for value in values_of(values)], pa.string())


def _replace(texts: pa.Array[Any], mask: Bools, replacements: pa.Array[Any]) -> pa.Array[Any]:
    """Return ``texts`` with their replacements where ``mask``; null keeps a text."""
    replaced: pa.Array[Any] = pc.if_else(from_numpy(mask), pc.coalesce(replacements, texts), texts)
    return replaced


def _labels(numbers: pa.Array[Any], labels: Sequence[str]) -> pa.Array[Any]:
    return pa.array(labels).take(pc.index_in(numbers, pa.array([str(number) for number in range(len(labels))])))


def _format_times(texts: pa.Array[Any], mask: Bools) -> pa.Array[Any]:
    """Return microseconds since the epoch as RFC 3339."""
    is_time = pc.and_(from_numpy(mask), pc.match_substring_regex(texts, r"\A[0-9]{1,16}\z"))
    micros = pc.if_else(is_time, texts, pa.scalar(None, pa.string())).cast(pa.int64())
    times: pa.Array[Any] = pc.strftime(micros.cast(pa.timestamp("us", "UTC")), "%Y-%m-%dT%H:%M:%SZ")
    return times
