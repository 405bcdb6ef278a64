"""The grammar of filters on annotations: text to a tree.

    filter  = and  *( "OR" and )
    and     = not  *( "AND" not )
    not     = *"NOT" ( "(" filter ")" / clause )
    clause  = "k:" pattern [ "v:" pattern ]  /  "v:" pattern [ "k:" pattern ]

Operators may be in either case; NOT binds before AND before OR. A clause is one annotation: ``k:a v:b`` asks for
an annotation whose key is a and whose value is b, ``k:a AND v:b`` for one of key a and for one, the same or
another, of value b. A pattern is a regular expression of RE2 that must match the whole key or value. It ends at a
space, or at a closing bracket that was not opened in it; within double quotes neither ends it (``\\"`` is a quote).
Source: the seed, "Messages", 4.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from penstock.log.errors import LogError
from penstock.log.read.pattern_cost import compile_cost

MAX_LENGTH = 16 << 10
"""Characters of a filter: each pattern costs a pass over the annotations, so nobody may ask for any number."""
MAX_CLAUSES = 200
MAX_COMPILE_COST = 100_000
"""Limit: of all patterns of a filter together, as ``compile_cost`` estimates it: about 25 ms. They are compiled twice
when a filter is parsed and once for each batch that it is applied to.
"""
MAX_DEPTH = 100
"""Brackets and NOTs within each other, well below Python's own limit."""
_SHOWN = 60
"""Characters of a long filter that are shown around an error."""
_NAMED_CLASS = re.compile(r"\[:\^?[a-z]+:\]")
_NOTHING = pa.nulls(1, pa.string())
_EXPECTED = "k: or v: with a pattern, NOT or ( is expected here"


class BadFilter(LogError):
    """A filter that is none. ``position``: of the character in ``text``, from 0, where ``message`` applies."""

    def __init__(self, message: str, position: int, text: str = "") -> None:
        super().__init__(f"bad filter at character {position + 1}: {message}")
        self.message, self.position, self.text = message, position, text

    @property
    def pointed(self) -> str:
        """The text, or the part of it around the error, and a line with a caret below the place."""
        begin = max(0, self.position - _SHOWN)
        part = "".join(c if c.isprintable() else " " for c in self.text[begin : self.position + _SHOWN])
        return f"{part}\n{' ' * (self.position - begin)}^"


@dataclass(frozen=True, slots=True)
class Clause:
    """One annotation: patterns that its whole key and its whole value match; None is any."""

    key: str | None = None
    value: str | None = None


@dataclass(frozen=True, slots=True)
class Not:
    """What the operand does not match."""

    operand: Node


@dataclass(frozen=True, slots=True)
class All:
    """What all operands match."""

    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Any:
    """What one of the operands matches."""

    operands: tuple[Node, ...]


Node = Clause | Not | All | Any


def whole(pattern: str) -> str:
    """A pattern of RE2 that matches a text when ``pattern`` matches all of it."""
    closed = r"\E" if _Scan(pattern, 0, quoted=True).literal else ""
    return rf"\A(?:{pattern}{closed})\z"


def parse(text: str) -> Node:
    """The tree of a filter. Raises BadFilter for anything that is none."""
    try:
        if len(text) > MAX_LENGTH:
            raise BadFilter(f"a filter has at most {MAX_LENGTH:,} characters", MAX_LENGTH)
        return _Parser(text).filter()
    except BadFilter as error:
        error.text = text
        raise


