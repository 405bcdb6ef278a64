"""The balance recomputed from segments, gaps, log buffers and tables, without the ledger's posts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from penstock.counts import Counts, Name
from penstock.ledger.balance import Within
from penstock.ledger.balance_from_topics import all_listeners, balance_of
from penstock.ledger.book.book_from_topics import recompute, usable, with_posts
from penstock.ledger.in_buffer import BufferedCounts
from penstock.ledger.posts import ClientPost, Post
from penstock.log import LogError, TopicReader

Document = dict[str, Any]
"""A balance in its JSON form."""


def rebuild_balance(
    topics: Path,
    buffers: Path,
    listeners: Iterable[str],
    landed: Iterable[Post],
    running: Callable[[], Document | None],
    within: Within = None,
) -> Document:
    """Return the balance of the buckets ``within``, with ``differs``: the differences to the ledger and its
    checkpoint.

    ``landed`` has posts computed from the tables. ``running`` requests the balance of the same buckets from the
    running daemon; None if no daemon runs.
    """
    before = running()
    plain, checkpoint = recompute(topics)
    book = with_posts(plain, topics, (ClientPost,))
    book.roll_up(_rolled(topics, before))
    for post in landed:
        book.post(post)
    # Order: after the topics are read, so that no frame is in both.
    buffered = BufferedCounts(buffers)
    in_buffer = buffered.counts(all_listeners(buffers, listeners), partial(_stored_position, topics))
    uncounted = [
        f"listener {name}: messages in its log buffer are not counted, because it cannot be read: {reason}"
        for name, reason in buffered.unreadable.items()
    ]
    document = balance_of(book.snapshot(), topics, in_buffer, within, buffers).document()
    # A daemon whose balance changed during the computation cannot be compared.
    settled = before is not None and _books(before) == _books(running())
    return document | {"differs": [*(differences(before or {}, document) if settled else []), *checkpoint, *uncounted]}


def _stored_position(topics: Path, topic: str, buffer: str) -> int:
    """Return the position up to which the frames of a log buffer are stored, from the newest batch of it; or 0."""
    try:
        reader = TopicReader(topics / topic)
        origins = (stored.origin for stored in reader.read_back(reader.end))
        return next((origin.end for origin in origins if origin.buffer == buffer), 0)
    except (LogError, OSError):
        return 0


def _books(document: Document | None) -> Document:
    """Return the counts of a balance that arriving messages change.

    Not the posts of hosts, nor the state of processes and disks, which change while nothing arrives.
    """
    return {part: (document or {}).get(part) for part in ("listeners", "routes", "topics")}


def _rolled(topics: Path, ledger: Document | None) -> int:
    """Return the day up to which the ledger is rolled up, from its answer or its checkpoint."""
    if ledger:
        return int(ledger["by_day_before"])
    pages, _ = usable(topics)
    return pages.rolled if pages else 0


def differences(ledger: Document, computed: Document) -> list[str]:
    """Return one line for each listener, route or topic that differs."""
    lines = []
    computed, ledger = (document | {"fates of hosts": _fates_of_hosts(document)} for document in (computed, ledger))
    parts = {
        "listeners": ["name"],
        "routes": ["source", "handler"],
        "topics": ["topic"],
        "fates of hosts": ["host", "way"],
    }
    for part, names in parts.items():
        computed_entries, ledger_entries = (
            {" to ".join(entry[name] for name in names): _fates_alone(entry) for entry in d[part]}
            for d in (computed, ledger)
        )
        lines += [
            f"{part.removesuffix('s')} {key}: {_difference(ledger_entries.get(key), computed_entries.get(key))}"
            for key in sorted({*computed_entries, *ledger_entries})
            if _comparable(computed_entries.get(key), ledger_entries.get(key)) != ledger_entries.get(key)
        ]
    return lines


def _fates_of_hosts(document: Document) -> list[Document]:
    """Return the fates by host and way. The rows of a host depend on its posts, which a rebuild does not have."""
    fates: dict[tuple[str, str], Counts] = {}
    for entry in document.get("hosts", []):
        fates.setdefault((entry["host"], entry["way"]), Counts()).absorb(entry["fates"])
    return [
        {"host": host, "way": way, "fates": counts.pruned()} for (host, way), counts in fates.items() if counts.pruned()
    ]


def _difference(ledger: Document | None, computed: Document | None) -> str:
    """Return differences as text: ``landed.event 3 in the ledger, 2 computed; pending 0 in the ledger, 1 computed``."""
    if ledger is None or computed is None:
        return f"missing {'in the ledger' if ledger is None else 'in the files'}"
    ledger_counts, computed_counts = dict(_flatten(ledger)), dict(_flatten(computed))
    return "; ".join(
        f"{name} {ledger_counts.get(name, 0)} in the ledger, {computed_counts.get(name, 0)} computed"
        for name in dict.fromkeys([*ledger_counts, *computed_counts])
        if ledger_counts.get(name) != computed_counts.get(name)
    )


def _flatten(entry: Document, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield names and counts; counts in ``fates`` and ``counts`` are named without these keys."""
    for key, field in entry.items():
        if isinstance(field, dict):
            yield from _flatten(field, prefix if key in ("fates", "counts") else f"{prefix}{key}.")
        elif isinstance(field, bool):
            yield prefix + key, "yes" if field else "no"
        else:
            yield prefix + key, field


def _fates_alone(entry: Document) -> Document:
    """Remove counts that are not fates: the files of a deleted row no longer show that it was redacted."""
    if "fates" not in entry:
        return entry
    return entry | {"fates": {name: n for name, n in entry["fates"].items() if name != Name.REDACTED}}


def _comparable(computed: Document | None, ledger: Document | None) -> Document | None:
    """Return the computed entry with the sums of uuids that both sides can have: old proofs have none."""
    if computed is None or ledger is None or "uuids" not in computed:
        return computed
    ledger_sums = ledger["uuids"]
    rows = {fate: sums["rows"] for fate, sums in computed["uuids"].items()}
    same_rows = rows == {fate: sums["rows"] for fate, sums in ledger_sums.items()}
    return computed if same_rows else computed | {"uuids": ledger_sums}
