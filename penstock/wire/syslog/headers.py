"""Headers of syslog messages, whole batches at a time: where in the messages' bytes each field begins and ends.

RFC 5424 first, then what Cisco's devices send, then RFC 3164 as it is found in the wild, then whatever else: a
PRI alone, or nothing at all, which means user.notice (RFC 3164, section 4.3.3). Nothing is refused: what cannot be
read stays a message with fewer fields. What nearly all senders send is found by numpy; what only some do, by RE2.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.records import bounds
from penstock.wire.datagrams import Bytes, Ints
from penstock.wire.growth import FIELDS
from penstock.wire.syslog.octets import LOOKAHEAD, Bools, Octets, Spans

FACILITIES = (
    *("kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp"),
    *("ntp", "audit", "alert", "clock", *(f"local{i}" for i in range(8))),
)
SEVERITIES = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")
DEFAULT_PRIORITY = 13
LAST_PRIORITY = 191

_BOM = np.frombuffer(b"\xef\xbb\xbf", np.uint8)
# Repetitions are not bounded by numbers: RE2 would unroll them and be ten times slower. The groups of a pattern lie one
# behind the other without a gap, so that their lengths say where they stand.
_SD = r'(?P<structured_data>(?:\[[^ =\]"]+(?: +[^ =\]"]+="(?:[^"\\]|\\.)*")* *\])+)(?P<after> |\z)'
"""RFC 5424, section 6.3. What is not well-formed is left in the message."""
_TIME = r"[0-9][0-9]:[0-9][0-9]:[0-9][0-9](?:[.,][0-9]+)?"
_STAMP = (
    rf"(?:[0-9][0-9][0-9][0-9] )?[A-Z][a-z][a-z] [ 0-9]?[0-9] (?:[0-9]+ )?{_TIME}"
    rf"|[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9](?:T[^ ]*[^ :]| {_TIME})"
    rf"|[0-9][0-9][0-9][0-9]:[0-9][0-9]:[0-9][0-9]-{_TIME}"  # Sophos
)
_PADDED = (
    r"(?P<version>[0-9]+ +)(?P<timestamp>-|[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]T[^ ]+)(?P<gap1> +)"
    r"(?P<hostname>[^ ]+)(?P<gap2> +)(?P<app_name>[^ ]+)(?P<gap3> +)(?P<proc_id>[^ ]+)(?P<gap4> +)(?P<msg_id>[^ ]+)"
    r"(?P<gap5> +)"
)
"""RFC 5424 with more than one space between fields; structured data or its nil has to follow."""
_NETSCALER = (
    rf"(?P<before> ?)(?P<timestamp>[0-9][0-9]/[0-9][0-9]/[0-9][0-9][0-9][0-9]:{_TIME})(?P<blank> )"
    r"(?P<zone>(?:GMT|UTC)?)(?P<after> ?)"
)
_MNEMONIC = r"(?P<app_name>%[A-Z0-9_]+(?:-[A-Z0-9_]+)*-[0-7A-Z]-[A-Z0-9_]+)(?P<last> ?:(?:\s|\z))"
_UNTIMED_CISCO = (
    r"(?P<before> ?(?:[0-9]+: )*)(?P<hostname>(?:[A-Za-z][^\s:*.]*)?)(?P<colon>(?:: )?)"
    r"(?P<uptime>(?:(?:(?:[0-9]+[ywdhms])+|[0-9]+:[0-9][0-9]:[0-9][0-9](?:\.[0-9]+)?): )?)" + _MNEMONIC
)
"""Cisco's devices without a time, or with the time since their start."""
_RELAYED_CISCO = rf"(?P<before> *(?:[0-9]+: )*(?:[*.]?(?:{_STAMP})(?: [A-Z]+)?: )?)" + _MNEMONIC
"""What a relay put its own time and host before."""
_RFC3164 = rf"(?P<before> ?(?:[0-9]+: )?[*.]?)(?P<timestamp>{_STAMP})(?P<after>:? )"
"""The time of RFC 3164 as others write it: with years, fractions, a sequence number, a clock that is not set."""
_CISCO = (
    rf"(?P<before> ?(?:[0-9]+: )?)(?P<hostname>[^\s:*.]*)(?P<colon>:? ?[*.]?)(?P<timestamp>{_STAMP})"
    r"(?:(?P<blank> ?)(?P<zone>[A-Z]*)(?P<direct>: )|(?P<left> )(?P<device>[^\s:]+)(?P<right> : )|(?P<apart> : ))"
    r"(?P<process>(?:[^\s:\[]+\[)?)(?P<proc_id>[0-9]*)(?P<close>(?:\]: )?)(?P<app_name>%[^\s:]+)(?P<after> ?:(?:\s|\z))"
)
"""IOS, IOS XR, NX-OS and ASA: an origin, the name of a zone, a host behind the time, and a mnemonic for a tag."""
_BLANKS = b" \t\n\f\r"
_DIGITS_OF_STAMP = [5, 7, 8, 10, 11, 13, 14]
_DIGITS_OF_DATE = [0, 1, 2, 3, 5, 6, 8, 9]


