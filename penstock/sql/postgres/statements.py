"""A client's text as statements, and a statement as DuckDB's text.

DuckDB reads PostgreSQL's SQL but for a few spellings of its catalog; these are replaced word by word, outside of texts
and comments. Whether a text is one SELECT is DuckDB's own judgement (``sql.query``), so a text that is split wrongly
here can only be refused.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from penstock.sql.postgres.parameters import BadParameter, quoted, split_array
from penstock.sql.postgres.query_functions import FORMATTED, duckdb_format
from penstock.sql.postgres.types import TYPES_BY_NAME

_TOKEN = re.compile(
    r"""
    (?P<space>\s+|--[^\n]*)
    |(?P<comment>/\*)
    |(?P<text>[eE]'(?:[^'\\]|\\.|'')*+'|(?:[bBxX]|[uU]&)?'(?:[^']|'')*+')
    |(?P<dollar>\$(?:[A-Za-z_\x80-\U0010ffff][\w]*+)?\$)
    |(?P<name>"(?:[^"]|"")*+")
    |(?P<parameter>\$\d{1,6})
    |(?P<number>\d[\w.]*+)
    |(?P<word>[A-Za-z_\x80-\U0010ffff][\w$]*+)
    |(?P<unclosed>['"])
    |(?P<cast>::)
    |(?P<sign>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT = re.compile(r"/\*|\*/")
_BLANK = ("space", "comment")
_QUERIES = frozenset(
    {"select", "with", "values", "table", "from", "explain", "describe", "summarize", "show", "pivot", "unpivot"}
)
"""First words of statements that answer rows."""
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
_UNNEST_OPTIONS = ("recursive", "max_depth", "keep_parent_names")
_AFTER_TABLE = (
    *("where", "order", "group", "having", "window", "limit", "offset", "fetch", "for", "on", "using", "tablesample"),
    *("union", "intersect", "except", "cross", "join", "natural", "inner", "left", "right", "full", "positional"),
    *("asof", "semi", "anti", "qualify"),
)
"""Words that may follow a table without an alias."""
_AFTER_TABLES = (
    *("select", "where", "order", "group", "having", "window", "limit", "offset", "fetch", "for", "qualify"),
    *("union", "intersect", "except"),
)
"""Words that end the tables of a FROM."""
_ROW_FUNCTIONS = ("generate_subscripts", "string_to_array")
_ARRAY_TABLES = ("unnest", "generate_series", *_ROW_FUNCTIONS)
"""Functions that answer numbers, the elements of arrays, and their positions, as a table."""
_GROUP = re.compile(r"(?<!\\)\((?!\?)")
"""A group of a regular expression."""
_FORMAT_PLACE = re.compile("%[sIL]")
"""A place for an argument in a format of PostgreSQL; DuckDB's function of this name has ``{}``."""
MAX_CALL_TOKENS = 200
"""Limit: tokens of the arguments of a call that is rewritten, as calls may be nested; a longer one goes to DuckDB
unchanged."""
MAX_PATH_TOKENS = 200
"""Limit for a path of JSON, as in ``#>> ARRAY['a', 'b']``."""
_USER_WORDS = ("current_user", "session_user", "current_role")


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of a statement: its kind in ``_TOKEN``, its text, and where it begins in the client's text."""

    kind: str
    text: str
    position: int

    def is_word(self, *words: str) -> bool:
        """Report whether it is one of some words."""
        return self.kind == "word" and self.text.lower() in words

    @property
    def identifier(self) -> str:
        """Return the name that a word or a quoted name means; "" for anything else."""
        if self.kind == "name":
            return self.text[1:-1].replace('""', '"')
        return self.text.lower() if self.kind == "word" else ""

    @property
    def content(self) -> str | None:
        """Return a text literal's content; None for another token, and for a text with escapes."""
        if self.kind != "text" or not self.text.startswith("'"):
            return None
        return self.text[1:-1].replace("''", "'")


def tokens_of(text: str) -> Iterator[Token]:
    """Yield all pieces of a text, in order and without gaps. A quote without an end lasts until the end."""
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        assert match is not None  # the last alternative takes any character
        assert match.lastgroup is not None
        kind, end = match.lastgroup, match.end()
        if kind == "comment":
            end = _end_of_comment(text, end)
        elif kind == "dollar":
            close = text.find(match[0], end)
            kind, end = ("text", close + len(match[0])) if close >= 0 else ("unclosed", len(text))
        elif kind == "unclosed":
            end = len(text)
        yield Token(kind, text[position:end], position)
        position = end


def _end_of_comment(text: str, position: int) -> int:
    depth = 1
    for match in _COMMENT.finditer(text, position):
        depth += 1 if match[0] == "/*" else -1
        if depth == 0:
            return match.end()
    return len(text)


@dataclass(frozen=True)
class Statement:
    """A statement of a client's text."""

    tokens: Sequence[Token] = field(repr=False)

    @cached_property
    def significant(self) -> list[Token]:
        """Tokens without blanks and comments."""
        return [token for token in self.tokens if token.kind not in _BLANK]

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
    tokens = _with_literals(statement.tokens, literals)
    significant = [index for index, token in enumerate(tokens) if token.kind not in _BLANK]
    replaced = dict(_replacements([tokens[index] for index in significant], object_number, information_schema))
    by_index = {significant[number]: text for number, text in replaced.items()}
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
    object_number: Callable[[str, str], int | None],
    information_schema: frozenset[str],
) -> Iterator[tuple[int, str]]:
    """Yield the index of each token that DuckDB writes in another way, and its text."""
    removed: set[int] = set()
    closing, (table_commas, column_commas) = _closing(tokens), _commas(tokens)
    blank = Token("sign", "", 0)

    def follow(index: int) -> tuple[int, Token]:
        """Return the next token that is not removed."""
        index += 1
        while index in removed:
            index += 1
        return index, tokens[index] if index < len(tokens) else blank

    for index in range(len(tokens) - 1):
        if tokens[index].identifier == "pg_catalog" and tokens[index + 1].text == ".":
            removed |= {index, index + 1}
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
        elif token.is_word(*_ARRAY_TABLES) and second.text == "(" and index and second_index in closing:
            is_table = tokens[index - 1].is_word("from", "join", "lateral") or index - 1 in table_commas
            is_column = tokens[index - 1].is_word("select") or index - 1 in column_commas
            texts = _array_table(tokens, index, second_index, closing[second_index], is_table, is_column)
            removed |= {number for number, text in texts.items() if not text}
            yield from texts.items()
        elif token.identifier == "oid" and second.text == "=" and _is_function_column(tokens, third_index):
            # Columns with functions hold names here, and Npgsql joins them with the functions' numbers.
            yield index, "proname"
        elif token.is_word("substring") and second_index in closing and _is_pattern(tokens, second_index, closing):
            has_group = _GROUP.search(tokens[closing[second_index] - 1].text)
            yield index, "group_of_pattern" if has_group else "text_of_pattern"
            yield closing[second_index] - 2, ","
        elif token.is_word("format") and second_index in closing and _FORMAT_PLACE.search(third.content or ""):
            if commas := _argument_commas(tokens, second_index, closing[second_index]):
                yield index, "text_of_format"
                yield commas[0], ", [CAST("
                for comma in commas[1:]:
                    yield comma, " AS VARCHAR), CAST("
                yield closing[second_index], " AS VARCHAR)])"
        elif token.identifier in _FUNCTION_COLUMNS and second.text in "!<" and third.text in "=>":
            zero_index, zero = follow(third_index)
            if zero.text == "0":
                yield zero_index, "'-'"
        elif token.text == "#" and second.text == ">":
            is_text = third.text == ">"
            path_index = follow(third_index)[0] if is_text else third_index
            elements, end = _json_path(tokens, path_index)
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
        elif token.is_word("any", "all") and second.text == "(" and (elements := _array_literal(third)):
            yield third_index, elements
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


def _array_table(
    tokens: Sequence[Token], index: int, opened: int, closed: int, is_table: bool, is_column: bool
) -> dict[int, str]:
    """Return DuckDB's texts, by index, for a table of arrays' elements, which it has as a query only.

    These are ``unnest(a, b) [WITH ORDINALITY]`` and ``FROM generate_subscripts(a, 1) AS k``; Django and peewee read
    the columns of indexes so, and Grafana the search path. {} for another call.
    """
    if closed - opened > MAX_CALL_TOKENS:
        return {}
    rest = [token.text.lower() for token in tokens[closed + 1 : closed + 4]]
    if tokens[index].is_word("generate_series", *_ROW_FUNCTIONS):
        if not is_table:
            # In place of a column, PostgreSQL answers a row for each number, and DuckDB a list.
            is_rows = is_column and tokens[index].is_word("generate_series")
            return {index: "unnest(generate_series", closed: "))"} if is_rows else {}
        # The name of the table is the name of its column, too.
        has_as = rest[:1] == ["as"]
        name, behind = closed + 1 + has_as, rest[1 + has_as : 2 + has_as]
        is_named = (
            name < len(tokens)
            and tokens[name].identifier
            and (has_as or not tokens[name].is_word(*_AFTER_TABLE))
            and behind != ["("]
        )
        alias = {name: f"{tokens[name].text}({tokens[name].text})"} if is_named else {}
        if tokens[index].is_word("generate_series"):
            return alias
        return {index: f"(SELECT {tokens[index].text}", closed: "))", **alias}
    commas = _argument_commas(tokens, opened, closed)
    # DuckDB's own options follow a comma, too.
    if not commas or any(tokens[comma + 1].is_word(*_UNNEST_OPTIONS) for comma in commas):
        return {}
    texts = {index: "(SELECT unnest", **dict.fromkeys(commas, "), unnest("), closed: "))"}
    if rest[:2] == ["with", "ordinality"]:
        bounds = [opened, *commas, closed]
        arrays = [" ".join(token.text for token in tokens[begin + 1 : end]) for begin, end in pairwise(bounds)]
        longest = ", ".join(f"len({array})" for array in arrays)
        texts |= {closed: f"), unnest(range(1, greatest({longest}) + 1)))", closed + 1: "", closed + 2: ""}
    return texts


def _argument_commas(tokens: Sequence[Token], opened: int, closed: int) -> list[int]:
    """Return the indexes of the commas between the arguments of a call; none for a call that is too long."""
    depth, commas = 0, list[int]()
    for number in range(opened, closed if closed - opened <= MAX_CALL_TOKENS else opened):
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(tokens[number].text, 0)
        if tokens[number].text == "," and depth == 1:
            commas.append(number)
    return commas


def _is_function_column(tokens: Sequence[Token], index: int) -> bool:
    """Report whether a column with names of functions is at an index, with or without its table."""
    dotted = index + 2 < len(tokens) and tokens[index + 1].text == "."
    column = index + 2 if dotted else index
    return column < len(tokens) and tokens[column].identifier in _FUNCTION_COLUMNS


def _is_pattern(tokens: Sequence[Token], opened: int, closing: Mapping[int, int]) -> bool:
    """Report whether the arguments end with ``FROM 'a pattern'``, as in ``substring(x FROM '[0-9]+')``."""
    closed = closing[opened]
    return closed - opened > 3 and tokens[closed - 2].is_word("from") and tokens[closed - 1].kind == "text"


def _closing(tokens: Sequence[Token]) -> dict[int, int]:
    """Return the index of the parenthesis that closes each open one."""
    closing, opened = dict[int, int](), list[int]()
    for index, token in enumerate(tokens):
        if token.text == "(":
            opened.append(index)
        elif token.text == ")" and opened:
            closing[opened.pop()] = index
    return closing


def _commas(tokens: Sequence[Token]) -> tuple[set[int], set[int]]:
    """Return the indexes of the commas between the tables of a FROM, and of those between the columns of a SELECT."""
    commas: dict[str, set[int]] = {"from": set(), "select": set()}
    clauses = [""]
    for index, token in enumerate(tokens):
        if token.text in ("(", "["):
            clauses.append("")
        elif token.text in (")", "]") and len(clauses) > 1:
            clauses.pop()
        elif token.text == "," and clauses[-1]:
            commas[clauses[-1]].add(index)
        elif token.is_word("from"):
            if not (index and tokens[index - 1].is_word("distinct")):  # IS DISTINCT FROM
                clauses[-1] = "from"
        elif token.is_word(*_AFTER_TABLES):
            clauses[-1] = "select" if token.is_word("select") else ""
    return commas["from"], commas["select"]


def _json_path(tokens: Sequence[Token], index: int) -> tuple[str | None, int]:
    """Return ``'{a,0}'`` or ``ARRAY['a', '0']`` as DuckDB's path, and the index behind it; None for anything else."""
    elements, end = list[str](), index + 1
    token = tokens[index] if index < len(tokens) else Token("sign", "", 0)
    try:
        if token.is_word("array") and end < len(tokens) and tokens[end].text == "[":
            # Limit: each path looks at a few tokens, not at the rest of the text.
            while end < min(len(tokens), index + MAX_PATH_TOKENS) and tokens[end].text != "]":
                end += 1
                if (content := tokens[end].content) is not None:
                    elements.append(content)
            if end >= len(tokens) or tokens[end].text != "]":
                return None, index
            end += 1
            if [entry.text for entry in tokens[end : end + 4]] == ["::", "text", "[", "]"]:
                end += 4
        else:
            elements = [(element or b"").decode() for element in split_array(token.content or "")]
    except (BadParameter, IndexError):
        return None, index
    escaped = [element if element.isdecimal() else '"' + element.replace('"', '\\"') + '"' for element in elements]
    path = "".join(f"[{element}]" if element.isdecimal() else f".{element}" for element in escaped)
    return quoted(f"${path}"), end


def _array_literal(token: Token) -> str | None:
    """Return a text such as ``'{a,b}'`` as DuckDB's list; None for another token."""
    try:
        elements = split_array(token.content or "")
        return f"[{', '.join('NULL' if element is None else quoted(element.decode()) for element in elements)}]"
    except BadParameter:
        return None
