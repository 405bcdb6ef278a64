r"""The grammar of filters on annotations: parses a text into a tree.

    filter  = and  *( "OR" and )
    and     = not  *( "AND" not )
    not     = *"NOT" ( "(" filter ")" / clause )
    clause  = "k:" pattern [ "v:" pattern ]  /  "v:" pattern [ "k:" pattern ]

Operators may be in either case; NOT binds before AND before OR. A clause matches a single annotation: ``k:a v:b``
requires an annotation whose key is a and whose value is b; ``k:a AND v:b`` requires an annotation with key a and an
annotation with value b, which may be the same. A pattern is a regular expression of RE2 that must match the whole key
or value. A space ends it, or a closing bracket that was not opened in it; within double quotes neither does (``\"`` is
a quote).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from penstock.log.errors import LogError
from penstock.log.read.pattern_cost import compile_cost

MAX_LENGTH = 16 << 10
"""Limit: for the length of a filter, because each pattern costs a pass over the annotations of a batch."""
MAX_CLAUSES = 200
MAX_COMPILE_COST = 100_000
"""Limit: for the sum of ``compile_cost`` over the patterns of a filter, about 25 ms. They are compiled twice when a
filter is parsed and once for each batch.
"""
MAX_DEPTH = 100
"""Limit: for nested brackets and NOTs, well below Python's recursion limit."""
_SHOWN_CHARACTERS = 60
"""Characters of a long filter that an error shows on each side of its position."""
_NAMED_CLASS = re.compile(r"\[:\^?[a-z]+:\]")
_NULL_TEXT = pa.nulls(1, pa.string())
_CLAUSE_EXPECTED = "k: or v: with a pattern, NOT or ( is expected here"


class BadFilter(LogError):
    """An invalid filter. ``message`` applies to the character at ``position`` (from 0) of ``text``."""

    def __init__(self, message: str, position: int, text: str = "") -> None:
        super().__init__(f"bad filter at character {position + 1}: {message}")
        self.message, self.position, self.text = message, position, text

    @property
    def pointed(self) -> str:
        """The text around the error, and a line with a caret below the position."""
        begin = max(0, self.position - _SHOWN_CHARACTERS)
        part = "".join(c if c.isprintable() else " " for c in self.text[begin : self.position + _SHOWN_CHARACTERS])
        return f"{part}\n{' ' * (self.position - begin)}^"


@dataclass(frozen=True, slots=True)
class Clause:
    """Patterns that the whole key and the whole value of an annotation match; None matches any."""

    key: str | None = None
    value: str | None = None


@dataclass(frozen=True, slots=True)
class Not:
    """Rows that the operand does not match."""

    operand: Node


