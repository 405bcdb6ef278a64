"""A statement as DuckDB's text, and where its parts were in the client's text.

DuckDB reads PostgreSQL's SQL but for a few spellings of its catalog; these are replaced word by word, outside of texts
and comments.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from penstock.sql.postgres.parameters import BadParameter, quoted
from penstock.sql.postgres.statements.arrays import ARRAY_TABLES, array_literal, array_table, json_path
from penstock.sql.postgres.statements.casts import casts, literals_of_postgresql, typed_texts
from penstock.sql.postgres.statements.parentheses import (
    MAX_CALL_TOKENS,
    argument_commas,
    closing_parentheses,
    commas_of_clauses,
)
from penstock.sql.postgres.statements.patterns import (
    ESCAPE_CLAUSE,
    escaped_patterns,
    regular_expressions,
    similar_patterns,
)
from penstock.sql.postgres.statements.query_functions import (
    FORMATTED,
    STARTS,
    duckdb_format,
    fractional_seconds,
    parse_format,
)
from penstock.sql.postgres.statements.row_values import compare_columns
from penstock.sql.postgres.statements.statement import BLANK, Statement
from penstock.sql.postgres.statements.tokens import Token, token_at

OBJECT_TYPES = ("regclass", "regtype", "regnamespace", "regproc", "regprocedure")
"""Types of PostgreSQL that turn a name into the number of an object."""
INFORMATION_SCHEMA = "ischema"
"""Schema of the information schema as PostgreSQL has it."""
_RENAMED = {
    "json_build_object": "json_object",
    "jsonb_build_object": "json_object",
    "json_build_array": "json_array",
    "json_agg": "json_group_array",
    "jsonb_agg": "json_group_array",
    "json_object_agg": "json_group_object",
    "jsonb_array_length": "json_array_length",
    "every": "bool_and",
}
"""Functions that DuckDB has under another name."""
_FUNCTION_COLUMNS = frozenset({"typinput", "typoutput", "typreceive", "typsend"})
"""Columns with names of functions, which PostgreSQL compares with a number, too: 0 is none."""
MAX_OPERATOR_TOKENS = 16
"""Limit for an operator's name with its schema, as in ``OPERATOR(pg_catalog.!~~*)``."""
_FUNCTIONS_AS_TABLES = ("current_schema", "current_database", "version", "now")
"""Functions without arguments that clients write as tables, as ``SELECT * FROM current_schema()``."""
_GROUP = re.compile(r"(?<!\\)\((?!\?)")
"""A group of a regular expression."""
_USER_WORDS = ("current_user", "session_user", "current_role")


@dataclass(frozen=True, slots=True)
class Translation:
    """DuckDB's text of a statement, and where its parts were in the client's text.

    It ``is_verbatim`` if it begins the client's text unchanged.
    """

    text: str
    is_verbatim: bool
    _starts: Sequence[int]
    _sources: Sequence[int]

    def source_position(self, offset: int) -> int:
        """Return the position in the client's text, from 1, of an offset in ``text``, from 0."""
        index = bisect.bisect_right(self._starts, offset) - 1
        if index < 0:
            return 1
        return self._sources[index] + offset - self._starts[index] + 1


def translate(
    statement: Statement,
    literals: Sequence[str] = (),
    object_number: Callable[[str, str], int | None] = lambda kind, name: None,
    information_schema: frozenset[str] = frozenset(),
) -> Translation:
    """Return a statement as DuckDB reads it, with ``literals`` in place of its parameters.

    ``object_number`` returns the number of a name for a type of ``OBJECT_TYPES``; ``information_schema`` has the names
    that exist in ``INFORMATION_SCHEMA``. Raises BadParameter for a format of times that DuckDB lacks.
    """
    pieces: list[tuple[str, int]] = []
    tokens = compare_columns(_with_literals(statement.tokens, literals))
    significant = [index for index, token in enumerate(tokens) if token.kind not in BLANK]
    schemas = {
        number
        for pair in pairwise(significant)
        if tokens[pair[0]].identifier == "pg_catalog" and tokens[pair[1]].text == "."
        for number in pair
    }
    significant = [index for index in significant if index not in schemas]
    words = [tokens[index] for index in significant]
    closing = closing_parentheses(words)
    replaced = dict(_replacements(words, closing, object_number, information_schema))
    by_index = dict.fromkeys(schemas, "") | {significant[number]: text for number, text in replaced.items()}
    for number in escaped_patterns(words, closing):
        by_index[significant[number]] = replaced.get(number, words[number].text) + ESCAPE_CLAUSE
    starts, sources, length = [], [], 0
    for index, token in enumerate(tokens):
        text = by_index.get(index, token.text)
        if text:
            starts.append(length)
            sources.append(token.position)
            pieces.append((text, token.position))
            length += len(text)
    translated = "".join(text for text, _ in pieces)
    is_verbatim = statement.tokens[0].position == 0 and translated == "".join(token.text for token in statement.tokens)
    return Translation(translated, is_verbatim, starts, sources)


