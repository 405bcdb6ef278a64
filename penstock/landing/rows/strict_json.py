"""Check that texts are strict JSON (RFC 8259) where DuckDB's parser may be too lenient.

DuckDB accepts NaN, Infinity and a comma before a closing bracket; other engines refuse such texts. Suspect texts are
recognized by a scan of all bytes, and only these are judged by Python's parser. Limit: nesting deeper than MAX_DEPTH
is refused, because Spark's parser ends there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from penstock.landing.rows.engine import Bytes, Mask, Places, as_mask, byte_mask, pc, rows_with, text_bytes
from penstock.wire.json_text import MAX_DEPTH, deep_recursion

_PIECE = 128 << 10
"""Bytes scanned at once, so that a piece and its masks stay in the processor's cache."""
_BLANKS = b" \t\n\f\r"
_WORD = r"-?(?i:nan|inf|infinity)\s*[,\]}]"
_SUSPECT = (r",\s*(?:[\]}]|" + _WORD + ")", r":\s*" + _WORD, r"\[\s*" + _WORD)
"""Each begins with one fixed character: RE2 searches for it alone, and the three cost less than one pattern."""
_BEFORE, _AFTER = byte_mask(_BLANKS + b",:[-"), byte_mask(_BLANKS + b",]}iI")
_MARKS = byte_mask(b'[]{}"')
_LEVELS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.DOTALL)


class _NotStrict(ValueError):
    """JSON that Python accepts and other parsers refuse."""


def not_strict(texts: pa.Array[Any]) -> Mask:
    """Return a mask of the texts that are not strict JSON although DuckDB may accept them; null is False."""
    is_refused = np.zeros(len(texts), bool)
    for row in np.flatnonzero(_is_suspect(texts)).tolist():
        is_refused[row] = not is_strict(texts[row].as_py())
    return is_refused


def _is_suspect(texts: pa.Array[Any]) -> Mask:
    is_suspect = as_mask(pc.greater_equal(pc.binary_length(texts), pa.scalar(2 * MAX_DEPTH, pa.int32())))
    # Fast path: a text that is nested too deep has more than MAX_DEPTH opening brackets. Counting these in the bytes of
    # all long texts takes a ninth of the time of parsing (events of 3 KB with many fields).
    if is_suspect.any():
        offsets, content = text_bytes(texts.filter(pa.array(is_suspect)))
        openings = np.flatnonzero((content | np.uint8(32)) == ord("{"))
        is_suspect[is_suspect] = np.diff(np.searchsorted(openings, offsets - offsets[0])) > MAX_DEPTH
    # Fast path: large flat events have that many brackets, too. Python's parser would judge 5 MB/s.
    if is_suspect.any():
        levels = [_deepest_levels(piece) for piece in _pieces(texts.filter(pa.array(is_suspect)))]
        is_suspect[is_suspect] = np.concatenate(levels) > MAX_DEPTH
    # Fast path: the scan of bytes takes half the time of the patterns, which then run on few texts.
    rows = rows_with(texts, _find_lax_bytes)
    if rows.any():
        likely_texts = texts.filter(pa.array(rows))
        masks = [as_mask(pc.match_substring_regex(likely_texts, pattern)) for pattern in _SUSPECT]
        is_suspect[rows] |= np.logical_or.reduce(masks)
    return is_suspect


def _pieces(texts: pa.Array[Any]) -> Iterator[pa.Array[Any]]:
    """Yield runs of texts of about _PIECE bytes."""
    offsets, content = text_bytes(texts)
    cuts = np.searchsorted(offsets - offsets[0], np.arange(0, len(content), _PIECE)).tolist()
    for begin, end in pairwise(dict.fromkeys([*cuts, len(texts)])):
        yield texts.slice(begin, end - begin)


def _deepest_levels(texts: pa.Array[Any]) -> Places:
    """Return how deep each text is nested; exact for texts that are JSON."""
    offsets, content = text_bytes(texts)
    marks = _unescaped_marks(content)
    octets = content[marks]
    is_quote = octets == ord('"')
    firsts = np.searchsorted(marks, offsets - offsets[0])
    quotes = np.concatenate([[0], np.cumsum(is_quote)])
    quotes_of_text = quotes[1:] - np.repeat(quotes[firsts[:-1]], np.diff(firsts))
    is_bracket = ~is_quote & (quotes_of_text % 2 == 0)
    # Closing brackets differ from opening ones in this bit.
    steps = np.where(octets & 4, -1, 1) * is_bracket
    levels = np.concatenate([[0], np.cumsum(steps)])
    highest = np.maximum(np.maximum.reduceat(levels, firsts[:-1]), levels[firsts[1:]])
    deepest: Places = np.where(np.diff(firsts) > 0, highest - levels[firsts[:-1]], 0)
    return deepest


