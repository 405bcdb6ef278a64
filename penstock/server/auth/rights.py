"""Who may do what: bearer tokens and their rights on topics."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from penstock.config import SecurityConfig, TokenConfig
from penstock.ledger.ledger import CURSOR as PIPELINE_CURSOR
from penstock.log import TopicSettings
from penstock.slogd.errors import NotAllowed, Unauthenticated

ANYBODY = "*"
_ALL = (ANYBODY,)
_SCHEME = "bearer "
_HASHED = "sha256:"


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks. ``read`` and ``write`` are topics by name, ``*`` for all, or ``prefix*``.

    ``cursor``: likewise, of topics whose cursors it may move; ``TOPIC/NAME`` is of the cursors with such names alone.
    """

    name: str
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    cursor: tuple[str, ...] = ()
    admin: bool = False
    ledger: bool = False
    monitor: bool = False
    inside: bool = False
    credential: str = field(default="", compare=False, repr=False)
    """The digest of the token, by which ``TokenAuthenticator.current`` knows whether it is still valid."""

    def reads(self, topic: str, settings: TopicSettings) -> bool:
        """Whether it may read a topic; internal topics are for administrators."""
        if self.inside or topic.startswith("_"):
            return self.inside or self.admin
        return _matches(topic, self.read) and _named(self.name, settings.readers)

    def writes(self, topic: str, settings: TopicSettings) -> bool:
        """Whether it may write a topic."""
        if self.write == _ALL == settings.writers:
            return True
        return self.inside or (_matches(topic, self.write) and _named(self.name, settings.writers))

    def moves(self, topic: str, cursor: str) -> bool:
        """Whether it may set and remove a cursor, where it may read the topic."""
        return self.admin or self.inside or any(_of_cursor(right, topic, cursor) for right in self.cursor)

    def check_read(self, topic: str, settings: TopicSettings) -> None:
        """Raises NotAllowed."""
        if not self.reads(topic, settings):
            raise NotAllowed(f"Topic may not be read: {topic}")

    def check_write(self, topic: str, settings: TopicSettings) -> None:
        """Raises NotAllowed."""
        if not self.writes(topic, settings):
            raise NotAllowed(f"Topic may not be written: {topic}")

    def check_cursor(self, topic: str, cursor: str) -> None:
        """Raises NotAllowed."""
        if not self.moves(topic, cursor):
            raise NotAllowed(f"Cursor may not be moved: {cursor} of {topic}")

    def check_transactions(self) -> None:
        """Raises NotAllowed where there is no topic that it could write."""
        if not (self.write or self.inside):
            raise NotAllowed("Who may write no topic has no transactions")

    def check_monitor(self) -> None:
        """Raises NotAllowed."""
        if not self.monitor:
            raise NotAllowed("The balance, statistics and the configuration may not be seen")

    def check_admin(self) -> None:
        """Raises NotAllowed."""
        if not self.admin:
            raise NotAllowed("Only an administrator may do this")

    def check_ledger(self) -> None:
        """Raises NotAllowed."""
        if not self.ledger:
            raise NotAllowed("The ledger may not be posted to")


NOBODY_ASKED = Principal("", (ANYBODY,), (ANYBODY,), admin=True, ledger=True, monitor=True)
"""Whoever calls where there are no tokens. Topics that name their readers or writers are closed to it all the same."""


def _matches(topic: str, patterns: Iterable[str]) -> bool:
    return any(topic.startswith(p[:-1]) if p.endswith(ANYBODY) else topic == p for p in patterns)


def _of_cursor(right: str, topic: str, cursor: str) -> bool:
    """Without a name of cursors, all are meant but the pipeline's, which says what has landed."""
    topics, named, names = right.partition("/")
    return _matches(topic, (topics,)) and (_matches(cursor, (names,)) if named else cursor != PIPELINE_CURSOR)


def _named(name: str, names: Iterable[str]) -> bool:
    return any(one in (ANYBODY, name) for one in names if one)


class TokenAuthenticator:
    """Knows the callers by their tokens; without tokens, everybody is let in."""

    def __init__(self, tokens: Mapping[str, TokenConfig] | None = None, internal: str | None = None) -> None:
        self._internal = internal
        self.on_change: Callable[[], None] = lambda: None
        """Called after the tokens were replaced, on the thread that did it."""
        self.replace(tokens or {})

    def replace(self, tokens: Mapping[str, TokenConfig]) -> None:
        """Know the callers by other tokens from now on."""
        callers = {
            _configured(config.token): Principal(
                name,
                config.read,
                config.write,
                config.cursor,
                admin=config.admin,
                ledger=config.ledger or config.admin,
                monitor=config.monitor or config.admin,
                credential=_configured(config.token),
            )
            for name, config in tokens.items()
        }
        if self._internal is not None:
            credential = _digest(self._internal)
            callers[credential] = Principal(
                "", admin=True, ledger=True, monitor=True, inside=True, credential=credential
            )
        self._callers, self.closed = callers, bool(tokens)
        self.on_change()

    @classmethod
    def of(cls, security: SecurityConfig, internal: str | None) -> TokenAuthenticator:
        """The guard of a configuration; ``internal`` is the token of the product's own processes."""
        return cls(security.tokens, internal)

    def caller(self, authorization: str | None) -> Principal:
        """Who shows this ``Authorization`` header. Raises Unauthenticated."""
        if not self.closed:
            return NOBODY_ASKED
        if authorization is None or not authorization.lower().startswith(_SCHEME):
            raise Unauthenticated("A bearer token is needed")
        # Looked up by digest: how long that takes says nothing about the token.
        found = self._callers.get(_digest(authorization[len(_SCHEME) :].strip()))
        if found is None:
            raise Unauthenticated("The token is not known")
        return found

    def current(self, caller: Principal) -> Principal:
        """Return the caller with the rights that its token has now. Raises Unauthenticated if it was revoked.

        Asked before each answer of a stream: a stream may stay open for days after its token was removed.
        """
        if not self.closed:
            return NOBODY_ASKED
        principal = self._callers.get(caller.credential)
        if principal is None:
            raise Unauthenticated("The token is no longer known")
        return principal


def _configured(token: str) -> str:
    """The digest of a token of the configuration, which may be a digest already."""
    return token if token.startswith(_HASHED) else _digest(token)


def _digest(token: str) -> str:
    return _HASHED + hashlib.sha256(token.encode(errors="backslashreplace")).hexdigest()