def _with_literals(tokens: Sequence[Token], literals: Sequence[str]) -> list[Token]:
    placed = []
    for token in tokens:
        number = int(token.text[1:]) if token.kind == "parameter" else 0
        if not 0 < number <= len(literals):
            placed.append(token)
        elif literals[number - 1].startswith("'"):
            placed.append(Token("text", literals[number - 1], token.position))
        else:
            # Blanks around it: `$1` may touch a word, which a number would continue.
            placed.append(Token("literal", f" {literals[number - 1]} ", token.position))
    return placed


def _replacements(
    tokens: Sequence[Token],
    closing: Mapping[int, int],
    object_number: Callable[[str, str], int | None],
    information_schema: frozenset[str],
) -> Iterator[tuple[int, str]]:
    """Yield the index of each token that DuckDB writes in another way, and its text."""
    removed: set[int] = set()
    table_commas, column_commas = commas_of_clauses(tokens)

    def follow(index: int) -> tuple[int, Token]:
        """Return the next token that is not removed."""
        index += 1
        while index in removed:
            index += 1
        return index, token_at(tokens, index)

    for index, token in enumerate(tokens):
        if index in removed:
            continue
        second_index, second = follow(index)
        third_index, third = follow(second_index)
        is_qualified = token.identifier == "information_schema" and second.text == "."
        if is_qualified and third.identifier in information_schema:
            yield index, INFORMATION_SCHEMA
        elif token.is_word("operator") and second.text == "(":
            # Limit: each OPERATOR looks at the few tokens that a name has, not at the rest of the text.
            rest = range(third_index, min(third_index + MAX_OPERATOR_TOKENS, len(tokens)))
            end = next((candidate for candidate in rest if tokens[candidate].text == ")"), None)
            if end is not None:
                removed |= {index, second_index, end}
        elif second.identifier == "oid" and (token.kind == "cast" or (token.is_word("as") and third.text == ")")):
            yield second_index, "uinteger"  # DuckDB's own oid has a sign and 8 bytes
        elif token.is_word("collate") and second.identifier == "default":
            removed |= {index, second_index}
        elif token.is_word(*_USER_WORDS) and (index == 0 or tokens[index - 1].text != "."):
            yield index, "pg_user_name()"
        elif (
            token.is_word(*_FUNCTIONS_AS_TABLES) and index and tokens[index - 1].is_word("from") and second.text == "("
        ):
            yield index, f"(SELECT {token.text}"
            yield third_index, f") AS {token.text})"
        elif token.is_word(*ARRAY_TABLES) and second.text == "(" and index and second_index in closing:
            is_table = tokens[index - 1].is_word("from", "join", "lateral") or index - 1 in table_commas
            is_column = tokens[index - 1].is_word("select") or index - 1 in column_commas
            texts = array_table(tokens, index, second_index, closing[second_index], is_table, is_column)
            removed |= {number for number, text in texts.items() if not text}
            yield from texts.items()
        elif token.identifier == "oid" and second.text == "=" and _is_function_column(tokens, third_index):
            # Columns with functions hold names here, and Npgsql joins them with the functions' numbers.
            yield index, "proname"
        elif token.is_word("substring") and second_index in closing and _is_pattern(tokens, second_index, closing):
            has_group = _GROUP.search(tokens[closing[second_index] - 1].text)
            yield index, "group_of_pattern" if has_group else "text_of_pattern"
            yield closing[second_index] - 2, ","
        elif token.is_word("format") and second_index in closing and (parsed := parse_format(third.content or "")):
            if commas := argument_commas(tokens, second_index, closing[second_index]):
                # In a text of several parts, as with ``||``, the places are those of all parts in their order.
                is_literal = commas[0] == third_index + 1
                numbers = parsed.arguments if is_literal else [*range(1, len(commas) + 1)]
                if not all(1 <= number <= len(commas) for number in numbers):
                    raise BadParameter("too few arguments for format()")
                yield index, "text_of_format"
                if is_literal:
                    yield third_index, quoted(parsed.text)
                yield commas[0], ", list_select([output_text("
                for comma in commas[1:]:
                    yield comma, "), output_text("
                yield closing[second_index], f")], {numbers}))"
            elif closing[second_index] == third_index + 1:
                yield index, "text_of_format"
                yield closing[second_index], ", CAST([] AS VARCHAR[]))"
        elif token.is_word("concat", "concat_ws") and closing.get(second_index, 0) > third_index:
            # The limit of argument_commas: without the commas all arguments would be one.
            if closing[second_index] - second_index <= MAX_CALL_TOKENS:
                yield second_index, "(output_text("
                for comma in argument_commas(tokens, second_index, closing[second_index]):
                    yield comma, "), output_text("
                yield closing[second_index], "))"
        elif token.is_word("date_trunc") and second.text == "(" and (third.content or "").lower() in STARTS:
            yield index, STARTS[(third.content or "").lower()]
        elif token.identifier in _FUNCTION_COLUMNS and second.text in "!<" and third.text in "=>":
            zero_index, zero = follow(third_index)
            if zero.text == "0":
                yield zero_index, "'-'"
        elif token.text == "#" and second.text == ">":
            is_text = third.text == ">"
            path_index = follow(third_index)[0] if is_text else third_index
            elements, end = json_path(tokens, path_index)
            if elements is not None:
                removed |= {index, second_index, *range(path_index + 1, end)} | ({third_index} if is_text else set())
                yield path_index, f"{'->>' if is_text else '->'} {elements}"
        elif token.identifier in FORMATTED and second.text == "(":
            # The text literal that ends the arguments of the call.
            format_index = closing.get(second_index, 0) - 1
            text = tokens[format_index].content if format_index > second_index else None
            if text is not None and tokens[format_index - 1].text == ",":
                if (converted := duckdb_format(text)) is None:
                    raise BadParameter(f"{token.text} has no equivalent of the format {text[:60]!r}")
                yield index, FORMATTED[token.identifier]
                yield format_index, quoted(converted)
        elif token.is_word("string_agg") and second_index in closing:
            # Without a delimiter, the texts are joined; DuckDB answers null.
            for comma in argument_commas(tokens, second_index, closing[second_index])[:1]:
                if tokens[comma + 1].is_word("null"):
                    yield comma + 1, "''"
        elif token.identifier in _RENAMED and second.text == "(":
            yield index, _RENAMED[token.identifier]
        elif token.content is not None and second.kind == "cast" and third.identifier in OBJECT_TYPES:
            number = object_number(third.identifier, token.content)
            yield index, "CAST(NULL AS BIGINT)" if number is None else str(number)
        elif (
            token.is_word("any", "all", "some")
            and third.is_word("array")
            and second.text == "("
            and second_index in closing
            and closing.get(follow(third_index)[0]) == closing[second_index] - 1
        ):
            # ANY (ARRAY(SELECT ...)) is ANY (SELECT ...); DuckDB would compare with whole arrays.
            removed |= {third_index, follow(third_index)[0], closing[second_index] - 1}
        elif token.is_word("any", "all") and second.text == "(" and (elements := array_literal(third)):
            yield third_index, elements
    yield from casts(tokens, closing)
    yield from typed_texts(tokens, closing)
    yield from similar_patterns(tokens)
    yield from literals_of_postgresql(tokens)
    yield from regular_expressions(tokens, closing)
    yield from fractional_seconds(tokens, closing)
    yield from _grouped_by_column([index for index in range(len(tokens)) if index not in removed], tokens)
    for index in removed:
        yield index, ""


