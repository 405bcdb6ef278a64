"""A client's text as tokens of SQL, in order and without gaps: nothing of the text is lost."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""
    (?P<space>\s+|--[^\n]*)
    |(?P<comment>/\*)
    |(?P<text>[eE]'(?:[^'\\]|\\.|'')*+'|(?:[bBxX]|[uU]&)?'(?:[^']|'')*+')
    |(?P<dollar>\$(?:[A-Za-z_\x80-\U0010ffff][\w]*+)?\$)
    |(?P<name>"(?:[^"]|"")*+")
    |(?P<parameter>\$\d{1,6})
    |(?P<number>0[xX]\w*+|\.?\d(?:[\w.]|(?<=[eE])[+-](?=\d))*+)
    |(?P<word>[A-Za-z_\x80-\U0010ffff][\w$]*+)
    |(?P<unclosed>['"])
    |(?P<cast>::)
    |(?P<sign>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT = re.compile(r"/\*|\*/")


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


END = Token("sign", "", 0)
"""An empty token, in the place of one outside a statement."""


def token_at(tokens: Sequence[Token], index: int) -> Token:
    """Return a token of a statement, and ``END`` before its first and behind its last one."""
    return tokens[index] if 0 <= index < len(tokens) else END


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