@dataclass(frozen=True, slots=True)
class And:
    """Rows that all operands match."""

    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Rows that at least one operand matches."""

    operands: tuple[Node, ...]


Node = Clause | Not | And | Or


def anchored(pattern: str) -> str:
    """Return a pattern of RE2 that matches a text if ``pattern`` matches all of it."""
    closed = r"\E" if _Scan(pattern, 0, quoted=True).literal else ""
    return rf"\A(?:{pattern}{closed})\z"


def parse(text: str) -> Node:
    """Return the tree of a filter. Raises BadFilter for an invalid text."""
    try:
        if len(text) > MAX_LENGTH:
            raise BadFilter(f"the filter has more than {MAX_LENGTH:,} characters", MAX_LENGTH)
        return _Parser(text).filter()
    except BadFilter as error:
        error.text = text
        raise


class _Parser:
    """Recursive descent over ``text``.

    Each method but ``filter`` leaves ``offset`` behind the part that it consumed.
    """

    def __init__(self, text: str) -> None:
        self.text, self.offset, self.depth, self.clauses, self.cost = text, 0, 0, 0, 0

    def filter(self) -> Node:
        if not self.text.strip():
            raise BadFilter("the filter is empty", 0)
        node = self._parse_or()
        self._skip_spaces()
        if self.offset < len(self.text):
            if self.text[self.offset] == ")":
                raise BadFilter("this bracket was not opened", self.offset)
            raise BadFilter("AND, OR or the end is expected here", self.offset)
        return node

    def _parse_or(self) -> Node:
        operands = [self._parse_and()]
        while self._accept_word("OR"):
            operands.append(self._parse_and())
        return operands[0] if len(operands) == 1 else Or(tuple(operands))

    def _parse_and(self) -> Node:
        operands = [self._parse_not()]
        while self._accept_word("AND"):
            operands.append(self._parse_not())
        return operands[0] if len(operands) == 1 else And(tuple(operands))

    def _parse_not(self) -> Node:
        self._skip_spaces()
        begin = self.offset
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise BadFilter(f"more than {MAX_DEPTH} nested brackets and NOTs", begin)
        if self._accept_word("NOT"):
            node: Node = Not(self._parse_not())
        else:
            node = self._parse_group() if self._accept("(") else self._parse_clause()
        self.depth -= 1
        return node

    def _parse_group(self) -> Node:
        opened = self.offset - 1
        node = self._parse_or()
        self._skip_spaces()
        if not self._accept(")"):
            if self.offset < len(self.text):
                raise BadFilter("AND, OR or ) is expected here", self.offset)
            raise BadFilter("this bracket is not closed", opened)
        return node

    def _parse_clause(self) -> Clause:
        begin = self.offset
        self.clauses += 1
        if self.clauses > MAX_CLAUSES:
            raise BadFilter(f"the filter has more than {MAX_CLAUSES} annotations", begin)
        patterns: dict[str, str] = {}
        while side := self._accept_side():
            if side in patterns:
                message = f"a second {side}: write AND or OR between two annotations"
                raise BadFilter(message, self.offset - 2)
            patterns[side] = self._parse_pattern()
            self._skip_spaces()
        if not patterns:
            raise BadFilter(_CLAUSE_EXPECTED, begin)
        return Clause(patterns.get("k"), patterns.get("v"))

    def _accept_side(self) -> str:
        side = self.text[self.offset : self.offset + 2]
        if side not in ("k:", "v:"):
            return ""
        self.offset += 2
        return side[0]

    def _parse_pattern(self) -> str:
        quoted = self._accept('"')
        begin = self.offset
        scan = _Scan(self.text, begin, quoted)
        self.offset = scan.end
        pattern = self.text[begin : scan.end]
        if quoted and not self._accept('"'):
            raise BadFilter("these quotes are not closed", begin - 1)
        if quoted and self.text[self.offset : self.offset + 1].strip().strip(")"):
            raise BadFilter("a space is expected after the quotes", self.offset)
        if not quoted and not pattern:
            raise BadFilter('a pattern is expected here ("" is an empty one)', begin)
        # Order: estimate before compiling, because compiling is the expensive part.
        self.cost += compile_cost(pattern)
        if self.cost > MAX_COMPILE_COST:
            raise BadFilter("the patterns are too large: use fewer or shorter repetitions and Unicode classes", begin)
        _check_pattern(pattern, begin)
        return pattern

    def _skip_spaces(self) -> None:
        while self.offset < len(self.text) and self.text[self.offset].isspace():
            self.offset += 1

    def _accept(self, character: str) -> bool:
        matches = self.text.startswith(character, self.offset)
        self.offset += matches
        return matches

    def _accept_word(self, word: str) -> bool:
        self._skip_spaces()
        end = self.offset + len(word)
        if self.text[self.offset : end].upper() != word or self.text[end : end + 1].isalnum():
            return False
        # `NOT_x` and `NOT:` are not operators.
        if self.text[end : end + 1] in (":", "_"):
            return False
        self.offset = end
        return True


class _Scan:
    r"""Scan of a pattern of RE2: ``end`` is the offset behind it, ``literal`` whether it ends within ``\Q``."""

    def __init__(self, text: str, offset: int, quoted: bool) -> None:
        self.literal = False
        self._brackets, self._class = 0, False
        while offset < len(text):
            character = text[offset]
            if character == '"' if quoted else character.isspace() or self._closes(character):
                break
            offset = self._skip_element(text, offset)
        self.end = min(offset, len(text))

    def _closes(self, character: str) -> bool:
        return character == ")" and not (self.literal or self._class or self._brackets)

    def _skip_element(self, text: str, offset: int) -> int:
        """Return the offset behind the syntax element at ``offset``."""
        if text[offset] == "\\":
            return self._skip_escape(text, offset)
        if self.literal:
            return offset + 1
        if self._class:
            return self._skip_in_class(text, offset)
        if text[offset] == "[":
            self._class = True
            offset += text.startswith("^", offset + 1)
            # A closing bracket that comes first is a member of the class.
            return offset + 1 + text.startswith("]", offset + 1)
        self._brackets += (text[offset] == "(") - (text[offset] == ")")
        return offset + 1

    def _skip_escape(self, text: str, offset: int) -> int:
        second = text[offset + 1 : offset + 2]
        if self.literal:
            self.literal = second != "E"
            return offset + 1 + (second in ('"', "E"))
        self.literal = second == "Q" and not self._class
        return offset + 2

    def _skip_in_class(self, text: str, offset: int) -> int:
        if named := _NAMED_CLASS.match(text, offset):
            return named.end()
        self._class = text[offset] != "]"
        return offset + 1


def _check_pattern(pattern: str, begin: int) -> None:
    """Raise BadFilter, at RE2's position, for an invalid regular expression."""
    for index, character in enumerate(pattern):
        # Arrow encodes patterns as UTF-8, which has no surrogates, and would raise UnicodeEncodeError.
        if "\ud800" <= character <= "\udfff":
            raise BadFilter("half of a surrogate pair is not a character", begin + index)
    # The pattern alone first: a pattern such as `a)|(b` is valid only within the brackets that `anchored` adds.
    for expression in (pattern, anchored(pattern)):
        try:
            pc.match_substring_regex(_NULL_TEXT, pattern=expression)
        except pa.ArrowInvalid as error:
            reason = str(error).removeprefix("Invalid regular expression: ")
            part = reason.rpartition(": ")[2]
            raise BadFilter(f"{reason} (RE2)", begin + max(0, pattern.find(part))) from None
