"""The auditor that posts to the ledger: absolute counts, posted again until they arrive."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.kafka.auditing import AuditType, LedgerAuditor
from penstock.kafka.auditing.ledger_auditor import MAX_AGE_S, MAX_AHEAD_S, MAX_ENTRIES_PER_POST
from penstock.kafka.client.plugins.loading import CannotLoad, load_auditor
from penstock.landing.event_rules import MAX_TIMESTAMP, MAX_UUID_BYTES
from penstock.ledger.audit_counts import audited
from penstock.ledger.book.book import Book
from penstock.ledger.posts import BadPost, parse
from penstock.testing import FakeClock, wait_until

NOW = 1_700_000_000
MINUTE = NOW - NOW % 60


class Ledger:
    """An HTTP server that enters posts into a real book, unless it is set to refuse them."""

    def __init__(self) -> None:
        self.book, self.posts, self.refuses, self.tokens = Book(), list[dict[str, Any]](), 0, list[Any]()
        ledger = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(ledger.accept_post(self.path, self.headers["Authorization"], body))
                self.end_headers()

            def log_message(self, *args: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def accept_post(self, path: str, token: Any, body: bytes) -> int:
        self.tokens.append(token)
        if self.refuses:
            self.refuses -= 1
            return 503
        self.posts.append(json.loads(body))
        self.book.post(parse(self.posts[-1]))
        return 200 if path == "/ledger" else 404

    def audited_counts(self) -> dict[tuple[str, str, str], dict[str, int]]:
        return {(entry.tier, entry.source, entry.topic): entry.counts for entry in audited(self.book.snapshot())}

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    running = Ledger()
    yield running
    running.close()


def _auditor(clock: FakeClock | None = None, **given_settings: Any) -> LedgerAuditor:
    auditor = LedgerAuditor("ledger-auditor", (clock or FakeClock(NOW)).time)
    auditor.configure({key.replace("_", "."): value for key, value in given_settings.items()})
    auditor.start()
    return auditor


def _count_message(
    auditor: LedgerAuditor, kind: AuditType = AuditType.SUCCESS, seconds: int = NOW, topic: str = "t"
) -> None:
    auditor.record(None, topic, 1000 * seconds, 1, 10, kind)


def test_counts_are_posted_on_closing(ledger: Ledger, proxied: None) -> None:
    auditor = _auditor(auditor_ledger_url=ledger.address, client_id="shop")
    for kind in (AuditType.ATTEMPT, AuditType.ATTEMPT, AuditType.SUCCESS, AuditType.FAILURE):
        _count_message(auditor, kind)
    auditor.close()
    counts = {"attempt": 2, "success": 1, "failure": 1, "attempt_bytes": 20, "success_bytes": 10, "failure_bytes": 10}
    assert ledger.audited_counts() == {("kafka", "shop", "t"): counts}
    assert ledger.posts[0]["counts"][0]["bucket"] == MINUTE
    assert ledger.tokens == [None]


def test_each_interval_posts_the_total_counts_of_its_minutes(ledger: Ledger) -> None:
    clock = FakeClock(NOW)
    interval = {"auditor_reporting_interval_ms": 10_000, "auditor_reporting_delay_ms": 0}
    auditor = _auditor(clock, auditor_ledger_url=f"http://{ledger.address}/", **interval)
    for ticks in (1, 2, 3):
        _count_message(auditor)
        clock.advance(10)
        auditor.wake()
        wait_until(lambda ticks=ticks: len(ledger.posts) == ticks)  # type: ignore[misc]
    auditor.close()
    assert [post["counts"][0]["counts"]["success"] for post in ledger.posts] == [1, 2, 3]
    assert [post["version"] for post in ledger.posts] == [1, 2, 3]
    assert ledger.audited_counts()["kafka", "kafka", "t"]["success"] == 3


def test_post_that_does_not_arrive_is_retried(ledger: Ledger, caplog: pytest.LogCaptureFixture) -> None:
    auditor = _auditor(auditor_ledger_url=ledger.address, enable_auto_tick="false")
    ledger.refuses = 2
    for _ in range(3):
        _count_message(auditor)
        auditor.tick()
    auditor.close()
    assert auditor.failures == 2
    assert "503" in caplog.text
    assert ledger.audited_counts()["kafka", "kafka", "t"]["success"] == 3


@pytest.mark.survives("large messages", "peer away")
def test_unreachable_ledger_costs_the_client_nothing(caplog: pytest.LogCaptureFixture) -> None:
    auditor = _auditor(auditor_ledger_url="127.0.0.1:1", auditor_ledger_timeout_ms=200)
    _count_message(auditor)
    auditor.close(5)
    assert (auditor.failures, auditor.is_alive) == (1, False)
    assert "no ledger answers at http://127.0.0.1:1/ledger" in caplog.text


def test_tier_source_and_token_are_configurable(ledger: Ledger) -> None:
    user_settings = {
        "auditor_ledger_tier": "mirror",
        "auditor_ledger_source": "shop-2",
        "auditor_ledger_token": "secret",
    }
    auditor = _auditor(auditor_ledger_url=ledger.address, **user_settings)
    _count_message(auditor)
    auditor.close()
    assert set(ledger.audited_counts()) == {("mirror", "shop-2", "t")}
    assert ledger.tokens == ["Bearer secret"]


def test_undelivered_messages_are_posted(ledger: Ledger) -> None:
    auditor = _auditor(auditor_ledger_url=ledger.address)
    auditor.lost("t", "expired", 2)
    auditor.lost("t", "refused.header", 1)
    auditor.close()
    assert ledger.audited_counts() == {("kafka", "kafka", "t"): {"expired": 2, "refused.header": 1}}


def test_counts_of_a_restarted_source_add_up(ledger: Ledger) -> None:
    for _ in range(2):
        auditor = _auditor(auditor_ledger_url=ledger.address)
        _count_message(auditor)
        auditor.close()
    assert ledger.audited_counts()["kafka", "kafka", "t"]["success"] == 2


def test_many_counts_are_split_into_several_posts(ledger: Ledger) -> None:
    auditor = _auditor(auditor_ledger_url=ledger.address)
    for number in range(MAX_ENTRIES_PER_POST + 1):
        _count_message(auditor, topic=f"t{number}")
    auditor.close()
    assert [len(post["counts"]) for post in ledger.posts] == [MAX_ENTRIES_PER_POST, 1]
    assert len(ledger.audited_counts()) == MAX_ENTRIES_PER_POST + 1


@pytest.mark.parametrize(
    ("stamp", "bucket"),
    [
        (0, NOW - MAX_AGE_S),
        (1000 * (NOW - MAX_AGE_S - 1), NOW - MAX_AGE_S),
        (1000 * (NOW + MAX_AHEAD_S + 999), NOW + MAX_AHEAD_S),
        (None, NOW),
        (-1, NOW),
    ],
)
def test_implausible_time_counts_as_the_bound(stamp: int | None, bucket: int, ledger: Ledger) -> None:
    auditor = _auditor(auditor_ledger_url=ledger.address)
    auditor.record(None, "t", stamp, 1, 1, AuditType.SUCCESS)
    auditor.close()
    assert ledger.posts[0]["counts"][0]["bucket"] == bucket - bucket % 60


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30 * 3600), st.integers(-40 * 3600, 9 * 3600), st.booleans()), max_size=15))
def test_no_count_is_lost_when_posts_fail(messages: list[tuple[int, int, bool]]) -> None:
    clock, topic = FakeClock(NOW), Topic()
    auditor = _auditor(clock, auditor_ledger_topic="audits", current_producer=topic, enable_auto_tick="false")
    for passes, apart, arrives in messages:
        clock.advance(passes)
        _count_message(auditor, seconds=int(clock.now) + apart)
        topic.full = not arrives
        auditor.tick()
        assert len(auditor._totals) <= len(auditor._unreported) + MAX_AGE_S // 60 + MAX_AHEAD_S // 60 + 2
    topic.full = False
    auditor.close()
    assert sum(entry.counts["success"] for entry in audited(topic.book.snapshot())) == len(messages)


class Topic:
    """A producer whose queue can be full and whose deliveries can fail."""

    def __init__(self) -> None:
        self.book, self.events, self.full, self.fails = Book(), list[dict[str, Any]](), False, False
        self.flushed = 0

    def produce(self, topic: str, value: bytes, on_delivery: Any) -> None:
        if self.full:
            raise BufferError("queue full")
        if self.fails:
            on_delivery("broken", None)
            return
        self.events.append(json.loads(value))
        self.book.post(parse(self.events[-1]["data"]))
        on_delivery(None, None)

    def flush(self, timeout: float) -> int:
        self.flushed += 1
        return 0


def test_counts_are_sent_through_the_producer_of_the_events() -> None:
    topic = Topic()
    auditor = _auditor(auditor_ledger_topic="audits", current_producer=topic)
    _count_message(auditor)
    auditor.close()
    (event,) = topic.events
    assert event["type"] == "penstock.audit"
    assert 0 < len(event["uuid"]) < MAX_UUID_BYTES
    assert event["timestamp"] == 1000 * MINUTE < MAX_TIMESTAMP
    assert event["data"]["counts"][0]["counts"]["success"] == 1
    assert topic.flushed == 1


def test_count_that_the_broker_refuses_is_sent_again() -> None:
    topic = Topic()
    auditor = _auditor(auditor_ledger_topic="audits", current_producer=topic, enable_auto_tick="false")
    topic.fails = True
    _count_message(auditor)
    auditor.tick()
    topic.fails = False
    auditor.tick()
    auditor.tick()
    auditor.close()
    assert (len(topic.events), auditor.failures) == (1, 1)


@pytest.mark.parametrize(
    ("given_settings", "error_text"),
    [
        ({}, "needs either auditor.ledger.url or auditor.ledger.topic"),
        ({"auditor.ledger.url": "a", "auditor.ledger.topic": "b"}, "needs either"),
        ({"auditor.ledger.topic": "b"}, "only the auditor of a producer"),
        ({"auditor.ledger.url": "a", "auditor.ledger.tier": "Kafka!"}, "auditor.ledger.tier: 'Kafka!' must match"),
        ({"auditor.ledger.url": "a", "auditor.ledger.timeout.ms": "x"}, "auditor.ledger.timeout.ms"),
    ],
)
def test_bad_setting_is_named_in_the_error(given_settings: dict[str, Any], error_text: str) -> None:
    with pytest.raises(CannotLoad, match=error_text):
        load_auditor("ledger", given_settings)


@pytest.mark.parametrize("tier", ["landed", "client", "received", "-x", "x" * 65, "mirror", "kafka.eu-1"])
def test_ledger_accepts_each_name_that_the_auditor_accepts(tier: str) -> None:
    post = {"tier": tier, "source": "s", "incarnation": "1", "version": 1, "counts": []}
    try:
        load_auditor("ledger", {"auditor.ledger.url": "a", "auditor.ledger.tier": tier})
    except CannotLoad:
        with pytest.raises(BadPost):
            parse(post)
    else:
        parse(post)
