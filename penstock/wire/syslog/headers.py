"""Headers of syslog messages: the position of each field, for whole batches at once.

Tried in order: RFC 5424, the formats of Cisco's devices, RFC 3164 as found in practice, then anything: a PRI alone, or
nothing, which means user.notice (RFC 3164, section 4.3.3). Invariant: nothing is refused; an unreadable header leaves
a message with fewer fields. numpy parses the common formats, RE2 the rare ones.
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
from penstock.wire.syslog.times import ZONE_NAMES

FACILITIES = (
    *("kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp"),
    *("ntp", "audit", "alert", "clock", *(f"local{i}" for i in range(8))),
)
SEVERITIES = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")
DEFAULT_PRIORITY = 13
MAX_PRIORITY = 191

_BOM = np.frombuffer(b"\xef\xbb\xbf", np.uint8)
# Repetitions have no numeric bounds: RE2 would unroll them and be ten times slower. The groups of a pattern are
# adjacent, so that their lengths determine their positions.
_SD = r'(?P<structured_data>(?:\[[^ =\]"]+(?: +[^ =\]"]+="(?:[^"\\]|\\.)*")* *\])+)(?P<after> |\z)'
"""RFC 5424, section 6.3. Malformed structured data stays in the message."""
_TIME = r"[0-9][0-9]:[0-9][0-9]:[0-9][0-9](?:[.,][0-9]+)?"
_TAG = r"[^\s:\[\]]+(?:\[[^\s\[\]]*\])?:(?:\s|\z)"
_STAMP = (
    rf"(?:[0-9][0-9][0-9][0-9] )?[A-Z][a-z][a-z] [ 0-9]?[0-9] (?:[0-9]+ )?{_TIME}"
    rf"|[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9](?:T[^ ]*[^ :]| {_TIME})"
    rf"|[0-9][0-9][0-9][0-9]:[0-9][0-9]:[0-9][0-9]-{_TIME}"  # Sophos
    # ISO 8601's basic format, whose digits must be possible: numbers of orders look like it.
    r"|[12][0-9][0-9][0-9][01][0-9][0-3][0-9]T[0-2][0-9][0-5][0-9][0-6][0-9](?:[.,][0-9]+)?"
    r"(?:Z|[+-][0-9][0-9]:?[0-9][0-9])?"
)
_PADDED = (
    r"(?P<version>[0-9]+ +)(?P<timestamp>-|[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]T[^ ]+)(?P<gap1> +)"
    r"(?P<hostname>[^ ]+)(?P<gap2> +)(?P<app_name>[^ ]+)(?P<gap3> +)(?P<proc_id>[^ ]+)(?P<gap4> +)(?P<msg_id>[^ ]+)"
    r"(?P<gap5> +)"
)
"""RFC 5424 with several spaces between fields; structured data or its nil must follow."""
_NETSCALER = (
    rf"(?P<before> ?)(?P<timestamp>[0-9][0-9]/[0-9][0-9]/[0-9][0-9][0-9][0-9]:{_TIME})(?P<blank> )"
    r"(?P<zone>(?:GMT|UTC)?)(?P<after> ?)"
)
_MNEMONIC = r"(?P<app_name>%[A-Z0-9_]+(?:-[A-Z0-9_]+)*-[0-7A-Z]-[A-Z0-9_]+)(?P<last> ?:(?:\s|\z))"
_ORIGIN = r"(?:[A-Za-z][^\s:*\[]*|[0-9][0-9A-Za-z]*[.-][^\s:*\[]*)"
"""A device's name or address, which is neither a counter nor an uptime."""
_UNTIMED_CISCO = (
    rf"(?P<before> ?(?:[0-9]+: )*)(?P<hostname>(?:{_ORIGIN})?)(?P<colon>(?:: (?:[0-9]+: )?)?)"
    r"(?P<uptime>(?:(?:(?:[0-9]+[ywdhms])+|[0-9]+:[0-9][0-9]:[0-9][0-9](?:\.[0-9]+)?): )?)" + _MNEMONIC
)
"""Cisco's devices without a time, or with their uptime."""
_RELAYED_CISCO = (
    rf"(?P<before> *(?:(?:[0-9]+: )+(?:{_ORIGIN}: )?(?:[0-9]+: )?)?(?:[*.]?(?:{_STAMP})(?: [A-Z]+)?: )?)" + _MNEMONIC
)
"""Cisco messages that a relay has prefixed with its own time and host."""
_RFC3164 = rf"(?P<before> ?(?:[0-9]+: )?[*.]?)(?P<timestamp>{_STAMP})(?P<after>:? )"
"""Variants of RFC 3164's time: with year, fraction, sequence number, or the mark of an unset clock."""
_OFFSET = r"[+-](?:0[0-9]|1[0-4]):?[0-5][0-9]"
_ZONE = rf"(?P<zone>(?:{'|'.join(ZONE_NAMES)})|{_OFFSET})(?P<end>:? )"
_HOST_AND_TAG = rf"[^\s:\[\]]*[0-9.-][^\s:\[\]]* {_TAG}|[^\s:\[\]]+ [^\s:\[\]]+\[[^\s\[\]]+\]:(?:\s|\z)"
_IS_ZONE = rf"(?s)\A(?:{_OFFSET} |(?:{'|'.join(ZONE_NAMES)})(?:: | (?:{_HOST_AND_TAG})))"
"""A zone between time and host, or before the text. A zone's name before a tag is a host, and so is one before words
that end with a colon: the host behind a zone has a digit, a dot or a hyphen, or its tag has a process id.
"""


