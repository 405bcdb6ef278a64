"""Casts and literals that DuckDB reads as other values, without an error.

These are casts to numeric, float and bytea, texts that are no integer or number as PostgreSQL reads them, texts with
escapes of Unicode, and integers in other bases than ten.
"""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal, InvalidOperation

from penstock.sql.postgres.parameters import BadParameter, bytes_of_text, quoted
from penstock.sql.postgres.statements.tokens import END, Token, token_at

MAX_DIGITS = 38
"""Digits of a decimal of DuckDB."""
_ANY_NUMERIC = "DECIMAL(38,12)"
"""A numeric without a precision, which has any number of digits in PostgreSQL and is ``DECIMAL(18,3)`` in DuckDB."""
_NUMERIC_NAMES = ("numeric", "decimal", "dec")
_INTEGERS = {
    **dict.fromkeys(("int2", "smallint"), "smallint"),
    **dict.fromkeys(("int", "int4", "integer"), "integer"),
    **dict.fromkeys(("int8", "bigint"), "bigint"),
}
_FLOATS = {
    **dict.fromkeys(("float", "float8", "double"), ("double precision", ctypes.c_double)),
    **dict.fromkeys(("float4", "real"), ("real", ctypes.c_float)),
}
"""PostgreSQL's name of each type, and the type of C that rounds as it does."""
_CHECKED_TYPES = frozenset((*_INTEGERS, *_FLOATS, "bool", "boolean"))
"""Types whose texts DuckDB reads in another way."""
_TEXT_TYPES = frozenset(("text", "varchar"))
_BEFORE_PARENTHESES = frozenset(
    ("", "select", "where", "and", "or", "not", "on", "having", "by", "when", "then", "else", "in", "values", "limit")
)
"""Words before a parenthesis that is not the arguments of a call; "" is a sign."""
_NONZERO = re.compile(r"\s*[+-]?[0.]*[1-9]")
"""Start of a number that is not zero, and not a word such as ``inf``."""
_FRACTION = re.compile(r"\s*[+-]?(\d+\.\d*|\.\d+|\d+(?=e))(e[+-]?\d+)?\s*", re.IGNORECASE)
"""A number that DuckDB rounds to an integer."""
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_DOUBLED_BACKSLASH = re.compile(r"[eE]'((?:[^\\']|\\\\)*)'")
"""A text with escapes that has no other one than ``\\\\``, as clients write bytes."""
_ESCAPE = re.compile(
    rb"''|\\(?:(?P<octal>[0-7]{1,3})|x(?P<hex>[0-9a-fA-F]{1,2})|u(?P<u4>[0-9a-fA-F]{4})|U(?P<u8>[0-9a-fA-F]{8})|(?P<char>.))",
    re.DOTALL,
)
"""An escape in the content of ``E'...'``."""
_CONTROL_CHARACTERS = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t"}
_UNICODE_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)


def casts(tokens: Sequence[Token], closing: Mapping[int, int]) -> Iterator[tuple[int, str]]:
    """Yield the index of each token of a cast that DuckDB writes in another way, and its text."""
    opening = {closed: opened for opened, closed in closing.items()}
    for index, token in enumerate(tokens):
        if token.identifier not in (*_NUMERIC_NAMES, "float", "bytea"):
            continue
        before, behind = token_at(tokens, index - 1), token_at(tokens, index + 1)
        if token.identifier == "bytea" and behind.kind == "text":
            yield from _bytes_literal(tokens, index + 1)
            continue
        if behind.kind == "text":
            yield index, "DOUBLE" if token.identifier == "float" else _exact_type(behind) or _ANY_NUMERIC
            continue
        is_bare = behind.text != "("
        opened = _opened_cast(tokens, index, closing, opening)
        is_call = opened > 0
        if before.kind != "cast" and not is_call:
            continue
        begin = opened + 1 if is_call else index - 2
        operand = tokens[begin] if begin >= 0 and (not is_call or begin + 2 == index) else END
        if operand.kind == "text" == token_at(tokens, begin - 1).kind:
            operand = END  # texts of two lines are one
        if token.identifier == "float":
            if is_bare:
                yield index, "DOUBLE"
        elif token.identifier == "bytea":
            yield from _bytes_literal(tokens, begin) if operand.kind == "text" else ()
        elif operand.kind in ("number", "literal", "text") and (exact := _exact_type(operand)):
            if is_bare:
                yield index, exact
        elif behind.text != "[":
            # By way of a text, which has the digits that clients see: DuckDB multiplies a double by a power of ten.
            numeric = _ANY_NUMERIC if is_bare else token.text
            if is_call:
                yield opened, "(("
                yield index - 1, ")::VARCHAR AS"
            yield index, numeric if is_call else f"VARCHAR::{numeric}"
        elif is_bare:
            yield index, _ANY_NUMERIC


