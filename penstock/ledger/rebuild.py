"""The balance computed anew: from segments, gaps, log buffers and what the tables hold, without the ledger's posts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from penstock.counts import Name
from penstock.ledger.balance import Within
from penstock.ledger.book_from_topics import recompute, usable, with_posts
from penstock.ledger.in_buffer import waiting
from penstock.ledger.ledger import all_listeners, balance_of
from penstock.ledger.posts import ClientPost, Post

Document = dict[str, Any]
"""A balance as JSON."""


def rebuilt(
    topics: Path,
    buffers: Path,
    listeners: Iterable[str],
    landed: Iterable[Post],
    running: Callable[[], Document | None],
    within: Within = None,
) -> Document:
    """The balance of the buckets ``within``, with ``differs``: where the ledger or its checkpoint says something else.

    ``landed``: posts of what the tables hold. ``running`` asks the running daemon for its balance of the same buckets;
    None where none runs.
    """
    before = running()
    plain, checkpoint = recompute(topics)
    book = with_posts(plain, topics, (ClientPost,))
    book.roll_up(_rolled(topics, before))
    for post in landed:
        book.post(post)
    in_buffer = waiting(buffers, all_listeners(buffers, listeners))
    document = balance_of(book.snapshot(), topics, in_buffer, within, buffers).document()
    settled = before is not None and before == running()
    return document | {"differs": [*(differences(before or {}, document) if settled else []), *checkpoint]}


def _rolled(topics: Path, ledger: Document | None) -> int:
    """Up to when the ledger has rolled up by day, by its answer or its checkpoint."""
    if ledger:
        return int(ledger["by_day_before"])
    pages, _ = usable(topics)
    return pages.rolled if pages else 0


def differences(ledger: Document, computed: Document) -> list[str]:
    """One line for each listener, route or topic of which the two say different things."""
    found = []
    for part, names in (("listeners", ["name"]), ("routes", ["source", "handler"]), ("topics", ["topic"])):
        ours, theirs = (
            {" to ".join(one[n] for n in names): _fates_alone(one) for one in d[part]} for d in (computed, ledger)
        )
        found += [
            f"{part} {key}: {theirs.get(key)} in the ledger, {ours.get(key)} computed"
            for key in sorted({*ours, *theirs})
            if _comparable(ours.get(key), theirs.get(key)) != theirs.get(key)
        ]
    return found


def _fates_alone(entry: Document) -> Document:
    """Without what is no fate: of a row that was deleted the files say no more that it had been redacted."""
    if "fates" not in entry:
        return entry
    return entry | {"fates": {name: n for name, n in entry["fates"].items() if name != Name.REDACTED}}


def _comparable(ours: Document | None, theirs: Document | None) -> Document | None:
    """Ours, with sums of uuids only for what theirs has them too: proofs of before there were any have none."""
    if ours is None or theirs is None or "uuids" not in ours:
        return ours
    known = theirs["uuids"]
    rows = {fate: told["rows"] for fate, told in ours["uuids"].items()}
    same = rows == {fate: told["rows"] for fate, told in known.items()}
    return ours if same else ours | {"uuids": known}