def _cisco(counters: str, zone: str) -> str:
    return (
        rf"(?P<before> ?{counters})(?P<hostname>(?:[^\s:*.][^\s:*]*)?)"
        rf"(?P<colon>(?: [0-9A-Za-z]+/[^\s:]+)?(?::(?: [0-9]+:)? ?| )?[*.]?)(?P<timestamp>{_STAMP})"
        rf"(?:(?P<blank> ?)(?P<zone>{zone})(?P<direct>: )"
        rf"|(?P<gap> )(?P<named_zone>{'|'.join(ZONE_NAMES)})(?P<spaced> : )"
        r"|(?P<left> )(?P<device>[^\s:]+)(?P<right> : )|(?P<apart> : ))"
        r"(?P<process>(?:[^\s:\[]+\[)?)(?P<proc_id>[0-9]*)(?P<close>(?:\]: )?)"
        r"(?P<app_name>%[^\s:]+)(?P<after> ?:(?:\s|\z))"
    )


_CISCO = (_cisco(r"(?:[0-9]+: )*", r"[A-Z]*"), _cisco(r"(?:[0-9]+: )+", r"[A-Za-z][^\s:]*"))
"""IOS, IOS XR, NX-OS and ASA: counters, an origin and a node, a zone's name, a host after the time, and a mnemonic as
the tag. Operators name zones freely (``NewYork``); without a counter such a name is a tag.
"""
_COMWARE = (
    rf"(?P<before> ?)(?P<timestamp>[A-Z][a-z][a-z] [ 0-9]?[0-9] {_TIME} [0-9][0-9][0-9][0-9])(?P<blank> )"
    r"(?P<hostname>[^ ]+)(?P<gap> )(?P<app_name>%%[^\s:]+)(?P<after>:(?:\s|\z))"
)
"""H3C's and HPE's Comware: the year follows the time, and two percent signs begin the mnemonic."""
_FIELD_OF_GROUP = {"device": "hostname", "named_zone": "zone"}
"""Fields of groups that have another name, because names of groups are unique in a pattern."""
_UNIFI = r"\A(?:[^\s:,]+,)?[0-9a-f]+,v[0-9.]+:\z"
"""Ubiquiti's access points: model, MAC address and version, in place of a host."""
_BLANKS = b" \t\n\f\r"
_DIGITS_OF_STAMP = [5, 7, 8, 10, 11, 13, 14]
_DIGITS_OF_DATE = [0, 1, 2, 3, 5, 6, 8, 9]