class _Parser:
    """Recursive descent over ``text``; all methods but ``filter`` leave ``at`` behind what they took."""

    def __init__(self, text: str) -> None:
        self.text, self.at, self.depth, self.clauses, self.cost = text, 0, 0, 0, 0

    def filter(self) -> Node:
        if not self.text.strip():
            raise BadFilter("the filter is empty", 0)
        node = self._any()
        self._skip()
        if self.at < len(self.text):
            raise self._unexpected_rest()
        return node

    def _unexpected_rest(self) -> BadFilter:
        if self.text[self.at] == ")":
            return BadFilter("this bracket closes none", self.at)
        return BadFilter("AND, OR or the end is expected here", self.at)

    def _any(self) -> Node:
        operands = [self._all()]
        while self._word("OR"):
            operands.append(self._all())
        return operands[0] if len(operands) == 1 else Any(tuple(operands))

    def _all(self) -> Node:
        operands = [self._not()]
        while self._word("AND"):
            operands.append(self._not())
        return operands[0] if len(operands) == 1 else All(tuple(operands))

    def _not(self) -> Node:
        self._skip()
        begin = self.at
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise BadFilter(f"more than {MAX_DEPTH} brackets and NOTs within each other", begin)
        node = Not(self._not()) if self._word("NOT") else self._brackets() if self._take("(") else self._clause()
        self.depth -= 1
        return node

    def _brackets(self) -> Node:
        opened = self.at - 1
        node = self._any()
        self._skip()
        if not self._take(")"):
            if self.at < len(self.text):
                raise BadFilter("AND, OR or ) is expected here", self.at)
            raise BadFilter("this bracket is not closed", opened)
        return node

    def _clause(self) -> Clause:
        begin = self.at
        self.clauses += 1
        if self.clauses > MAX_CLAUSES:
            raise BadFilter(f"a filter has at most {MAX_CLAUSES} annotations", begin)
        found: dict[str, str] = {}
        while side := self._side():
            if side in found:
                other = f"{side}: is there already: write AND or OR between two annotations"
                raise BadFilter(other, self.at - 2)
            found[side] = self._pattern()
            self._skip()
        if not found:
            raise BadFilter(_EXPECTED, begin)
        return Clause(found.get("k"), found.get("v"))

    def _side(self) -> str:
        side = self.text[self.at : self.at + 2]
        if side not in ("k:", "v:"):
            return ""
        self.at += 2
        return side[0]

    def _pattern(self) -> str:
        quoted = self._take('"')
        begin = self.at
        scan = _Scan(self.text, begin, quoted)
        self.at = scan.end
        pattern = self.text[begin : scan.end]
        if quoted and not self._take('"'):
            raise BadFilter("these quotes are not closed", begin - 1)
        if quoted and self.text[self.at : self.at + 1].strip().strip(")"):
            raise BadFilter("a space is expected behind the quotes", self.at)
        if not quoted and not pattern:
            raise BadFilter('a pattern is expected here ("" is an empty one)', begin)
        # Order: the estimate first, as compiling is what costs.
        self.cost += compile_cost(pattern)
        if self.cost > MAX_COMPILE_COST:
            raise BadFilter("the patterns are too large: use fewer or shorter repetitions and Unicode classes", begin)
        _check(pattern, begin)
        return pattern

    def _skip(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def _take(self, character: str) -> bool:
        taken = self.text.startswith(character, self.at)
        self.at += taken
        return taken

    def _word(self, word: str) -> bool:
        self._skip()
        end = self.at + len(word)
        if self.text[self.at : end].upper() != word or self.text[end : end + 1].isalnum():
            return False
        if self.text[end : end + 1] in (":", "_"):
            return False
        self.at = end
        return True


class _Scan:
    """Where the pattern of RE2 that begins at ``at`` ends in ``text``, and whether it ends within ``\\Q``."""

    def __init__(self, text: str, at: int, quoted: bool) -> None:
        self.literal = False
        self._brackets, self._class = 0, False
        while at < len(text):
            character = text[at]
            if character == '"' if quoted else character.isspace() or self._closes(character):
                break
            at = self._step(text, at)
        self.end = min(at, len(text))

    def _closes(self, character: str) -> bool:
        return character == ")" and not (self.literal or self._class or self._brackets)

    def _step(self, text: str, at: int) -> int:
        """Behind the piece at ``at``."""
        if text[at] == "\\":
            return self._escape(text, at)
        if self.literal:
            return at + 1
        if self._class:
            return self._in_class(text, at)
        if text[at] == "[":
            self._class = True
            at += text.startswith("^", at + 1)
            return at + 1 + text.startswith("]", at + 1)  # a bracket that comes first is one of the class
        self._brackets += (text[at] == "(") - (text[at] == ")")
        return at + 1

    def _escape(self, text: str, at: int) -> int:
        second = text[at + 1 : at + 2]
        if self.literal:
            self.literal = second != "E"
            return at + 1 + (second in ('"', "E"))
        self.literal = second == "Q" and not self._class
        return at + 2

    def _in_class(self, text: str, at: int) -> int:
        if named := _NAMED_CLASS.match(text, at):
            return named.end()
        self._class = text[at] != "]"
        return at + 1


def _check(pattern: str, begin: int) -> None:
    """Raises BadFilter, at the place where RE2 finds it, for a pattern that is no regular expression."""
    for number, character in enumerate(pattern):
        if "\ud800" <= character <= "\udfff":
            raise BadFilter("half of a surrogate pair is no character", begin + number)
    for expression in (pattern, whole(pattern)):
        try:
            pc.match_substring_regex(_NOTHING, pattern=expression)
        except pa.ArrowInvalid as error:
            said = str(error).removeprefix("Invalid regular expression: ")
            part = said.rpartition(": ")[2]
            raise BadFilter(f"{said} (RE2)", begin + max(0, pattern.find(part))) from None
