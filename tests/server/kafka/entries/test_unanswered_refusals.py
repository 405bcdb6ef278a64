"""Each refused batch of a producer with acks=0 is counted, and appears in the log within the interval."""

from __future__ import annotations

import re

import pytest

from penstock.server.kafka.connection.answers import MAX_IN_FLIGHT
from penstock.server.kafka.entries import unanswered_refusals
from penstock.testing import wait_until
from tests.server.kafka.connection.test_requests import produce
from tests.server.kafka.entries.test_produce import LAST, rows
from tests.server.kafka.produced import plain
from tests.server.kafka.test_limits import connected, framed
from tests.server.running import Running


def reported(text: str) -> int:
    return sum(map(int, re.findall(r"acks=0 lost: (\d+) since", text)))


@pytest.mark.parametrize("refused", [b"x" * 1000, None], ids=["too large", "no batch"])
def test_batches_in_flight_behind_a_refused_one_are_counted_and_reported(
    endpoint: Running, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, refused: bytes | None
) -> None:
    monkeypatch.setattr(unanswered_refusals, "REPORT_INTERVAL_S", 0.05)
    endpoint.log.create("t", {"message_size_limit": 100})
    good = produce(LAST, plain(b"good"), topic="t", acks=0)
    bad = produce(LAST, plain(refused) if refused else None, topic="t", acks=0)
    count = MAX_IN_FLIGHT - 1
    with connected(endpoint) as sock:
        sock.sendall(b"".join(map(framed, [good, *[bad] * count])))
        assert sock.makefile("rb").read() == b"", "the first refusal ends the connection, as with Kafka"
    wait_until(lambda: endpoint.api.refused_batches.total() == count)
    wait_until(lambda: reported(caplog.text) == count)
    assert rows(endpoint, "t") == [b"good"]


def test_refusals_of_the_last_interval_are_reported_when_the_endpoint_closes(
    endpoint: Running, caplog: pytest.LogCaptureFixture
) -> None:
    bad = framed(produce(LAST, None, topic="t", acks=0))
    for _ in range(3):
        with connected(endpoint) as sock:
            sock.sendall(bad)
            sock.makefile("rb").read()
    assert reported(caplog.text) == 1
    endpoint.stop()
    assert reported(caplog.text) == 3


def test_names_of_any_length_do_not_fill_the_log(endpoint: Running, caplog: pytest.LogCaptureFixture) -> None:
    with connected(endpoint) as sock:
        sock.sendall(framed(produce(LAST, plain(b"v"), topic="t\n" * 15_000, acks=0)))
        sock.makefile("rb").read()
    (line,) = [record.getMessage() for record in caplog.records if "acks=0" in record.getMessage()]
    assert len(line) < 1000
    assert "\n" not in line