class Headers:
    """Header fields of n messages, as positions in ``octets``.

    ``priorities``: int64 (n,), DEFAULT_PRIORITY if missing. ``fields``: the span of each of FIELDS, and of ``zone``,
    the name of the timestamp's zone; empty if missing. ``ends``: int64 (n,), the start of the message after the
    header. ``is_local``: of this host's own programs, whose RFC 3164 headers have no host: the tag follows the time.
    """

    def __init__(self, messages: pa.Array[Any], *, is_local: bool = False) -> None:
        self.octets, self._is_local = Octets(messages), is_local
        self.ends = _skip_byte_order_mark(self.octets, self.octets.starts)
        self.fields = {name: Spans.empty_at(self.ends) for name in (*FIELDS, "zone")}
        self.priorities, lengths = _priorities(self.octets, self.ends)
        self.ends = self.ends + lengths
        self._parse(lengths > 0)
        self.ends = _skip_byte_order_mark(self.octets, self.ends)
        self._clear_nil()

    def column(self, name: str) -> pa.Array[Any]:
        """Return a field as type binary; null if missing."""
        field = self.fields[name]
        filled: pa.Array[Any] = pa.array(field.filled)
        column: pa.Array[Any] = pc.if_else(filled, self.octets.texts(field.begins, field.ends), None)
        return column

    def _parse(self, has_priority: Bools) -> None:
        is_unparsed = np.ones(len(self.octets), np.bool_)
        first = self.octets.head(self.ends, self.octets.stops, 4)
        is_unparsed[self._parse_rfc5424(np.flatnonzero(has_priority & _has_version(first)))] = False
        with_mnemonic = np.zeros(len(self.octets), np.bool_)
        # The slow patterns of Cisco run only on messages that contain a mnemonic's marker.
        if len(rows := _rows_with_mnemonic(self.octets, is_unparsed, self.ends)):
            with_mnemonic[rows] = True
            for pattern in (*_CISCO, _UNTIMED_CISCO):
                is_unparsed[self._parse_by_pattern(pattern, rows[is_unparsed[rows]])] = False
        if len(rows := _rows_with_two_percent_signs(self.octets, is_unparsed)):
            is_unparsed[self._parse_by_pattern(_COMWARE, rows)] = False
        # Fast path: few messages without a time have a blank behind three letters.
        may_have_time = _BEFORE_TIME[first[:, 0]] | ((first[:, 3] == ord(" ")) & _is_letter(first[:, 0]))
        timed = self._parse_time(np.flatnonzero(is_unparsed & may_have_time))
        repeated = timed[:0] if self._is_local else self._parse_host(self._parse_zone(timed))
        is_unparsed[timed] = False
        tagged = np.sort(np.concatenate([timed, np.flatnonzero(is_unparsed & has_priority)]))
        tagged = np.setdiff1d(tagged, repeated) if len(repeated) else tagged
        if with_mnemonic[tagged].any():
            tagged = np.setdiff1d(tagged, self._parse_by_pattern(_RELAYED_CISCO, tagged[with_mnemonic[tagged]]))
        self._parse_tag(tagged)

    def _parse_rfc5424(self, rows: Ints) -> Ints:
        """Parse RFC 5424 headers among ``rows``; return the rows that have one."""
        if not len(rows):
            return rows
        begins, stops = self.ends[rows], self.octets.stops[rows]
        spaces = self.octets.positions(b" ")
        blanks = np.minimum(spaces[np.searchsorted(spaces, begins)[:, None] + np.arange(6)], stops[:, None])
        time = self.octets.head(blanks[:, 0] + 1, stops, 11)
        timed = _is_date(time) | ((time[:, 0] == ord("-")) & (time[:, 1] == ord(" ")))
        short = self._begin_text(blanks, stops, np.flatnonzero(timed))
        timed[short] = False
        fits = timed & (np.diff(blanks, axis=1) > 1).all(axis=1)
        is_padded = ~fits
        is_padded[short] = False
        padded, rows_of_text = self._parse_padded_rfc5424(rows[is_padded]), rows[short]
        if len(short):
            for index, name in enumerate(FIELDS[:2]):
                self.fields[name].assign(rows_of_text, blanks[short, index] + 1, blanks[short, index + 1])
            self.ends[rows_of_text] = blanks[short, 2] + 1
            self._parse_tag(rows_of_text[self.octets.data[self.ends[rows_of_text]] != ord("{")])
        rows, blanks, stops = rows[fits], blanks[fits], stops[fits]
        for index, name in enumerate(FIELDS[:5]):
            self.fields[name].assign(rows, blanks[:, index] + 1, blanks[:, index + 1])
        self.ends[rows] = np.minimum(blanks[:, 5] + 1, stops)
        parsed: Ints = np.sort(np.concatenate([rows, padded])) if len(padded) else rows
        self._parse_structured_data(parsed)
        return np.concatenate([parsed, rows_of_text]) if len(short) else parsed

    def _begin_text(self, blanks: Ints, stops: Ints, among: Ints) -> Ints:
        """Return the indices of texts directly behind the host: CyberArk's CEF, LEEF, JSON, or an RFC 3164 tag.

        A name with a colon is a tag if no structured data follow where RFC 5424 has them.
        """
        data, size = self.octets.data, len(self.octets.data) - 1
        begins, following = blanks[among, 2] + 1, blanks[among, 5] + 1
        first, behind = data[np.minimum(begins, size)], data[np.minimum(following, size)]
        has_data = (following < stops[among]) & ((behind == ord("-")) | (behind == ord("[")))
        # Fast path: most messages have structured data or their nil, and few names begin like an event format.
        candidates = np.flatnonzero(~has_data | (first == ord("C")) | (first == ord("L")))
        if not len(candidates):
            return candidates
        indices, ends = among[candidates], blanks[among[candidates], 3]
        is_tag = ~has_data[candidates] & (ends < stops[indices]) & (data[np.minimum(ends, size) - 1] == ord(":"))
        heads = self.octets.head(begins[candidates], stops[indices], 5)
        is_json = ~has_data[candidates] & (heads[:, 0] == ord("{"))
        begin_text: Ints = indices[_begins_event_format(heads) | is_tag | is_json]
        return begin_text

    def _parse_padded_rfc5424(self, rows: Ints) -> Ints:
        if not len(rows):
            return rows
        texts = self.octets.texts(self.ends[rows], self.octets.stops[rows])
        padded = pc.match_substring_regex(texts, rf"(?s)\A{_PADDED}(?:-(?: |\z)|\[)").to_numpy(zero_copy_only=False)
        return self._parse_by_pattern(_PADDED, rows[padded])

    def _parse_structured_data(self, rows: Ints) -> None:
        begins, stops = self.ends[rows], self.octets.stops[rows]
        first, second = self.octets.data[begins], self.octets.data[begins + 1]
        nil = (begins < stops) & (first == ord("-")) & ((second == ord(" ")) | (begins + 1 == stops))
        self.ends[rows[nil]] = np.minimum(begins[nil] + 2, stops[nil])
        self._parse_elements(rows[(begins < stops) & (first == ord("["))])

    def _parse_elements(self, rows: Ints) -> None:
        """Parse well-formed elements of structured data, and skip the space after them."""
        if not len(rows):
            return
        octets = self.octets
        texts = octets.texts(self.ends[rows], octets.stops[rows])
        is_well_formed = pc.match_substring_regex(texts, rf"(?s)\A{_SD}").to_numpy(zero_copy_only=False)
        escaped = octets.next(b"\\", self.ends[rows], octets.stops[rows]) < octets.stops[rows]
        # Fast path: without escapes, counting quotes finds the end; only escaped elements need the regular expression.
        self._parse_by_pattern(_SD, rows[is_well_formed & escaped])
        rows = rows[is_well_formed & ~escaped]
        begins = self.ends[rows]
        ends = _ends_of_elements(octets, begins, octets.stops[rows])
        self.fields["structured_data"].assign(rows, begins, ends)
        self.ends[rows] = np.minimum(ends + 1, octets.stops[rows])

    def _parse_time(self, rows: Ints) -> Ints:
        """Parse a leading time among ``rows``; return the rows that have one."""
        if not len(rows):
            return rows
        begins, stops = self.ends[rows], self.octets.stops[rows]
        head = self.octets.head(begins, stops, 16)
        stamped, dated = _is_stamp(head), _is_date(head)
        ends = np.where(stamped, begins + 15, begins)
        if dated.any():
            blank = self.octets.next(b" ", begins, stops)
            dated &= blank < stops
            ends = np.where(dated, blank - (self.octets.data[blank - 1] == ord(":")), ends)
            self.ends[rows[dated]] = blank[dated] + 1
        self.ends[rows[stamped]] += 16
        years = self._years_after(rows, stamped)
        ends[years] += 5
        self.ends[rows[years]] += 5
        plain = stamped | dated
        self.fields["timestamp"].assign(rows[plain], begins[plain], ends[plain])
        by_pattern = self._parse_by_pattern(_RFC3164, rows[~plain])
        self._parse_year_after(by_pattern)
        slashed = rows[~plain & ((head[:, 2] == ord("/")) | (head[:, 3] == ord("/")))]
        timed: Ints = np.sort(np.concatenate([rows[plain], by_pattern, self._parse_by_pattern(_NETSCALER, slashed)]))
        return timed

    def _parse_year_after(self, rows: Ints) -> None:
        """Add the year that follows the time of ``rows``, if the time is a month, a day and a clock without one."""
        field = self.fields["timestamp"]
        head = self.octets.head(field.begins[rows], field.ends[rows], 10)
        lacks_year = _is_letter(head[:, 0]) & ((head[:, 8] == ord(":")) | (head[:, 9] == ord(":")))
        rows = rows[self._years_after(rows, lacks_year)]
        field.ends[rows] = self.ends[rows] + 4
        self.ends[rows] += 5

    def _years_after(self, rows: Ints, stamped: Bools) -> Ints:
        """Return the indices of ``rows`` whose time is followed by a year, as Aruba's controllers send it."""
        begins, stops = self.ends[rows], self.octets.stops[rows]
        first = self.octets.data[np.minimum(begins, stops)]
        # Fast path: most hosts begin with a letter.
        candidates = np.flatnonzero(stamped & ((first == ord("1")) | (first == ord("2"))))
        if not len(candidates):
            return candidates
        following = self.octets.head(begins[candidates], stops[candidates], 5)
        is_year = np.logical_or.reduce([(following[:, :2] == list(century)).all(axis=1) for century in (b"19", b"20")])
        is_year &= _is_digit(following[:, 2:4]).all(axis=1) & (following[:, 4] == ord(" "))
        years: Ints = candidates[is_year]
        return years

    def _parse_zone(self, rows: Ints) -> Ints:
        """Parse a zone between the time and the host of ``rows``; return the rows that may have a host.

        The text follows a zone with a colon.
        """
        hosted = rows
        following = self.octets.head(self.ends[rows], self.octets.stops[rows], 2)
        # Fast path: few hosts begin with two upper-case letters or a sign.
        is_name = (following - np.uint8(ord("A")) < 26).all(axis=1)
        rows = rows[is_name | (following[:, 0] == ord("+")) | (following[:, 0] == ord("-"))]
        if not len(rows):
            return hosted
        texts = self.octets.texts(self.ends[rows], self.octets.stops[rows])
        rows = rows[pc.match_substring_regex(texts, _IS_ZONE).to_numpy(zero_copy_only=False)]
        rows = self._parse_by_pattern(_ZONE, rows)
        may_have_host: Ints = np.setdiff1d(hosted, rows[self.octets.data[self.ends[rows] - 2] == ord(":")])
        return may_have_host

    def _parse_repeated_host(self, rows: Ints) -> Ints:
        """Parse the host that NetApp ends with a colon and repeats; return the rows that have it."""
        if not len(rows):
            return rows
        octets, begins, stops = self.octets, self.ends[rows], self.octets.stops[rows]
        colon = octets.next(b":", begins, stops)
        second_begins = np.minimum(colon + 2, stops)
        following = octets.next(b":", second_begins, stops)
        alike = (colon > begins) & (following - second_begins == colon - begins) & (following < stops)
        if not alike.any():
            return rows[:0]
        rows, begins, colon, second_begins, following = (
            each[alike] for each in (rows, begins, colon, second_begins, following)
        )
        is_repeated = pc.equal(octets.texts(begins, colon), octets.texts(second_begins, following)).to_numpy(
            zero_copy_only=False
        )
        self.fields["hostname"].assign(rows[is_repeated], begins[is_repeated], colon[is_repeated])
        self.ends[rows[is_repeated]] = second_begins[is_repeated]
        repeated: Ints = rows[is_repeated]
        return repeated

    def _parse_host(self, rows: Ints) -> Ints:
        """Parse the host: the text after a time up to a blank, unless it is a tag.

        Return the rows whose host is repeated with colons, as NetApp writes it: they have no tag.
        """
        if not len(rows):
            return rows
        octets, begins, stops = self.octets, self.ends[rows], self.octets.stops[rows]
        blank = octets.next(_BLANKS, begins, stops)
        ends_well = (blank == stops) | (octets.data[blank] == ord(" "))
        # A tab ends a host only in front of a tag: without one the text has begun.
        if len(tabbed := np.flatnonzero((blank < stops) & (octets.data[blank] == ord("\t")))):
            word, word_ends = blank[tabbed] + 1, octets.next(_BLANKS, blank[tabbed] + 1, stops[tabbed])
            ends_well[tabbed] = octets.next(b":", word, word_ends) < word_ends
        is_host = (blank > begins) & ends_well & (octets.next(b"[]", begins, stops) >= blank)
        colon = octets.next(b":", begins, blank)
        if len(with_colon := np.flatnonzero(is_host & (colon < blank))):
            is_host[with_colon] = self._are_addresses(begins[with_colon], blank[with_colon])
        is_host = self._without_field(is_host, begins, blank)
        self.fields["hostname"].assign(rows[is_host], begins[is_host], blank[is_host])
        self.ends[rows] = np.where(is_host, np.minimum(blank + 1, stops), begins)
        with_end = octets.data[blank - 1] == ord(":")
        self._parse_unifi_host(rows[with_end], begins[with_end], blank[with_end])
        return self._parse_repeated_host(rows[with_end])

    def _parse_unifi_host(self, rows: Ints, begins: Ints, blank: Ints) -> None:
        """Parse the host that Ubiquiti's access points end with a colon."""
        if not len(rows):
            return
        is_host = pc.match_substring_regex(self.octets.texts(begins, blank), _UNIFI).to_numpy(zero_copy_only=False)
        self.fields["hostname"].assign(rows[is_host], begins[is_host], blank[is_host] - 1)
        self.ends[rows[is_host]] = np.minimum(blank[is_host] + 1, self.octets.stops[rows[is_host]])

    def _parse_tag(self, rows: Ints) -> None:
        """Parse ``name:`` and ``name[process]:`` among ``rows``."""
        if not len(rows):
            return
        octets, begins, stops = self.octets, self.ends[rows], self.octets.stops[rows]
        blank = octets.next(_BLANKS, begins, stops)
        bracket = octets.next(b"[]", begins, blank)
        colon = octets.next(b":", begins, blank)
        has_process = (bracket < colon) & (octets.data[bracket] == ord("["))
        close = octets.next(b"]", bracket, blank)
        ends_with_colon = octets.data[close + 1] == ord(":")
        # Limit: RFC 3164, section 4.1.3, ends the tag at the first character that is not a letter or digit.
        last = np.where(has_process, close + ends_with_colon, colon)
        name_ends = np.where(has_process, bracket, colon)
        is_tag = np.where(has_process, (close < blank) & (ends_with_colon | (close + 1 == blank)), colon < blank)
        if (touches := is_tag & (last + 1 < blank)).any():
            following = octets.data[np.minimum(last + 1, len(octets.data) - 1)]
            is_name = _is_letter(octets.data[begins]) & (name_ends - begins > 1) & ~_NEAR_COLON[following]
            is_tag &= ~touches | (is_name & ~_begins_event_format(octets.head(begins, stops, 5)))
        fits = self._without_field((name_ends > begins) & (bracket >= name_ends) & is_tag, begins, name_ends)
        self.fields["app_name"].assign(rows[fits], begins[fits], name_ends[fits])
        with_process = fits & has_process
        self.fields["proc_id"].assign(rows[with_process], bracket[with_process] + 1, close[with_process])
        text = np.where(last + 1 < blank, last + 1, np.minimum(blank + 1, stops))
        self.ends[rows] = np.where(fits, text, begins)

    def _without_field(self, are_words: Bools, begins: Ints, ends: Ints) -> Bools:
        """Return ``are_words`` without words with an equals sign: they begin a text of fields (``id=firewall``)."""
        signs = self.octets.equals_signs
        # Fast path: few rounds have an equals sign, and this one pass over the bytes is shared by hosts and tags.
        if len(signs) > LOOKAHEAD:
            are_words &= signs[np.searchsorted(signs, begins)] >= ends
        return are_words

    def _are_addresses(self, begins: Ints, ends: Ints) -> Bools:
        """Return a mask of the texts that are IPv6 addresses."""
        texts = self.octets.texts(begins, ends)
        address = r"\A[0-9a-fA-F:]*:[0-9a-fA-F:]*:[0-9a-fA-F:.]*(?:%\w+)?\z"
        is_address: Bools = pc.match_substring_regex(texts, address).to_numpy(zero_copy_only=False)
        return is_address

    def _parse_by_pattern(self, pattern: str, rows: Ints) -> Ints:
        """Parse rows that continue like ``pattern``; return these rows."""
        if not len(rows):
            return rows
        texts = self.octets.texts(self.ends[rows], self.octets.stops[rows])
        groups = pc.extract_regex(texts, rf"(?s)\A{pattern}")
        rows = rows[groups.is_valid().to_numpy(zero_copy_only=False)]
        groups = groups.filter(groups.is_valid())
        begins = self.ends[rows]
        for group in groups.type:
            ends = begins + np.diff(bounds(groups.field(group.name)))
            self._assign_group(group.name, rows, begins, ends)
            begins = ends
        self.ends[rows] = begins
        return rows

    def _assign_group(self, group: str, rows: Ints, begins: Ints, ends: Ints) -> None:
        field = self.fields.get(_FIELD_OF_GROUP.get(group, group))
        if field is not None:
            filled = ends > begins
            field.assign(rows[filled], begins[filled], ends[filled])

    def _clear_nil(self) -> None:
        for field in self.fields.values():
            field.ends -= (field.ends == field.begins + 1) & (self.octets.data[field.begins] == ord("-"))