class Headers:
    """What the headers of n messages say.

    ``priorities``: int64 (n,), DEFAULT_PRIORITY where there is none. ``fields``: where each of FIELDS stands, and
    ``zone``, the name of the zone that ``timestamp`` is given in; empty where the header says nothing. ``ends``:
    int64 (n,), where the message behind the header begins. All are places in ``octets``.
    """

    def __init__(self, messages: pa.Array[Any]) -> None:
        self.octets = Octets(messages)
        self.ends = _behind_mark(self.octets, self.octets.starts)
        self.fields = {name: Spans.none(self.ends) for name in (*FIELDS, "zone")}
        self.priorities, lengths = _priorities(self.octets, self.ends)
        self.ends = self.ends + lengths
        self._read(lengths > 0)
        self.ends = _behind_mark(self.octets, self.ends)
        self._leave_out_nil()

    def said(self, name: str) -> pa.Array[Any]:
        """A field, type binary; null where it is not said."""
        field = self.fields[name]
        filled: pa.Array[Any] = pa.array(field.filled)
        column: pa.Array[Any] = pc.if_else(filled, self.octets.texts(field.begins, field.ends), None)
        return column

    def _read(self, has_priority: Bools) -> None:
        left = np.ones(len(self.octets), np.bool_)
        first = self.octets.head(self.ends, self.octets.stops, 4)
        left[self._rfc5424(np.flatnonzero(has_priority & _says_version(first)))] = False
        with_mnemonic = np.zeros(len(self.octets), np.bool_)
        if len(rows := _with_mnemonic(self.octets, left, self.ends)):
            with_mnemonic[rows] = True
            left[self._matching(_CISCO, rows)] = False
            left[self._matching(_UNTIMED_CISCO, rows[left[rows]])] = False
        timed = self._timed(np.flatnonzero(left & _BEFORE_TIME[first[:, 0]]))
        repeated = self._host(timed)
        left[timed] = False
        tagged = np.sort(np.concatenate([timed, np.flatnonzero(left & has_priority)]))
        tagged = np.setdiff1d(tagged, repeated) if len(repeated) else tagged
        if with_mnemonic[tagged].any():
            tagged = np.setdiff1d(tagged, self._matching(_RELAYED_CISCO, tagged[with_mnemonic[tagged]]))
        self._tag(tagged)

    def _rfc5424(self, rows: Ints) -> Ints:
        """Read those of ``rows`` whose header is RFC 5424's; which ones these are."""
        if not len(rows):
            return rows
        at, stops = self.ends[rows], self.octets.stops[rows]
        spaces = self.octets.places(b" ")
        blanks = np.minimum(spaces[np.searchsorted(spaces, at)[:, None] + np.arange(6)], stops[:, None])
        time = self.octets.head(blanks[:, 0] + 1, stops, 11)
        timed = _is_date(time) | ((time[:, 0] == ord("-")) & (time[:, 1] == ord(" ")))
        fits = timed & (np.diff(blanks, axis=1) > 1).all(axis=1)
        padded: Ints = self._padded_rfc5424(rows[~fits])
        rows, blanks, stops = rows[fits], blanks[fits], stops[fits]
        for place, name in enumerate(FIELDS[:5]):
            self.fields[name].put(rows, blanks[:, place] + 1, blanks[:, place + 1])
        self.ends[rows] = np.minimum(blanks[:, 5] + 1, stops)
        read: Ints = np.sort(np.concatenate([rows, padded])) if len(padded) else rows
        self._structured_data(read)
        return read

    def _padded_rfc5424(self, rows: Ints) -> Ints:
        if not len(rows):
            return rows
        texts = self.octets.texts(self.ends[rows], self.octets.stops[rows])
        padded = pc.match_substring_regex(texts, rf"(?s)\A{_PADDED}(?:-(?: |\z)|\[)").to_numpy(zero_copy_only=False)
        return self._matching(_PADDED, rows[padded])

    def _structured_data(self, rows: Ints) -> None:
        at, stops = self.ends[rows], self.octets.stops[rows]
        first, second = self.octets.data[at], self.octets.data[at + 1]
        nil = (at < stops) & (first == ord("-")) & ((second == ord(" ")) | (at + 1 == stops))
        self.ends[rows[nil]] = np.minimum(at[nil] + 2, stops[nil])
        self._elements(rows[(at < stops) & (first == ord("["))])

    def _elements(self, rows: Ints) -> None:
        """Take the elements of structured data, where they are well-formed, and the space behind them."""
        if not len(rows):
            return
        octets = self.octets
        texts = octets.texts(self.ends[rows], octets.stops[rows])
        good = pc.match_substring_regex(texts, rf"(?s)\A{_SD}").to_numpy(zero_copy_only=False)
        escaped = octets.next(b"\\", self.ends[rows], octets.stops[rows]) < octets.stops[rows]
        self._matching(_SD, rows[good & escaped])
        rows = rows[good & ~escaped]
        begins = self.ends[rows]
        ends = _ends_of_elements(octets, begins, octets.stops[rows])
        self.fields["structured_data"].put(rows, begins, ends)
        self.ends[rows] = np.minimum(ends + 1, octets.stops[rows])

    def _timed(self, rows: Ints) -> Ints:
        """Take the time from those of ``rows`` that begin with one; which ones these are."""
        if not len(rows):
            return rows
        at, stops = self.ends[rows], self.octets.stops[rows]
        head = self.octets.head(at, stops, 16)
        stamped, dated = _is_stamp(head), _is_date(head)
        ends = np.where(stamped, at + 15, at)
        if dated.any():
            blank = self.octets.next(b" ", at, stops)
            dated &= blank < stops
            ends = np.where(dated, blank - (self.octets.data[blank - 1] == ord(":")), ends)
            self.ends[rows[dated]] = blank[dated] + 1
        self.ends[rows[stamped]] += 16
        plain = stamped | dated
        self.fields["timestamp"].put(rows[plain], at[plain], ends[plain])
        others = self._matching(_RFC3164, rows[~plain])
        slashed = rows[~plain & ((head[:, 2] == ord("/")) | (head[:, 3] == ord("/")))]
        timed: Ints = np.sort(np.concatenate([rows[plain], others, self._matching(_NETSCALER, slashed)]))
        return timed

    def _repeated_host(self, rows: Ints) -> Ints:
        """Take the host that NetApp ends with a colon, and repeats; which of ``rows`` have it."""
        if not len(rows):
            return rows
        octets, at, stops = self.octets, self.ends[rows], self.octets.stops[rows]
        colon = octets.next(b":", at, stops)
        again = np.minimum(colon + 2, stops)
        following = octets.next(b":", again, stops)
        alike = (colon > at) & (following - again == colon - at) & (following < stops)
        if not alike.any():
            return rows[:0]
        rows, at, colon, again, following = (each[alike] for each in (rows, at, colon, again, following))
        same = pc.equal(octets.texts(at, colon), octets.texts(again, following)).to_numpy(zero_copy_only=False)
        self.fields["hostname"].put(rows[same], at[same], colon[same])
        self.ends[rows[same]] = again[same]
        repeated: Ints = rows[same]
        return repeated

    def _host(self, rows: Ints) -> Ints:
        """Take the host: what stands behind a time up to a blank, unless it is a tag.

        Returns the rows whose host is repeated with colons, as NetApp writes it: they have no tag.
        """
        octets, at, stops = self.octets, self.ends[rows], self.octets.stops[rows]
        blank = octets.next(_BLANKS, at, stops)
        ends_well = (blank == stops) | (octets.data[blank] == ord(" "))
        is_host = (blank > at) & ends_well & (octets.next(b"[]", at, stops) >= blank)
        colon = octets.next(b":", at, blank)
        with_colon = np.flatnonzero(is_host & (colon < blank))
        is_host[with_colon] = self._are_addresses(at[with_colon], blank[with_colon])
        self.fields["hostname"].put(rows[is_host], at[is_host], blank[is_host])
        self.ends[rows] = np.where(is_host, np.minimum(blank + 1, stops), at)
        return self._repeated_host(rows[octets.data[blank - 1] == ord(":")])

    def _tag(self, rows: Ints) -> None:
        """Take ``name:`` and ``name[process]:`` from those of ``rows`` that go on so."""
        octets, at, stops = self.octets, self.ends[rows], self.octets.stops[rows]
        blank = octets.next(_BLANKS, at, stops)
        bracket = octets.next(b"[]", at, blank)
        colon = octets.next(b":", at, blank)
        has_process = (bracket < colon) & (octets.data[bracket] == ord("["))
        close = octets.next(b"]", bracket, blank)
        ends_with_colon = octets.data[close + 1] == ord(":")
        # Limit: RFC 3164, section 4.1.3, ends the tag at the first character that is no letter or digit.
        last = np.where(has_process, close + ends_with_colon, colon)
        name_ends = np.where(has_process, bracket, colon)
        is_tag = np.where(has_process, (close < blank) & (ends_with_colon | (close + 1 == blank)), colon < blank)
        if (touches := is_tag & (last + 1 < blank)).any():
            behind = octets.data[np.minimum(last + 1, len(octets.data) - 1)]
            is_tag &= ~touches | (_is_letter(octets.data[at]) & (name_ends - at > 1) & ~_BESIDE_COLON[behind])
        fits = (name_ends > at) & (bracket >= name_ends) & is_tag
        self.fields["app_name"].put(rows[fits], at[fits], name_ends[fits])
        with_process = fits & has_process
        self.fields["proc_id"].put(rows[with_process], bracket[with_process] + 1, close[with_process])
        text = np.where(last + 1 < blank, last + 1, np.minimum(blank + 1, stops))
        self.ends[rows] = np.where(fits, text, at)

    def _are_addresses(self, begins: Ints, ends: Ints) -> Bools:
        """Which texts are addresses of IPv6."""
        texts = self.octets.texts(begins, ends)
        address = r"\A[0-9a-fA-F:]*:[0-9a-fA-F:]*:[0-9a-fA-F:.]*(?:%\w+)?\z"
        found: Bools = pc.match_substring_regex(texts, address).to_numpy(zero_copy_only=False)
        return found

    def _matching(self, pattern: str, rows: Ints) -> Ints:
        """Read those of ``rows`` that go on as ``pattern`` says; which ones these are."""
        if not len(rows):
            return rows
        texts = self.octets.texts(self.ends[rows], self.octets.stops[rows])
        found = pc.extract_regex(texts, rf"(?s)\A{pattern}")
        rows = rows[found.is_valid().to_numpy(zero_copy_only=False)]
        found = found.filter(found.is_valid())
        begins = self.ends[rows]
        for group in found.type:
            ends = begins + np.diff(bounds(found.field(group.name)))
            self._put(group.name, rows, begins, ends)
            begins = ends
        self.ends[rows] = begins
        return rows

    def _put(self, group: str, rows: Ints, begins: Ints, ends: Ints) -> None:
        field = self.fields.get("hostname" if group == "device" else group)
        if field is not None:
            filled = ends > begins
            field.put(rows[filled], begins[filled], ends[filled])

    def _leave_out_nil(self) -> None:
        for field in self.fields.values():
            field.ends -= (field.ends == field.begins + 1) & (self.octets.data[field.begins] == ord("-"))


