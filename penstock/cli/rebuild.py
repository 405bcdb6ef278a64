"""The balance computed anew: from segments, gaps, log buffers and tables, without the ledger."""

from __future__ import annotations

from typing import Any

import httpx

from penstock.config import Settings
from penstock.ledger.ledger import balance_of, load
from penstock.ledger.posts import ClientPost, LandedPost
from penstock.ledger.waiting import waiting
from penstock.spark.layout import Layout
from penstock.spark.prover import rebuild


def rebuilt(settings: Settings) -> dict[str, Any]:
    """The balance anew, with ``differs``: where the running daemon's ledger says something else."""
    before = _ledger(settings)
    document = _compute(settings)
    after = _ledger(settings)
    settled = before is not None and before == after
    return document | {"differs": differences(before or {}, document) if settled else []}


def _compute(settings: Settings) -> dict[str, Any]:
    book = load(settings.topics, (ClientPost,))
    pipeline = settings.pipeline
    window, types = pipeline.duplicate_window, pipeline.event_types
    for proof in rebuild(settings.topics, Layout.of(settings.tables), window=window, event_types=types):
        book.post(LandedPost(proof.topic, proof.batch, proof.end, proof.counts_by))
    listeners = [listener.name for listener in settings.listener]
    return balance_of(book.snapshot(), settings.topics, waiting(settings.buffers, listeners)).document()


def _ledger(settings: Settings) -> dict[str, Any] | None:
    """What the running daemon says; None where none runs."""
    try:
        answer = httpx.get(f"http://{settings.log.http}/balance", timeout=30).raise_for_status()
    except httpx.HTTPError:
        return None
    document: dict[str, Any] = answer.json()
    return document


def differences(ledger: dict[str, Any], computed: dict[str, Any]) -> list[str]:
    """One line for each listener, route or topic of which the two say different things."""
    found = []
    for part, name in (("listeners", "name"), ("routes", "source"), ("topics", "topic")):
        ours = {entry[name]: entry for entry in computed[part]}
        theirs = {entry[name]: entry for entry in ledger[part]}
        for key in sorted({*ours, *theirs}):
            if ours.get(key) != theirs.get(key):
                found.append(f"{part} {key}: {theirs.get(key)} in the ledger, {ours.get(key)} computed")
    return found
