"""Whether texts are JSON by the letter (RFC 8259), asked of the few that DuckDB's parser might take wrongly.

DuckDB takes NaN, Infinity and a comma before a closing bracket; other engines refuse such texts, so they are found by
what they look like, and judged by Python's parser. Nesting deeper than MAX_DEPTH is refused: Spark's parser ends there.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from penstock.landing.rows.engine import as_mask, pc

MAX_DEPTH = 999
_WORD = r"-?(?i:nan|inf|infinity)\s*[,\]}]"
_SUSPECT = (r",\s*(?:[\]}]|" + _WORD + ")", r":\s*" + _WORD, r"\[\s*" + _WORD)
"""Each begins with a letter of its own: so RE2 looks for that alone, and the three cost less than one."""
_LEVELS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.DOTALL)


class _NotStrict(ValueError):
    """JSON that Python would take and others do not."""


def not_strict(texts: pa.Array[Any]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """For each text whether it is no JSON although DuckDB may say so; null is False."""
    found = np.zeros(len(texts), bool)
    for row in np.flatnonzero(_suspect(texts)).tolist():
        found[row] = not is_strict(texts[row].as_py())
    return found


def _suspect(texts: pa.Array[Any]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    masks = [pc.match_substring_regex(texts, pattern) for pattern in _SUSPECT]
    masks.append(pc.greater_equal(pc.binary_length(texts), pa.scalar(2 * MAX_DEPTH, pa.int32())))
    found: np.ndarray[tuple[int], np.dtype[np.bool_]] = np.zeros(len(texts), bool)
    for mask in masks:
        found |= as_mask(mask)
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


@contextmanager
def deep_recursion() -> Iterator[None]:
    """Meanwhile Python's parser takes what is nested MAX_DEPTH levels deep."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + 4 * MAX_DEPTH)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


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
