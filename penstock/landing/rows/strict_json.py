"""Whether texts are JSON by the letter (RFC 8259), asked of the few that DuckDB's parser might take wrongly.

DuckDB takes NaN, Infinity and a comma before a closing bracket; other engines refuse such texts, so they are found by
what they look like, and judged by Python's parser. Nesting deeper than MAX_DEPTH is refused: Spark's parser ends there.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from penstock.landing.rows.engine import Bytes, Mask, Places, among, as_mask, pc, rows_with
from penstock.wire.json_text import MAX_DEPTH, deep_recursion

_PIECE = 128 << 10
"""Bytes looked at at once: that many stay in the processor's own memory."""
_BLANKS = b" \t\n\f\r"
_WORD = r"-?(?i:nan|inf|infinity)\s*[,\]}]"
_SUSPECT = (r",\s*(?:[\]}]|" + _WORD + ")", r":\s*" + _WORD, r"\[\s*" + _WORD)
"""Each begins with a letter of its own: so RE2 looks for that alone, and the three cost less than one."""
_BEFORE, _AFTER = among(_BLANKS + b",:[-"), among(_BLANKS + b",]}iI")
_LEVELS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.DOTALL)


class _NotStrict(ValueError):
    """JSON that Python would take and others do not."""


def not_strict(texts: pa.Array[Any]) -> Mask:
    """For each text whether it is no JSON although DuckDB may say so; null is False."""
    found = np.zeros(len(texts), bool)
    for row in np.flatnonzero(_suspect(texts)).tolist():
        found[row] = not is_strict(texts[row].as_py())
    return found


def _suspect(texts: pa.Array[Any]) -> Mask:
    found = as_mask(pc.greater_equal(pc.binary_length(texts), pa.scalar(2 * MAX_DEPTH, pa.int32())))
    rows = rows_with(texts, _looks_lax)
    if rows.any():
        some = texts.filter(pa.array(rows))
        masks = [as_mask(pc.match_substring_regex(some, pattern)) for pattern in _SUSPECT]
        found[rows] |= np.logical_or.reduce(masks)
    return found


def _looks_lax(content: Bytes) -> Places:
    """Where one of the patterns may match: more often than they do, and in half the time."""
    pieces = range(0, len(content), _PIECE)
    words, ends = zip(*(_candidates(content, at) for at in pieces), strict=True) if pieces else ((), ())
    return np.concatenate([*(_words(content, places) for places in words), *ends, np.empty(0, np.intp)])


def _candidates(content: Bytes, at: int) -> tuple[Places, Places]:
    """Of a piece: where ``na`` or ``in`` stands, however written; and brackets behind a comma or a blank."""
    piece = content[at : at + _PIECE + 1]
    small, before = piece | np.uint8(32), piece[:-1]
    n = small == ord("n")
    words = (n[:-1] & (small[1:] == ord("a"))) | ((small[:-1] == ord("i")) & n[1:])
    ends = (small[1:] == ord("}")) & ((before == ord(",")) | (before <= ord(" ")))  # a bracket is one bit from a brace
    return np.flatnonzero(words) + at, np.flatnonzero(ends) + at + 1


def _words(content: Bytes, places: Places) -> Places:
    """Those that begin ``nan`` or ``inf``, and stand alone."""
    letters = [content.take(places + number, mode="clip") | np.uint8(32) for number in (0, 2)]
    whole = np.where(letters[0] == ord("n"), letters[1] == ord("n"), letters[1] == ord("f"))
    alone = _BEFORE[content.take(places - 1, mode="clip")] & _AFTER[content.take(places + 3, mode="clip")]
    found: Places = places[whole & alone]
    return found


def is_strict(text: str) -> bool:
    """Whether a text is JSON by the letter, not nested deeper than MAX_DEPTH."""
    try:
        if len(text) >= 2 * MAX_DEPTH and _depth(text) > MAX_DEPTH:
            return False
        loads(text)
    except ValueError:
        return False
    return True


def loads(text: str, **hooks: Any) -> Any:
    """What a text says, with numbers as texts. Raises ValueError."""
    try:
        return json.loads(text, **NUMBERS_AS_TEXTS, **hooks)
    except RecursionError:
        with deep_recursion():
            return json.loads(text, **NUMBERS_AS_TEXTS, **hooks)


def _depth(text: str) -> int:
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
"""Hooks of Python's parser."""