def _behind_mark(octets: Octets, at: Ints) -> Ints:
    """The places ``at``, behind the byte order mark where one stands there."""
    if not (octets.data[at] == _BOM[0]).any():
        return at
    marked: Bools = (octets.head(at, octets.stops, 3) == _BOM).all(axis=1)
    return at + 3 * marked


def _priorities(octets: Octets, at: Ints) -> tuple[Ints, Ints]:
    """The priority of each message, and how many bytes its PRI has; 0 where it has none."""
    first = octets.head(at, octets.stops, 5)
    close = (first == ord(">")).argmax(axis=1)
    digit = first.astype(np.int64) - ord("0")
    is_digit = (digit >= 0) & (digit <= 9)
    value = digit[:, 1]
    fits = (first[:, 0] == ord("<")) & (close >= 2) & is_digit[:, 1]
    for place in (2, 3):
        longer = close > place
        value = np.where(longer, value * 10 + digit[:, place], value)
        fits &= ~longer | (is_digit[:, place] & (digit[:, 1] > 0))
    fits &= value <= LAST_PRIORITY
    return np.where(fits, value, DEFAULT_PRIORITY), np.where(fits, close + 1, 0)


def _says_version(first: Bytes) -> Bools:
    """Whether a version stands there, in one to three digits, and a space behind it."""
    digit, space = _is_digit(first), first == ord(" ")
    two = digit[:, 1] & (space[:, 2] | (digit[:, 2] & space[:, 3]))
    found: Bools = digit[:, 0] & (first[:, 0] != ord("0")) & (space[:, 1] | two)
    return found