def typed_texts(tokens: Sequence[Token], closing: Mapping[int, int]) -> Iterator[tuple[int, str]]:
    """Yield the index of each text that is cast to a boolean, and its text for DuckDB, which reads fewer ones.

    Raises BadParameter for a text that DuckDB would round to an integer, or take for infinite or zero, and for a cast
    to ``bit``, which has a width of its own for each type in DuckDB.
    """
    opening = {closed: opened for opened, closed in closing.items()}
    for index, token in enumerate(tokens):
        if token.identifier == "bit":
            _check_bits(tokens, index, is_call=_opened_cast(tokens, index, closing, opening) > 0)
        name = token.identifier
        if name not in _CHECKED_TYPES or token_at(tokens, index + 1).text == "[":
            continue
        is_operand = token_at(tokens, index - 1).kind == "cast" or _opened_cast(tokens, index, closing, opening) > 0
        literal_index = _operand(tokens, index - 2, opening) if is_operand else index + 1
        content = text_value(token_at(tokens, literal_index))
        if content is None or token_at(tokens, literal_index - 1).kind == "text":
            continue
        if name in _INTEGERS and _FRACTION.fullmatch(content):
            raise BadParameter(f'invalid input syntax for type {_INTEGERS[name]}: "{content[:60]}"')
        if name in _FLOATS and _NONZERO.match(content):
            kind, c_type = _FLOATS[name]
            rounded = math.nan
            with suppress(ValueError):  # DuckDB refuses what is no number
                rounded = c_type(float(content)).value
            if rounded == 0 or math.isinf(rounded):
                raise BadParameter(f'"{content[:60]}" is out of range for type {kind}')
        if name in ("bool", "boolean") and (text := content.strip().lower()):
            truths = {truth for word, truth in _BOOLEANS.items() if word.startswith(text)}
            if len(truths) == 1:
                yield literal_index, f"'{str(truths.pop()).lower()}'"


def _opened_cast(tokens: Sequence[Token], index: int, closing: Mapping[int, int], opening: Mapping[int, int]) -> int:
    """Return the index of the parenthesis of a call of ``cast`` to the type at ``index``; 0 if there is none.

    Behind another ``AS``, the name of a type is that of a column.
    """
    if not token_at(tokens, index - 1).is_word("as"):
        return 0
    last = index + token_at(tokens, index + 1).is_word("precision", "varying")
    opened = opening.get(closing.get(last + 1, last) + 1, 0)
    return opened if token_at(tokens, opened - 1).is_word("cast", "try_cast") else 0


def _operand(tokens: Sequence[Token], end: int, opening: Mapping[int, int]) -> int:
    """Return the index of the token that an operand ending at ``end`` consists of.

    Parentheses and casts to texts around the token are part of the operand.
    """
    index, pairs = end, list[tuple[int, int]]()
    # No recursion: a statement may have any number of parentheses.
    while True:
        while token_at(tokens, index).identifier in _TEXT_TYPES and token_at(tokens, index - 1).kind == "cast":
            index -= 2
        opened = opening.get(index)
        if opened is None or token_at(tokens, opened - 1).identifier not in _BEFORE_PARENTHESES:
            break
        pairs.append((opened, index))
        index -= 1
    begin = index
    for opened, closed in reversed(pairs):
        if begin == opened + 1:
            begin = opened
        else:
            index = begin = closed
    return index


