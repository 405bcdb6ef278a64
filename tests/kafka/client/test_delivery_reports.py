"""Delivery reports of segments: the sender gets one report per message."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from penstock.kafka.client.delivery_reports import ChunkReports
from penstock.kafka.errors import SendFailed
from tests.kafka.kafka_vectors import KAFKA


@pytest.mark.parametrize("case", KAFKA["largeMessageCallback"], ids=lambda case: case["acks"])
def test_sender_gets_the_recorded_report(case: dict[str, Any]) -> None:
    """LageMessageCallbackTest, with and without an exception."""
    reported: list[dict[str, Any]] = []

    def record_report(failed: SendFailed | None, offset: int | None) -> None:
        text = None if failed is None else f"Sent {failed.sent} of {failed.count} segments"
        reported.append({"offset": None if failed else offset, "text": text, "cause": failed and failed.error})

    reports = ChunkReports(case["numSegments"], record_report)
    for index, ack in enumerate(case["acks"].split(",")):
        reports(None if ack == "ok" else ack, 10 + index)
    expected = [
        {
            "offset": call["metadataOffset"],
            "text": call["exception"] and call["exception"]["message"].partition(". ")[2].rstrip("."),
            "cause": call["cause"],
        }
        for call in case["userCallbackCalls"]
    ]
    assert reported == expected


def test_chunks_that_are_never_sent_count_as_failed() -> None:
    outcomes: list[Any] = []
    reports = ChunkReports(5, lambda failed, message: outcomes.append(failed))
    reports(None, "first")
    reports.give_up(4, "queue full")
    (failed,) = outcomes
    assert (failed.sent, failed.count, failed.error) == (1, 5, "queue full")
    assert str(failed) == "Sent 1 of 5 segments: queue full"


def test_reports_from_many_threads_give_one_outcome() -> None:
    outcomes: list[Any] = []
    reports = ChunkReports(4000, lambda failed, message: outcomes.append(failed))
    threads = [threading.Thread(target=lambda: [reports(None, 1) for _ in range(1000)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == [None]