def _ends_of_elements(octets: Octets, begins: Ints, stops: Ints) -> Ints:
    """Where structured data ends that begins at ``begins``, well-formed and without escapes.

    That is behind the first ] that stands in no value and has no [ behind it.
    """
    quotes, closes = octets.places(b'"'), octets.places(b"]")[:-LOOKAHEAD]
    row = np.searchsorted(begins, closes, side="right") - 1
    closes, row = closes[row >= 0], row[row >= 0]
    quotes_before = np.searchsorted(quotes, closes) - np.searchsorted(quotes, begins)[row]
    is_last = (closes + 1 == stops[row]) | (octets.data[closes + 1] != ord("["))
    ending = (quotes_before % 2 == 0) & is_last & (closes < stops[row])
    first = np.unique(row[ending], return_index=True)[1]
    ends: Ints = closes[ending][first] + 1
    return ends


def _with_mnemonic(octets: Octets, among: Bools, begins: Ints) -> Ints:
    """Rows that have ``: %`` somewhere, or begin with ``%``, as what Cisco's devices send."""
    places = octets.places(b"%")
    places = places[(places >= 2) & (places < len(octets.data))]
    before = octets.data[places - 2]
    places = places[(octets.data[places - 1] == ord(" ")) & ((before == ord(":")) | (before == ord(" ")))]
    rows: Ints = np.unique(np.searchsorted(octets.starts, places, side="right") - 1)
    leading = np.flatnonzero((octets.data[begins] == ord("%")) & (begins < octets.stops))
    rows = np.union1d(rows, leading) if len(leading) else rows
    return rows[among[rows]]


