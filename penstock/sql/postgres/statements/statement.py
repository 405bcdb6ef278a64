"""A client's text as statements.

Whether a text is one SELECT is DuckDB's own judgement (``sql.query``), so a text that is split wrongly here can only be
refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from penstock.sql.postgres.statements.tokens import Token, tokens_of
from penstock.sql.postgres.types import TYPES_BY_NAME

BLANK = ("space", "comment")
_QUERIES = frozenset(
    {"select", "with", "values", "table", "from", "explain", "describe", "summarize", "show", "pivot", "unpivot"}
)
"""First words of statements that answer rows."""


@dataclass(frozen=True)
class Statement:
    """A statement of a client's text."""

    tokens: Sequence[Token] = field(repr=False)

    @cached_property
    def significant(self) -> list[Token]:
        """Tokens without blanks and comments."""
        return [token for token in self.tokens if token.kind not in BLANK]

    @property
    def words(self) -> list[str]:
        """First words in lower case, up to the first token of another kind."""
        words = []
        for token in self.significant:
            if token.kind != "word":
                break
            words.append(token.text.lower())
        return words

    @property
    def is_query(self) -> bool:
        """Report whether DuckDB may answer it with rows."""
        first = self.significant[0]
        return first.text == "(" or first.is_word(*_QUERIES)

    @cached_property
    def parameters(self) -> int:
        """The highest number of a parameter."""
        return max(self.parameter_numbers, default=0)

    @cached_property
    def parameter_numbers(self) -> frozenset[int]:
        """The numbers of its parameters."""
        return frozenset(int(token.text[1:]) for token in self.tokens if token.kind == "parameter")

    def cast_types(self) -> dict[int, int]:
        """Return the numbers of the types in casts such as ``$1::oid[]``, by the parameters' numbers."""
        cast = {}
        for index, (parameter, cast_sign, name) in enumerate(
            zip(*(self.significant[n:] for n in range(3)), strict=False)
        ):
            kind = TYPES_BY_NAME.get(name.identifier)
            if parameter.kind == "parameter" and cast_sign.kind == "cast" and kind is not None:
                is_array = [token.text for token in self.significant[index + 3 : index + 5]] == ["[", "]"]
                cast[int(parameter.text[1:])] = kind.array_oid if is_array else kind.oid
        return cast

    def without_any(self) -> tuple[Statement, frozenset[int]]:
        """Return the statement with ``$1`` in place of ``ANY ($1)`` and ``ALL ($1)``, and the numbers of these."""
        removed, numbers = set[int](), set[int]()
        for word, opened, parameter, closed in zip(*(self.significant[n:] for n in range(4)), strict=False):
            is_array = word.is_word("any", "all", "some") and opened.text == "("
            if is_array and parameter.kind == "parameter" and closed.text == ")":
                removed |= {word.position, opened.position, closed.position}
                numbers.add(int(parameter.text[1:]))
        return Statement([token for token in self.tokens if token.position not in removed]), frozenset(numbers)


def split(text: str) -> list[Statement]:
    """Return the statements of a text, without empty ones."""
    statements: list[list[Token]] = [[]]
    for token in tokens_of(text):
        if token.text == ";" and token.kind == "sign":
            statements.append([])
        else:
            statements[-1].append(token)
    return [statement for tokens in statements if (statement := Statement(tokens)).significant]