def _grouped_by_column(kept: Sequence[int], tokens: Sequence[Token]) -> Iterator[tuple[int, str]]:
    """Yield ``table.column`` for ``name`` in ``SELECT table.column AS name ... GROUP BY name`` if a table has that
    name, too: DuckDB groups by the table's whole rows then. dbt asks so for the relations.
    """
    words = [tokens[index].identifier or tokens[index].text for index in kept]
    begins = [position + 2 for position, pair in enumerate(pairwise(words)) if pair == ("group", "by")]
    if not begins:
        return
    tables = {word for word, dot in pairwise(words) if dot == "."}
    columns = {
        name: f"{tokens[kept[n]].text}.{tokens[kept[n + 2]].text}"
        for n, (_, dot, _, is_named, name) in enumerate(zip(*(words[n:] for n in range(5)), strict=False))
        if dot == "." and is_named == "as" and name in tables
    }
    for begin in begins:
        position = begin
        while position < len(words) and tokens[kept[position]].identifier:
            follower = words[position + 1] if position + 1 < len(words) else ""
            if words[position] in columns and follower != ".":
                yield kept[position], columns[words[position]]
            if follower not in (",", "."):
                break
            position += 2


def _is_function_column(tokens: Sequence[Token], index: int) -> bool:
    """Report whether a column with names of functions is at an index, with or without its table."""
    dotted = index + 2 < len(tokens) and tokens[index + 1].text == "."
    column = index + 2 if dotted else index
    return column < len(tokens) and tokens[column].identifier in _FUNCTION_COLUMNS


def _is_pattern(tokens: Sequence[Token], opened: int, closing: Mapping[int, int]) -> bool:
    """Report whether the arguments end with ``FROM 'a pattern'``, as in ``substring(x FROM '[0-9]+')``."""
    closed = closing[opened]
    return closed - opened > 3 and tokens[closed - 2].is_word("from") and tokens[closed - 1].kind == "text"
