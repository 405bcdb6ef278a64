"""Callers, identified by bearer tokens, and their rights on topics.

Invariant: a request without a valid token is refused as soon as the configuration has one token.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from penstock.config import SecurityConfig, TokenConfig
from penstock.ledger.hosts.host_posts import HOST_TIER
from penstock.ledger.hosts.kafka_hosts import KAFKA_HOST_TIER
from penstock.ledger.ledger import CURSOR as PIPELINE_CURSOR
from penstock.log import TopicSettings
from penstock.slogd.errors import NotAllowed, Unauthenticated

ANYBODY = "*"
_ALL = (ANYBODY,)
_SCHEME = "bearer "
_HASHED = "sha256:"


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller. ``read`` and ``write`` are topics by name, ``*`` for all, or ``prefix*``.

    ``cursor``: topics, likewise, whose cursors it may move; ``TOPIC/NAME`` restricts the right to cursors of that
    name.
    """

    name: str
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    cursor: tuple[str, ...] = ()
    admin: bool = False
    ledger: bool = False
    monitor: bool = False
    relay: bool = False
    host: tuple[str, ...] = ()
    inside: bool = False
    credential: str = field(default="", compare=False, repr=False)
    """Digest of the token; ``TokenAuthenticator.current`` looks it up to see whether it is still valid."""

    def reads(self, topic: str, settings: TopicSettings) -> bool:
        """Report whether it may read a topic; internal topics are for administrators."""
        if self.inside or topic.startswith("_"):
            return self.inside or self.admin
        return _matches(topic, self.read) and _is_listed(self.name, settings.readers)

    def writes(self, topic: str, settings: TopicSettings) -> bool:
        """Report whether it may write a topic."""
        # Fast path: without restrictions no pattern is compared for each append.
        if self.write == _ALL == settings.writers:
            return True
        return self.inside or (_matches(topic, self.write) and _is_listed(self.name, settings.writers))

    def moves(self, topic: str, cursor: str) -> bool:
        """Report whether it may set and remove a cursor of a topic that it may read."""
        return self.admin or self.inside or any(_allows_cursor(right, topic, cursor) for right in self.cursor)

    def check_read(self, topic: str, settings: TopicSettings) -> None:
        """Raise NotAllowed unless it may read the topic."""
        if not self.reads(topic, settings):
            raise NotAllowed(f"Topic may not be read: {topic}")

    def check_write(self, topic: str, settings: TopicSettings) -> None:
        """Raise NotAllowed unless it may write the topic."""
        if not self.writes(topic, settings):
            raise NotAllowed(f"Topic may not be written: {topic}")

    def check_cursor(self, topic: str, cursor: str) -> None:
        """Raise NotAllowed unless it may move the cursor."""
        if not self.moves(topic, cursor):
            raise NotAllowed(f"Cursor may not be moved: {cursor} of {topic}")

    def check_transactions(self) -> None:
        """Raise NotAllowed if it may write no topic at all."""
        if not (self.write or self.inside):
            raise NotAllowed("Transactions require write access to at least one topic")

    def check_monitor(self) -> None:
        """Raise NotAllowed unless it may see the balance and the configuration."""
        if not self.monitor:
            raise NotAllowed("The balance, statistics and the configuration require the right monitor")

    def check_admin(self) -> None:
        """Raise NotAllowed unless it is an administrator."""
        if not self.admin:
            raise NotAllowed("This requires the right admin")

    def check_ledger(self) -> None:
        """Raise NotAllowed unless it may post to the ledger; ``check_post`` judges what it posts."""
        if not (self.ledger or self.host):
            raise NotAllowed("Posting to the ledger requires the right ledger")

    def check_post(self, document: object) -> None:
        """Raise NotAllowed unless it may post this document: any, or the counts of hosts that its token names."""
        if self.host and isinstance(document, Mapping) and document.get("tier") in (HOST_TIER, KAFKA_HOST_TIER):
            host = document.get("host")
            if not (isinstance(host, str) and (self.ledger or _matches(host, self.host))):
                raise NotAllowed("Counts of this host may not be posted: the token is for others")
        elif not self.ledger:
            raise NotAllowed("Posting to the ledger requires the right ledger")

    def check_relay(self) -> None:
        """Raise NotAllowed unless it may say where another Penstock received entries."""
        if not self.relay:
            raise NotAllowed("Appending what another host received requires the right relay")


