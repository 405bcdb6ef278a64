"""Posts of hosts that relay: absolute counts of a host's listeners, as one of its relays knows them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from penstock.ledger.posts import LARGEST, BadPost

HOST_TIER = "host"
"""Tier of a host's post."""
MAX_LISTENERS = 100
"""Limit: names in one post, with FURTHER. They are listeners of the host, or of hosts that relay to it."""
FURTHER = "further"
"""Name of all listeners of a host beyond MAX_LISTENERS, which it counts together."""
HOST_NAME = re.compile(r"[A-Za-z0-9_.-]{1,32}")
_MAX_TEXT_LENGTH = 100
_COUNT_NAMES = ("accepted", "forwarded", "expired", "pending", "in_doubt", "lost")


@dataclass(frozen=True, slots=True)
class ListenerReport:
    """Counts of one listener on its host, since its disk is in use.

    ``accepted = forwarded + expired + pending`` are entries of relayed topics. ``in_doubt`` entries are pending and
    may have arrived. ``lost`` are messages that did not reach the host's log; ``sent`` is None if no sender counts.
    """

    accepted: int = 0
    forwarded: int = 0
    expired: int = 0
    pending: int = 0
    in_doubt: int = 0
    lost: int = 0
    sent: int | None = None

    def plus(self, addend: ListenerReport) -> ListenerReport:
        """Return the sum of both; each relay reports the same losses before the log."""
        sums = {name: getattr(self, name) + getattr(addend, name) for name in _COUNT_NAMES}
        known_sent = [report.sent for report in (self, addend) if report.sent is not None]
        return ListenerReport(**{**sums, "lost": max(self.lost, addend.lost)}, sent=max(known_sent, default=None))


@dataclass(frozen=True, slots=True)
class HostPost:
    """A post of one relay: ``disk`` identifies the data directory, ``process`` and ``version`` order the posts.

    ``time_ms`` is the host's clock, ``lag_ms`` the age of its oldest entry that is pending, ``software`` its version.
    """

    host: str
    relay: str
    disk: str
    process: str
    version: int
    time_ms: int
    lag_ms: int
    software: str
    listeners: Mapping[str, ListenerReport]

    def document(self) -> dict[str, Any]:
        """Return the post as a JSON-ready mapping."""
        return {"tier": HOST_TIER, **asdict(self)}


def add_report(total: dict[str, ListenerReport], name: str, report: ListenerReport) -> None:
    """Add the counts of a listener to its sum in ``total``."""
    total[name] = total[name].plus(report) if name in total else report


def parse_host_post(document: Any) -> HostPost:
    """Parse the document of a host's post. Raises BadPost."""
    texts, numbers = ("relay", "disk", "process", "software"), ("version", "time_ms", "lag_ms")
    return HostPost(**post_fields(document, texts, numbers, _parse_report))


def post_fields(
    document: Any, texts: Iterable[str], numbers: Iterable[str], parse_report: Callable[[object], Any]
) -> dict[str, Any]:
    """Return the checked fields of a host's post: its name, texts, numbers and the report of each listener.

    ``parse_report`` raises ValueError. Raises BadPost.
    """
    try:
        if not HOST_NAME.fullmatch(host := checked_text(document["host"])) or host in (".", ".."):
            raise ValueError(f"{host!a} is not a name of a host")
        listeners = document["listeners"]
        if not isinstance(listeners, dict) or len(listeners) > MAX_LISTENERS:
            raise ValueError(f"listeners is not an object with at most {MAX_LISTENERS} names")
        return {
            "host": host,
            **{name: checked_text(document[name]) for name in texts},
            **{name: checked_count(document[name]) for name in numbers},
            "listeners": {checked_text(name): parse_report(report) for name, report in listeners.items()},
        }
    except (KeyError, TypeError) as error:
        raise BadPost(f"a post of a host needs {error}") from None
    except ValueError as error:
        raise BadPost(f"not a post of a host: {error}") from None


def _parse_report(document: object) -> ListenerReport:
    if not isinstance(document, dict):
        raise ValueError("the counts of a listener are not an object")
    sent = document.get("sent")
    numbers = {name: checked_count(document.get(name, 0)) for name in _COUNT_NAMES}
    return ListenerReport(**numbers, sent=None if sent is None else checked_count(sent))


def checked_text(text: object) -> str:
    """Return a short text that can be shown. Raises ValueError for anything else."""
    if not isinstance(text, str) or len(text) > _MAX_TEXT_LENGTH:
        raise ValueError(f"{ascii(text)[:_MAX_TEXT_LENGTH]} is not a text of at most {_MAX_TEXT_LENGTH} characters")
    # Surrogates are not printable either: no answer with one could be encoded.
    if not text.isprintable():
        raise ValueError(f"{text!a} has characters that cannot be printed")
    return text


def checked_count(number: object) -> int:
    """Return a number that may be a count. Raises ValueError for anything else."""
    if type(number) is not int or not 0 <= number < LARGEST:
        raise ValueError(f"{str(number)[:_MAX_TEXT_LENGTH]} is not a count")
    return number