def _skip_byte_order_mark(octets: Octets, positions_of_text: Ints) -> Ints:
    """Return the positions after a byte order mark, if there is one."""
    if not (octets.data[positions_of_text] == _BOM[0]).any():
        return positions_of_text
    has_mark: Bools = (octets.head(positions_of_text, octets.stops, 3) == _BOM).all(axis=1)
    return positions_of_text + 3 * has_mark


def _priorities(octets: Octets, begins: Ints) -> tuple[Ints, Ints]:
    """Return the priority of each message, and the length of its PRI; 0 without one."""
    first = octets.head(begins, octets.stops, 5)
    close = (first == ord(">")).argmax(axis=1)
    digit = first.astype(np.int64) - ord("0")
    is_digit = (digit >= 0) & (digit <= 9)
    priority = digit[:, 1]
    fits = (first[:, 0] == ord("<")) & (close >= 2) & is_digit[:, 1]
    for index in (2, 3):
        longer = close > index
        priority = np.where(longer, priority * 10 + digit[:, index], priority)
        fits &= ~longer | (is_digit[:, index] & (digit[:, 1] > 0))
    fits &= priority <= MAX_PRIORITY
    return np.where(fits, priority, DEFAULT_PRIORITY), np.where(fits, close + 1, 0)


def _has_version(first: Bytes) -> Bools:
    """Report whether a version of one to three digits and a space comes first."""
    digit, space = _is_digit(first), first == ord(" ")
    two = digit[:, 1] & (space[:, 2] | (digit[:, 2] & space[:, 3]))
    has_version: Bools = digit[:, 0] & (first[:, 0] != ord("0")) & (space[:, 1] | two)
    return has_version


