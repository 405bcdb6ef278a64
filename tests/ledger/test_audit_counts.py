"""Auditors' tiers: the highest version of each minute counts, over all incarnations of a source."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config import Settings
from penstock.counts import Counts
from penstock.ledger.audit_counts import Audited, audited
from penstock.ledger.book.book import Book
from penstock.ledger.ledger import Ledger
from penstock.ledger.posts import AuditPost
from penstock.log import Log
from penstock.server.api.monitoring import MonitoringApi
from penstock.slogd.errors import BadRequest


def post(version: int, bucket: int = 60, life: str = "1f", tier: str = "kafka", **counts: int) -> AuditPost:
    return AuditPost(tier, "shop", life, version, {("events", bucket): Counts(counts)})


def document(post: AuditPost) -> dict[str, Any]:
    counts = [{"topic": t, "bucket": b, "counts": dict(c)} for (t, b), c in post.counts.items()]
    names = {"tier": post.tier, "source": post.source, "incarnation": post.incarnation, "version": post.version}
    return names | {"counts": counts}


def test_later_version_replaces_and_older_version_changes_nothing() -> None:
    book = Book()
    assert book.post(post(1, attempt=5))
    assert book.post(post(2, attempt=7, success=6))
    assert not book.post(post(2, attempt=7, success=6))
    assert not book.post(post(1, attempt=5))
    assert audited(book.snapshot()) == [Audited("kafka", "shop", "events", {"attempt": 7, "success": 6})]


def test_minutes_and_incarnations_add_up_within_a_tier() -> None:
    book = Book()
    for audit_post in (post(1, 60, attempt=1), post(2, 120, attempt=2), post(1, 60, "2f", attempt=4)):
        assert book.post(audit_post)
    assert book.post(post(1, 60, tier="mirror", attempt=8))
    every = [Audited("kafka", "shop", "events", {"attempt": 7}), Audited("mirror", "shop", "events", {"attempt": 8})]
    assert audited(book.snapshot()) == every
    assert [entry.counts for entry in audited(book.snapshot(), 60)] == [{"attempt": 5}, {"attempt": 8}]


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from((60, 120)), st.integers(0, 9)), max_size=20))
def test_order_of_posts_does_not_matter(minutes: list[tuple[int, int, int]]) -> None:
    posts = [post(version, bucket, attempt=100 * version + bucket) for version, bucket, _ in minutes]
    books = Book(), Book()
    for audit_post in posts:
        books[0].post(audit_post)
    for audit_post in sorted(posts, key=lambda audit_post: audit_post.version, reverse=True):
        books[1].post(audit_post)
    assert audited(books[0].snapshot()) == audited(books[1].snapshot())


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    opened = Log(tmp_path / "topics")
    yield opened
    opened.close()


def test_ledger_restores_audit_counts_after_a_restart(log: Log, tmp_path: Path) -> None:
    for restarted in (False, True):
        ledger = Ledger(log, tmp_path, [], now=lambda: 600.0)
        reports = MonitoringApi(Settings(data_dir=tmp_path), log, ledger)
        assert ledger.post(document(post(3, attempt=5, success=5))) != restarted
        expected = [{"tier": "kafka", "source": "shop", "topic": "events", "counts": {"attempt": 5, "success": 5}}]
        assert reports.balance({})["audits"] == expected
        assert reports.balance({"bucket": "120"})["audits"] == []
        assert reports.balance({"since": "100", "until": "120"})["audits"] == expected
        assert reports.balance({"since": "120"})["audits"] == []
        with pytest.raises(BadRequest, match="until is a time"):
            reports.balance({"until": "noon"})
        with pytest.raises(BadRequest, match="cannot be combined with since or until"):
            reports.balance({"since": "0", "bucket": "60"})
        assert reports.counts_of_tier("kafka") == {"tier": "kafka", "audits": expected}
        with pytest.raises(BadRequest, match="tier must be landed, or the tier of an auditor: kafka"):
            reports.counts_of_tier("mirror")


def test_audit_counts_are_no_term_of_the_balance(log: Log, tmp_path: Path) -> None:
    ledger = Ledger(log, tmp_path, [], now=lambda: 600.0)
    ledger.post(document(post(1, attempt=5, failure=5)))
    assert (ledger.balance().unaccounted, ledger.balance().routes, ledger.balance().topics) == (0, [], [])