_BEFORE_TIME = np.zeros(256, np.bool_)
_BEFORE_TIME[np.frombuffer(b" *.0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ", np.uint8)] = True


_BESIDE_COLON = np.zeros(256, np.bool_)
_BESIDE_COLON[np.frombuffer(b":/\\", np.uint8)] = True
"""Behind a colon that ends no tag: of an address, or a path."""


def _is_letter(octets: Bytes) -> Bools:
    found: Bools = ((octets | 0x20) - np.uint8(ord("a"))) < 26
    return found


def _is_digit(octets: Bytes) -> Bools:
    found: Bools = (octets - np.uint8(ord("0"))) < 10  # what is below wraps around
    return found


def _is_stamp(head: Bytes) -> Bools:
    """Whether RFC 3164's time stands there, and a space behind it."""
    found = (head[:, [3, 6, 15]] == ord(" ")).all(axis=1) & (head[:, [9, 12]] == ord(":")).all(axis=1)
    found &= _is_digit(head[:, _DIGITS_OF_STAMP]).all(axis=1) & (_is_digit(head[:, 4]) | (head[:, 4] == ord(" ")))
    letters: Bools = ((head[:, :3] | 0x20) - np.uint8(ord("a"))) < 26
    stamp: Bools = found & letters.all(axis=1)
    return stamp


def _is_date(head: Bytes) -> Bools:
    """Whether a date as in RFC 3339 stands there, and a T behind it."""
    found = (head[:, [4, 7]] == ord("-")).all(axis=1) & (head[:, 10] == ord("T"))
    date: Bools = found & _is_digit(head[:, _DIGITS_OF_DATE]).all(axis=1)
    return date
