"""Patterns of LIKE and SIMILAR TO and regular expressions, which DuckDB reads in another way without an error.

Invariant: a pattern finds the rows that it finds in PostgreSQL, or the statement is refused. DuckDB has no escape in a
pattern of LIKE unless the statement sets one, a pattern of SIMILAR TO is a regular expression for it, and the point of
a regular expression matches no end of a line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from penstock.sql.postgres.parameters import BadParameter, quoted
from penstock.sql.postgres.statements.casts import text_value, unicode_escapes
from penstock.sql.postgres.statements.parentheses import MAX_CALL_TOKENS, argument_commas
from penstock.sql.postgres.statements.tokens import Token, token_at

ESCAPE_CLAUSE = r" ESCAPE '\'"
"""Text that follows a pattern of ``escaped_patterns``."""
_OPERANDS = ("text", "literal", "number", "parameter")
_OPERATORS = frozenset("|+-*/%>")
"""Signs of operators that bind tighter than LIKE; ``>`` ends the arrow of JSON."""
_REGULAR_EXPRESSION_FUNCTIONS = ("regexp_replace", "regexp_split_to_array")
"""Functions of both whose second argument is a regular expression."""
_ANY_CHARACTER = "(?s)"
"""Prefix of a regular expression whose point matches the end of a line, too."""
_OUTSIDE_CLASS = re.compile(r"\\.|\[\^?\]?|.", re.DOTALL)
_IN_CLASS = re.compile(r"\\.|\[:\w+:\]|.", re.DOTALL)
"""Pieces of a regular expression; a bracket that begins a class may be followed by one that belongs to it."""
_CLASSES = {"[:alpha:]": r"\pL", "[:alnum:]": r"\pL\p{Nd}", "[:upper:]": r"\p{Lu}", "[:lower:]": r"\p{Ll}"}
"""Classes of characters that have all letters in PostgreSQL, and ASCII's in RE2."""


def escaped_patterns(tokens: Sequence[Token], closing: Mapping[int, int]) -> Iterator[int]:
    """Yield the index of the last token of each pattern of LIKE in which a backslash is the escape.

    PostgreSQL has this escape unless the statement sets one, and DuckDB has none. Patterns without a backslash are left
    to DuckDB, which finds a prefix by statistics then.
    """
    for index, token in enumerate(tokens):
        if not token.is_word("like", "ilike"):
            continue
        begin = index + 1
        end = _end_of_pattern(tokens, begin, closing)
        if end is None or token_at(tokens, end).is_word("escape"):
            continue
        # Limit: a long pattern is escaped without a look at its tokens, as patterns may be nested.
        pattern = tokens[begin:end] if end - begin <= MAX_CALL_TOKENS else ()
        if not pattern or any(_may_have_backslash(pattern, number) for number in range(len(pattern))):
            yield end - 1


def _may_have_backslash(pattern: Sequence[Token], number: int) -> bool:
    """Report whether a token is a text with a backslash, or a column."""
    token = pattern[number]
    if token.kind in ("text", "literal"):
        return "\\" in token.text
    is_type = number > 0 and pattern[number - 1].kind == "cast"
    return bool(token.identifier) and not is_type and token_at(pattern, number + 1).text != "("


def _end_of_pattern(tokens: Sequence[Token], begin: int, closing: Mapping[int, int]) -> int | None:
    """Return the index behind a pattern; None for what is no pattern, or too unusual to find its end."""
    index = _end_of_operand(tokens, begin, closing)
    while index is not None:
        operator = index
        while token_at(tokens, index).text in _OPERATORS:
            index += 1
        if index == operator:
            return index
        index = _end_of_operand(tokens, index, closing)
    return None


def _end_of_operand(tokens: Sequence[Token], index: int, closing: Mapping[int, int]) -> int | None:
    token = token_at(tokens, index)
    if token.is_word("any", "all", "some", "array", "not"):
        return None
    if token.is_word("case"):
        end = _end_of_case(tokens, index)
        if end is None:
            return None
        index = end + 1
    elif token.text == "(" or token.kind in _OPERANDS:
        end = closing.get(index) if token.text == "(" else index
        if end is None:
            return None
        index = end + 1
    elif token.identifier:
        index += 1
        while token_at(tokens, index).text == "." and token_at(tokens, index + 1).identifier:
            index += 2
        if token_at(tokens, index).text == "(":
            if index not in closing:
                return None
            index = closing[index] + 1
        # A type and its literal, as in ``text 'a'``.
        index += token_at(tokens, index).kind == "text"
    else:
        return None
    return _end_of_suffixes(tokens, index, closing)


def _end_of_case(tokens: Sequence[Token], index: int) -> int | None:
    """Return the index of the END of a CASE."""
    depth = 0
    # Limit: as for calls, because cases may be nested.
    for number in range(index, min(index + MAX_CALL_TOKENS, len(tokens))):
        depth += tokens[number].is_word("case") - tokens[number].is_word("end")
        if not depth:
            return number
    return None