def _ends_of_elements(octets: Octets, begins: Ints, stops: Ints) -> Ints:
    """Return the end of the structured data at ``begins``, well-formed and without escapes.

    The end follows the first ] that is outside a value and has no [ after it.
    """
    quotes, closes = octets.positions(b'"'), octets.positions(b"]")[:-LOOKAHEAD]
    row = np.searchsorted(begins, closes, side="right") - 1
    closes, row = closes[row >= 0], row[row >= 0]
    quotes_before = np.searchsorted(quotes, closes) - np.searchsorted(quotes, begins)[row]
    is_last = (closes + 1 == stops[row]) | (octets.data[closes + 1] != ord("["))
    ending = (quotes_before % 2 == 0) & is_last & (closes < stops[row])
    first = np.unique(row[ending], return_index=True)[1]
    ends: Ints = closes[ending][first] + 1
    return ends


def _rows_with_mnemonic(octets: Octets, among: Bools, begins: Ints) -> Ints:
    """Return rows that contain ``: %`` or begin with ``%``, like messages of Cisco's devices."""
    if not among.any():
        return np.zeros(0, np.int64)
    positions = octets.positions(b"%")
    positions = positions[(positions >= 2) & (positions < len(octets.data))]
    before = octets.data[positions - 2]
    positions = positions[(octets.data[positions - 1] == ord(" ")) & ((before == ord(":")) | (before == ord(" ")))]
    rows: Ints = np.unique(np.searchsorted(octets.starts, positions, side="right") - 1)
    leading = np.flatnonzero((octets.data[begins] == ord("%")) & (begins < octets.stops))
    rows = np.union1d(rows, leading) if len(leading) else rows
    return rows[among[rows]]


