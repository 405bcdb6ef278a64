"""The balance computed anew: from segments, gaps, log buffers and tables, without the ledger."""

from __future__ import annotations

from typing import Any

import httpx

from penstock.config import Settings
from penstock.config.daemon_access import Access
from penstock.landing.promote.moved_topics import documents
from penstock.landing.promote.offset_map import maps
from penstock.landing.proof.kafka_records import kafka_records
from penstock.landing.proof.prover import Proof, Refill, rebuild
from penstock.landing.proof.reread import Records
from penstock.landing.table_layout import Layout
from penstock.ledger.balance import Within
from penstock.ledger.book import Book
from penstock.ledger.book_from_topics import anew, posted, usable
from penstock.ledger.in_buffer import waiting
from penstock.ledger.ledger import all_listeners, balance_of
from penstock.ledger.posts import ClientPost, LandedPost, is_partition, parse


def rebuilt(settings: Settings, within: Within = None, **parameters: str) -> dict[str, Any]:
    """The balance anew, with ``differs``: where the running daemon's ledger or its checkpoint says something else.

    ``parameters`` are those of ``/balance`` that ask for the buckets ``within``.
    """
    before = _ledger(settings, parameters)
    plain, checkpoint = anew(settings.topics)
    book = posted(plain, settings.topics, (ClientPost,))
    book.roll_up(_rolled(settings, before))
    document = _compute(settings, book, within)
    after = _ledger(settings, parameters)
    settled = before is not None and before == after
    return document | {"differs": [*(differences(before or {}, document) if settled else []), *checkpoint]}


def _rolled(settings: Settings, ledger: dict[str, Any] | None) -> int:
    """What the ledger has rolled up by day, by its answer or its checkpoint."""
    pages, _ = (None, "") if ledger else usable(settings.topics)
    return int(ledger["by_day_before"]) if ledger else pages.rolled if pages else 0


def _compute(settings: Settings, book: Book, within: Within) -> dict[str, Any]:
    """The balance of ``book`` with what the tables hold."""
    pipeline = settings.pipeline
    window, types = pipeline.duplicate_window, pipeline.event_types
    kafka = kafka_records(pipeline.kafka if pipeline.source == "kafka" else None, pipeline.expiry_gap, types)
    layout = Layout.of(settings.tables)
    told = [document for one in maps(layout).values() for document in documents(settings.topics, one)]
    _tell(book, [document for document in told if is_partition(document["topic"])])
    for proof in rebuild(settings.topics, layout, window=window, event_types=types, kafka=kafka):
        book.post(_posted(proof, kafka))
    _tell(book, [document for document in told if not is_partition(document["topic"])])
    listeners = all_listeners(settings.buffers, [listener.name for listener in settings.listener])
    in_buffer = waiting(settings.buffers, listeners)
    return balance_of(book.snapshot(), settings.topics, in_buffer, within, settings.buffers).document()


def _tell(book: Book, documents: list[dict[str, Any]]) -> None:
    for document in documents:
        book.post(parse(document))


def _posted(found: Proof | Refill, kafka: Records | None) -> LandedPost:
    if isinstance(found, Refill):
        proof = found.proof
        return LandedPost(proof.topic, proof.batch, 0, proof.counts_by, 0, proof.uuids, found.number, found.ahead)
    end = kafka.end(found.topic) if kafka else 0
    return LandedPost(found.topic, found.batch, found.end, found.counts_by, end, found.uuids)


def _ledger(settings: Settings, parameters: dict[str, str]) -> dict[str, Any] | None:
    """What the running daemon says; None where none runs."""
    try:
        with Access(settings).client() as client:
            answer = client.get("/balance", params=parameters).raise_for_status()
    except httpx.HTTPError:
        return None
    document: dict[str, Any] = answer.json()
    return document


def differences(ledger: dict[str, Any], computed: dict[str, Any]) -> list[str]:
    """One line for each listener, route or topic of which the two say different things."""
    found = []
    for part, names in (("listeners", ["name"]), ("routes", ["source", "handler"]), ("topics", ["topic"])):
        ours = {" to ".join(entry[name] for name in names): entry for entry in computed[part]}
        theirs = {" to ".join(entry[name] for name in names): entry for entry in ledger[part]}
        for key in sorted({*ours, *theirs}):
            if _comparable(ours.get(key), theirs.get(key)) != theirs.get(key):
                found.append(f"{part} {key}: {theirs.get(key)} in the ledger, {ours.get(key)} computed")
    return found


def _comparable(ours: dict[str, Any] | None, theirs: dict[str, Any] | None) -> dict[str, Any] | None:
    """Ours, with sums of uuids only for what theirs has them too: proofs of before there were any have none."""
    if ours is None or theirs is None or "uuids" not in ours:
        return ours
    known = theirs["uuids"]
    rows = {fate: told["rows"] for fate, told in ours["uuids"].items()}
    same = rows == {fate: told["rows"] for fate, told in known.items()}
    return ours if same else ours | {"uuids": known}