ANONYMOUS = Principal("", (ANYBODY,), (ANYBODY,), admin=True, ledger=True, monitor=True, relay=True)
"""Every caller if no tokens are configured. Topics that name their readers or writers stay closed to it."""


def _matches(topic: str, patterns: Iterable[str]) -> bool:
    return any(topic.startswith(p[:-1]) if p.endswith(ANYBODY) else topic == p for p in patterns)


def _allows_cursor(right: str, topic: str, cursor: str) -> bool:
    """Report whether a right covers a cursor. ``TOPIC`` alone covers all cursors except the pipeline's."""
    topics, separator, cursors = right.partition("/")
    # The pipeline's cursor states what has landed; retention trusts it, so a right must name it.
    return _matches(topic, (topics,)) and (_matches(cursor, (cursors,)) if separator else cursor != PIPELINE_CURSOR)


def _is_listed(name: str, names: Iterable[str]) -> bool:
    return any(listed in (ANYBODY, name) for listed in names if listed)


class TokenAuthenticator:
    """Callers by their tokens. Without tokens, every request is accepted. Thread-safe."""

    def __init__(self, tokens: Mapping[str, TokenConfig] | None = None, internal: str | None = None) -> None:
        self._internal = internal
        self.on_change: Callable[[], None] = lambda: None
        """Called after the tokens were replaced, on the replacing thread."""
        self.replace(tokens or {})

    def replace(self, tokens: Mapping[str, TokenConfig]) -> None:
        """Replace all tokens and their rights."""
        callers = {
            _digest_of_setting(config.token): Principal(
                name,
                config.read,
                config.write,
                config.cursor,
                admin=config.admin,
                ledger=config.ledger or config.admin,
                monitor=config.monitor or config.admin,
                relay=config.relay,
                host=config.host,
                credential=_digest_of_setting(config.token),
            )
            for name, config in tokens.items()
        }
        if self._internal is not None:
            credential = _digest(self._internal)
            callers[credential] = Principal(
                "", admin=True, ledger=True, monitor=True, inside=True, credential=credential
            )
        # A new dictionary, not a changed one: other threads look tokens up without a lock.
        self._callers, self.closed = callers, bool(tokens)
        self.on_change()

    @classmethod
    def from_config(cls, security: SecurityConfig, internal: str | None) -> TokenAuthenticator:
        """Create the authenticator of a configuration; ``internal`` is the token of Penstock's own processes."""
        return cls(security.tokens, internal)

    def caller(self, authorization: str | None) -> Principal:
        """Return the caller who sent this ``Authorization`` header. Raises Unauthenticated."""
        if not self.closed:
            return ANONYMOUS
        if authorization is None or not authorization.lower().startswith(_SCHEME):
            raise Unauthenticated("A bearer token is needed")
        # Looked up by digest, so that the time of the lookup reveals nothing about the token.
        principal = self._callers.get(_digest(authorization[len(_SCHEME) :].strip()))
        if principal is None:
            raise Unauthenticated("The token is not known")
        return principal

    def current(self, caller: Principal) -> Principal:
        """Return the caller with the rights that its token has now. Raises Unauthenticated if it was revoked.

        Asked before each answer of a stream: a stream may stay open for days after its token was removed.
        """
        if not self.closed:
            return ANONYMOUS
        principal = self._callers.get(caller.credential)
        if principal is None:
            raise Unauthenticated("The token was revoked")
        return principal


def _digest_of_setting(token: str) -> str:
    """Return the digest of a configured token, which may be a digest already."""
    return token if token.startswith(_HASHED) else _digest(token)


def _digest(token: str) -> str:
    return _HASHED + hashlib.sha256(token.encode(errors="backslashreplace")).hexdigest()
