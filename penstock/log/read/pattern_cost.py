"""An estimate of the cost of compiling a regular expression of RE2, from its text alone.

RE2 unrolls repetitions and expands a class of Unicode characters to hundreds of instructions: a pattern of 28
characters may cost 0.3 s. The unit is the cost of an ASCII character, measured as about 0.2 us.
"""

from __future__ import annotations

import re

_ANY_CHARACTER = 35
_WIDE_CLASS = 50
"""A negated class, or one of characters beyond ASCII."""
_UNICODE_CLASS = 5000
r"""``\pL`` and its like."""
_MAX_COST = 1 << 40
_REPETITION = re.compile(r"\{([0-9]{1,6}),?([0-9]{0,6})\}")
_UNICODE_NAME = re.compile(r"\\[pP](?:\{[^}]*\}|.)?", re.DOTALL)
_ESCAPE = re.compile(r"\\x\{[^}]*\}|\\.?", re.DOTALL)
_CLASS = re.compile(r"\[\^?\]?(?:\[:\^?[a-z]+:\]|\\[pP]\{[^}]*\}|\\.|[^\]\\])*\]?", re.DOTALL)
_LITERAL = re.compile(r"\\Q(.*?)(?:\\E|\Z)", re.DOTALL)


def compile_cost(pattern: str) -> int:
    """Return the estimate. Never raises, also if the pattern is not a regular expression."""
    sums, piece, offset = [0], 0, 0
    # Invariant: ``piece`` is the cost of the last atom or group, which is part of ``sums[-1]``.
    while offset < len(pattern):
        character = pattern[offset]
        if character == "(":
            sums.append(0)
            piece, offset = 0, offset + 1
            continue
        if character == ")":
            piece = sums.pop() if len(sums) > 1 else 0
            offset += 1
        elif character in "*+?|^$":
            offset += 1
            continue
        elif character == "{" and (repetition := _REPETITION.match(pattern, offset)):
            low, high = repetition.groups()
            repeated = min(piece * max(int(low), int(high or 0), 1), _MAX_COST)
            sums[-1] += repeated - piece
            piece, offset = repeated, repetition.end()
            continue
        else:
            piece, offset = _atom(pattern, offset)
        sums[-1] = min(sums[-1] + piece, _MAX_COST)
    return min(sum(sums), _MAX_COST)


def _atom(pattern: str, offset: int) -> tuple[int, int]:
    """Return the cost of the atom at ``offset``, and the offset behind it."""
    if literal := _LITERAL.match(pattern, offset):
        return len(literal[1].encode(errors="replace")), literal.end()
    if name := _UNICODE_NAME.match(pattern, offset):
        return _UNICODE_CLASS, name.end()
    if escape := _ESCAPE.match(pattern, offset):
        return _WIDE_CLASS if escape[0][1:] in ("W", "D", "S") else 1, escape.end()
    if ranges := _CLASS.match(pattern, offset):
        return _class_cost(ranges[0]), ranges.end()
    if pattern[offset] == ".":
        return _ANY_CHARACTER, offset + 1
    return len(pattern[offset].encode(errors="replace")), offset + 1


def _class_cost(ranges: str) -> int:
    unicode_classes = len(_UNICODE_NAME.findall(ranges))
    is_wide = ranges.startswith("[^") or "[:^" in ranges or not ranges.isascii() or re.search(r"\\[WDSx]", ranges)
    return 1 + unicode_classes * _UNICODE_CLASS + (_WIDE_CLASS + len(ranges) if is_wide else 0)