def _unescaped_marks(content: Bytes) -> Places:
    """Return the positions of brackets, and of quotes that no odd number of backslashes precedes."""
    # This mask leaves [ ] { } and few other characters, which the next line drops.
    is_mark = ((content & np.uint8(0xD9)) == ord("Y")) | (content == ord('"'))
    marks = np.flatnonzero(is_mark)
    marks = marks[_MARKS[content[marks]]]
    backslashes = np.flatnonzero(content == ord("\\"))
    if not len(backslashes):
        return marks
    order = np.arange(len(backslashes))
    begins_run = np.concatenate([[True], np.diff(backslashes) > 1])
    run_lengths = order - np.maximum.accumulate(np.where(begins_run, order, 0)) + 1
    before = np.searchsorted(backslashes, marks) - 1
    is_preceded = (before >= 0) & (backslashes[before] == marks - 1) & (run_lengths[before] % 2 == 1)
    unescaped: Places = marks[~(is_preceded & (content[marks] == ord('"')))]
    return unescaped


def _find_lax_bytes(content: Bytes) -> Places:
    """Return positions where one of the patterns may match; more positions than the patterns have matches."""
    starts = range(0, len(content), _PIECE)
    words, ends = zip(*(_candidates(content, start) for start in starts), strict=True) if starts else ((), ())
    return np.concatenate([*(_words(content, positions) for positions in words), *ends, np.empty(0, np.intp)])


def _candidates(content: Bytes, start: int) -> tuple[Places, Places]:
    """Return in a piece the positions of ``na`` and ``in`` in any case, and of brackets after a comma or blank."""
    piece = content[start : start + _PIECE + 1]
    lower, preceding = piece | np.uint8(32), piece[:-1]
    is_n = lower == ord("n")
    words = (is_n[:-1] & (lower[1:] == ord("a"))) | ((lower[:-1] == ord("i")) & is_n[1:])
    # A closing bracket and a closing brace differ in the bit that ``lower`` sets: one comparison finds both.
    ends = (lower[1:] == ord("}")) & ((preceding == ord(",")) | (preceding <= ord(" ")))
    return np.flatnonzero(words) + start, np.flatnonzero(ends) + start + 1


def _words(content: Bytes, positions: Places) -> Places:
    """Return the positions of ``nan`` and ``inf`` that stand between separators."""
    letters = [content.take(positions + number, mode="clip") | np.uint8(32) for number in (0, 2)]
    is_word = np.where(letters[0] == ord("n"), letters[1] == ord("n"), letters[1] == ord("f"))
    is_alone = _BEFORE[content.take(positions - 1, mode="clip")] & _AFTER[content.take(positions + 3, mode="clip")]
    words: Places = positions[is_word & is_alone]
    return words


def is_strict(text: str) -> bool:
    """Return whether a text is strict JSON, not nested deeper than MAX_DEPTH."""
    try:
        # Fast path: a shorter text cannot be nested that deep.
        if len(text) >= 2 * MAX_DEPTH and _depth(text) > MAX_DEPTH:
            return False
        loads(text)
    except ValueError:
        return False
    return True


def loads(text: str, **hooks: Any) -> Any:
    """Parse a text, with numbers as texts. Raises ValueError."""
    try:
        return json.loads(text, **NUMBERS_AS_TEXTS, **hooks)
    except RecursionError:
        with deep_recursion():
            return json.loads(text, **NUMBERS_AS_TEXTS, **hooks)


def _depth(text: str) -> int:
    # Fast path: two counts in C. Brackets in strings only make them larger.
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return 0
    level = deepest = 0
    for token in _LEVELS.finditer(text):
        level += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token[0], 0)
        deepest = max(deepest, level)
    return deepest


def _refuse(name: str) -> NoReturn:
    raise _NotStrict(f"{name} is not JSON")


NUMBERS_AS_TEXTS: dict[str, Any] = {"parse_int": str, "parse_float": str, "parse_constant": _refuse}
"""Arguments of Python's parser: numbers stay texts, and NaN and Infinity are refused."""
