"""The log's clients over connections that break."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from itertools import islice

import pytest

from penstock.client import ClientError, Log, Refused, Unavailable
from penstock.client.log import connection
from penstock.client.log.connection import ProducerPool, RetryBackoff
from tests.client.client_proxy import Proxy


@pytest.fixture
def log(proxy: Proxy) -> Iterator[Log]:
    with Log(proxy.address) as client:
        yield client


def test_append_waits_for_an_unavailable_server(proxy: Proxy, log: Log) -> None:
    log.append("t", [b"before"])
    proxy.refuse()
    back = threading.Timer(0.5, proxy.refuse, [False])
    back.start()
    assert log.append("t", [b"after"]) == [1]
    back.join()


def test_long_retry_is_reported_once(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "TELL_AFTER", 0.2)
    retries: list[str] = []
    proxy.refuse()
    with Log(proxy.address, retry_for=0.8, on_retry=lambda error: retries.append(str(error))) as log:
        began = time.monotonic()
        with pytest.raises(Unavailable):
            log.topics()
        assert time.monotonic() - began >= 0.7
    assert retries == [f"no log daemon answers at {proxy.address}"]


def test_error_without_a_server_is_one_plain_line(proxy: Proxy) -> None:
    proxy.refuse()
    with Log(proxy.address, retry_for=0) as log, pytest.raises(Unavailable) as caught:
        log.append("t", [b"x"])
    assert str(caught.value) == f"no log daemon answers at {proxy.address}"


def test_follower_continues_at_its_offset(proxy: Proxy, log: Log) -> None:
    log.append("t", [b"0", b"1"])
    entries = log.follow("t", "earliest")
    assert [entry.offset for entry in islice(entries, 2)] == [0, 1]
    for expected in (2, 4, 6):
        proxy.cut()
        log.append("t", [b"x", b"x"])
        assert [entry.offset for entry in islice(entries, 2)] == [expected, expected + 1]
    entries.close()  # type: ignore[attr-defined]


def test_closed_client_refuses_calls(log: Log) -> None:
    log.append("t", [b"x"])
    entries = log.follow("t", "earliest")
    next(entries)
    log.close()
    with pytest.raises(Unavailable):
        next(entries)
    with pytest.raises(Unavailable, match="was closed"):
        log.append("t", [b"x"])


@pytest.mark.survives("client", "peer away")
def test_patience_ends_and_restarts_after_a_success() -> None:
    patience = RetryBackoff(0.2)
    assert patience.pause(ClientError("something else")) is None
    first = patience.pause(Unavailable("away"))
    assert first is not None
    assert 0 < first <= 0.05
    time.sleep(0.25)
    assert patience.pause(Unavailable("away")) is None
    patience.reset()
    assert patience.pause(Unavailable("away")) is not None
    assert RetryBackoff(0).pause(Unavailable("away")) is None


def test_each_request_in_flight_has_its_own_producer() -> None:
    lanes = ProducerPool()
    with lanes.producer("t") as first, lanes.producer("t") as second:
        assert first[0] != second[0]
        assert (first[1], second[1]) == (1, 1)
    with lanes.producer("t") as third:
        assert third[1] == 2
        assert third[0] in (first[0], second[0])
    with lanes.producer("other") as fourth:
        assert fourth[0] not in (first[0], second[0])


def test_number_is_reused_only_if_nothing_was_stored() -> None:
    lanes = ProducerPool()
    with pytest.raises(Refused), lanes.producer("t") as first:
        raise Refused
    with lanes.producer("t") as second:
        assert second == first
    with pytest.raises(Unavailable), lanes.producer("t") as three:
        raise Unavailable
    with lanes.producer("t") as four:
        assert four[0] != three[0]
    lanes.forget("t")
    with lanes.producer("t") as five:
        assert five[0] != four[0]