def _end_of_suffixes(tokens: Sequence[Token], index: int, closing: Mapping[int, int]) -> int | None:
    """Return the index behind casts and subscripts."""
    while True:
        if token_at(tokens, index).kind == "cast" and token_at(tokens, index + 1).identifier:
            index += 2
            index += token_at(tokens, index).is_word("varying", "precision")
            if token_at(tokens, index).text == "(":
                index = closing.get(index, index) + 1
        elif token_at(tokens, index).text == "[":
            # Limit: as for calls, because subscripts may be nested.
            depth, end = 0, min(index + MAX_CALL_TOKENS, len(tokens))
            for number in range(index, end):
                depth += {"[": 1, "]": -1}.get(tokens[number].text, 0)
                if not depth:
                    break
            else:
                return None
            index = number + 1
        else:
            return index


def similar_patterns(tokens: Sequence[Token]) -> Iterator[tuple[int, str]]:
    """Yield the index of each pattern of SIMILAR TO, and its regular expression.

    Raises BadParameter for a pattern that is no plain text, or has an escape of its own.
    """
    for index, token in enumerate(tokens):
        if token.is_word("similar") and token_at(tokens, index + 1).is_word("to"):
            number = index + 2
            while token_at(tokens, number).text == "(":
                number += 1
            pattern, parentheses = token_at(tokens, number), range(number - index - 2)
            is_whole = all(token_at(tokens, number + 1 + count).text == ")" for count in parentheses)
            behind = token_at(tokens, number + 1 + len(parentheses))
            is_longer = behind.is_word("escape") or behind.kind == "text" or behind.text in ("[", *_OPERATORS)
            # A parameter without a value is described, not answered; one with a type is a cast of null then.
            is_null = pattern.text.strip().lower() in ("null", "cast(null as varchar)")
            if is_whole and not is_longer and (is_null or pattern.kind == "parameter"):
                continue
            content = text_value(pattern)
            if content is None or is_longer or not is_whole:
                raise BadParameter("the pattern of SIMILAR TO must be a text literal without an ESCAPE clause")
            yield number, quoted(_regular_expression(content))


def _regular_expression(pattern: str) -> str:
    pieces, is_class, is_escaped = [_ANY_CHARACTER], False, False
    for char in pattern:
        if is_escaped:
            pieces.append(char if char.isalnum() and char not in "dswDSW" else f"\\{char}")
        elif is_class or char not in "%_.^$\\":
            pieces.append(char)
        elif char != "\\":
            pieces.append({"%": ".*", "_": "."}.get(char, f"\\{char}"))
        is_class = not is_escaped and (char == "[" or (is_class and char != "]"))
        is_escaped = not is_escaped and not is_class and char == "\\"
    return "".join(pieces)


def regular_expressions(tokens: Sequence[Token], closing: Mapping[int, int]) -> Iterator[tuple[int, str]]:
    """Yield the index of each text literal that is a regular expression, and its text with ``_ANY_CHARACTER``."""
    for index, token in enumerate(tokens):
        behind = index + 1
        if token.text == "~" and token_at(tokens, index - 1).text != "~":
            behind += token_at(tokens, behind).text == "*"
            behind += token_at(tokens, behind).text == ")"  # OPERATOR(~)
        elif token.is_word(*_REGULAR_EXPRESSION_FUNCTIONS) and behind in closing:
            commas = argument_commas(tokens, behind, closing[behind])
            behind = commas[0] + 1 if commas else len(tokens)
        else:
            continue
        literal = token_at(tokens, behind)
        is_continued = token_at(tokens, behind + 1).kind == "text"
        if literal.kind == "text" and not is_continued and (content := text_value(literal)) is not None:
            yield behind, quoted(_ANY_CHARACTER + _with_letters(content))
        elif literal.kind == "text" and literal.text[0] in "'eE":
            # The quotes of the next line are those of the first one.
            prefix, quote, content = literal.text.partition("'")
            yield (
                behind,
                f"{prefix}{quote}{_ANY_CHARACTER}{unicode_escapes(content) if prefix else _with_letters(content)}",
            )


def _with_letters(expression: str) -> str:
    """Return a regular expression whose ``\\w`` and ``[:alpha:]`` have all letters; RE2 has ASCII's only."""
    pieces, position, is_class = list[str](), 0, False
    while match := (_IN_CLASS if is_class else _OUTSIDE_CLASS).match(expression, position):
        piece, position = match[0], match.end()
        if is_class and piece in _CLASSES:
            piece = _CLASSES[piece]
        elif piece == r"\w":
            piece = r"[:word:]\pL" if is_class else r"[[:word:]\pL]"
        elif piece == r"\W" and not is_class:
            piece = r"[^[:word:]\pL]"
        else:
            is_class = piece != "]" if is_class else piece[0] == "["
        pieces.append(piece)
    return "".join(pieces)