def _check_bits(tokens: Sequence[Token], index: int, *, is_call: bool) -> None:
    """Raise BadParameter for a cast to ``bit``, but of a text that has the stated number of bits."""
    behind = token_at(tokens, index + 1)
    if token_at(tokens, index - 1).kind != "cast" and not is_call:
        return
    bits = text_value(token_at(tokens, index - 2)) or ""
    width = token_at(tokens, index + 2).text if behind.text == "(" else "1"
    if str(len(bits)) != width:
        raise BadParameter(f"a cast to bit({width[:9]}) of anything but a text of as many bits is not supported")


def _exact_type(operand: Token) -> str | None:
    """Return the type that has all digits of a literal; None for what is no number."""
    try:
        number = Decimal(operand.content or operand.text.strip(" ()"))
    except InvalidOperation:
        return None
    _, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int):
        return None
    scale = max(-exponent, 0)
    width = max(len(digits) + max(exponent, 0), scale, 1)
    return f"DECIMAL({width},{scale})" if width <= MAX_DIGITS else None


def _bytes_literal(tokens: Sequence[Token], index: int) -> Iterator[tuple[int, str]]:
    """Yield a literal of bytes as DuckDB reads it, with ``\\x`` at each byte."""
    match = _DOUBLED_BACKSLASH.fullmatch(tokens[index].text)
    content = match[1].replace("\\\\", "\\") if match else tokens[index].content
    if content is not None and "\\" in content:
        try:
            yield index, quoted("".join(f"\\x{byte:02x}" for byte in bytes_of_text(content)))
        except BadParameter:
            return


def literals_of_postgresql(tokens: Sequence[Token]) -> Iterator[tuple[int, str]]:
    """Yield the index of each literal that DuckDB misreads, and its text.

    ``E'\\u00e4'`` is ``u00e4`` for DuckDB, and ``0x1F`` is 0 with the name ``x1F``.
    """
    for index, token in enumerate(tokens):
        if token.kind == "number" and token.text[:2].lower() in ("0x", "0o", "0b"):
            try:
                yield index, str(int(token.text, 0))
            except ValueError:
                raise BadParameter(f"{token.text[:40]} is not an integer") from None
        elif token.kind == "text" and token.text[0] in "eE" and "\\u" in token.text.lower():
            yield index, unicode_escapes(token.text)


def unicode_escapes(text: str) -> str:
    """Return a text with escapes whose escapes of Unicode are characters. Raises BadParameter."""
    return _UNICODE_ESCAPE.sub(_character, text)


def _character(escape: re.Match[str]) -> str:
    code = int(escape[1] or escape[2] or "0", 16)
    if not code:
        # Another escape, which DuckDB reads. Both characters are taken, so that a doubled backslash escapes no u.
        return escape[0]
    try:
        character = chr(code)
        character.encode()
    except (ValueError, OverflowError):
        raise BadParameter(f"{escape[0]} is not a character") from None
    return "''" if character == "'" else "\\\\" if character == "\\" else character


def text_value(token: Token) -> str | None:
    """Return the text that a literal means, in any of its quotes; None for another token. Raises BadParameter."""
    if token.kind != "text":
        return None
    if token.text.startswith("$"):
        tag = token.text[: token.text.index("$", 1) + 1]
        return token.text[len(tag) : -len(tag)]
    if token.text[0] not in "eE":
        return token.content
    value = _ESCAPE.sub(_escaped_bytes, token.text[2:-1].encode())
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise BadParameter(f"the escapes of {token.text[:60]} are not UTF-8") from None


def _escaped_bytes(escape: re.Match[bytes]) -> bytes:
    if escape["octal"] or escape["hex"]:
        return bytes([int(escape["octal"] or b"0", 8) & 0xFF | int(escape["hex"] or b"0", 16)])
    if code := escape["u4"] or escape["u8"]:
        try:
            return chr(int(code, 16)).encode()
        except (ValueError, OverflowError):
            raise BadParameter(f"{escape[0].decode()} is not a character") from None
    character: bytes = escape["char"] or b"'"
    return _CONTROL_CHARACTERS.get(character, character)
