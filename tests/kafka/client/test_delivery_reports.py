"""Delivery reports of segments: the sender hears once."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from penstock.kafka.client.delivery_reports import ChunkReports
from penstock.kafka.errors import SendFailed
from tests.kafka.kafka_vectors import KAFKA


@pytest.mark.parametrize("case", KAFKA["largeMessageCallback"], ids=lambda case: case["acks"])
def test_the_sender_hears_what_is_recorded(case: dict[str, Any]) -> None:
    """LageMessageCallbackTest: with and without exception."""
    told: list[dict[str, Any]] = []

    def tell(failed: SendFailed | None, offset: int | None) -> None:
        text = None if failed is None else f"Sent {failed.sent} of {failed.count} segments"
        told.append({"offset": None if failed else offset, "text": text, "cause": failed and failed.error})

    reports = ChunkReports(case["numSegments"], tell)
    for place, ack in enumerate(case["acks"].split(",")):
        reports(None if ack == "ok" else ack, 10 + place)
    expected = [
        {
            "offset": call["metadataOffset"],
            "text": call["exception"] and call["exception"]["message"].partition(". ")[2].rstrip("."),
            "cause": call["cause"],
        }
        for call in case["userCallbackCalls"]
    ]
    assert told == expected


def test_chunks_that_are_not_even_tried_count_as_failed() -> None:
    told: list[Any] = []
    reports = ChunkReports(5, lambda failed, message: told.append(failed))
    reports(None, "first")
    reports.give_up(4, "queue full")
    (failed,) = told
    assert (failed.sent, failed.count, failed.error) == (1, 5, "queue full")
    assert str(failed) == "Sent 1 of 5 segments: queue full"


def test_reports_from_many_threads_are_told_once() -> None:
    told: list[Any] = []
    reports = ChunkReports(4000, lambda failed, message: told.append(failed))
    threads = [threading.Thread(target=lambda: [reports(None, 1) for _ in range(1000)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert told == [None]