def _rows_with_two_percent_signs(octets: Octets, among: Bools) -> Ints:
    positions = octets.positions(b"%")
    positions = positions[(positions > 0) & (positions < len(octets.data))]
    pairs = positions[(octets.data[positions - 1] == ord(" ")) & (octets.data[positions + 1] == ord("%"))]
    rows: Ints = np.unique(np.searchsorted(octets.starts, pairs, side="right") - 1)
    return rows[among[rows]]


_BEFORE_TIME = np.zeros(256, np.bool_)
_BEFORE_TIME[np.frombuffer(b" *.0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ", np.uint8)] = True


_NEAR_COLON = np.zeros(256, np.bool_)
_NEAR_COLON[np.frombuffer(b":/\\", np.uint8)] = True
"""Characters after a colon that is part of an address or a path, and ends no tag."""


def _begins_event_format(head: Bytes) -> Bools:
    """Report whether ArcSight's CEF or QRadar's LEEF comes first: its name and version are the begin of the text."""
    begins_format: Bools = (head[:, :4] == list(b"CEF:")).all(axis=1) | (head == list(b"LEEF:")).all(axis=1)
    return begins_format


def _is_letter(octets: Bytes) -> Bools:
    is_letter: Bools = ((octets | 0x20) - np.uint8(ord("a"))) < 26
    return is_letter


def _is_digit(octets: Bytes) -> Bools:
    is_digit: Bools = (octets - np.uint8(ord("0"))) < 10  # unsigned: smaller bytes wrap around
    return is_digit


def _is_stamp(head: Bytes) -> Bools:
    """Report whether RFC 3164's time and a space come first."""
    has_shape = (head[:, [3, 6, 15]] == ord(" ")).all(axis=1) & (head[:, [9, 12]] == ord(":")).all(axis=1)
    has_shape &= _is_digit(head[:, _DIGITS_OF_STAMP]).all(axis=1) & (_is_digit(head[:, 4]) | (head[:, 4] == ord(" ")))
    letters: Bools = ((head[:, :3] | 0x20) - np.uint8(ord("a"))) < 26
    stamp: Bools = has_shape & letters.all(axis=1)
    return stamp


def _is_date(head: Bytes) -> Bools:
    """Report whether an RFC 3339 date and a T come first."""
    has_shape = (head[:, [4, 7]] == ord("-")).all(axis=1) & (head[:, 10] == ord("T"))
    date: Bools = has_shape & _is_digit(head[:, _DIGITS_OF_DATE]).all(axis=1)
    return date
