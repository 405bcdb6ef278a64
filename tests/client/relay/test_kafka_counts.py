"""The counts of handlers that forward to Kafka, as a host posts them."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.client.relay.kafka_counts import KafkaCounts, report_of
from penstock.config import Settings
from penstock.counts import Counts
from penstock.handover.dropped_frames import MAX_BUCKETS
from penstock.ledger.handler_deliveries import HandlerDelivery
from penstock.ledger.kafka_hosts import KafkaReport, parse_kafka_post

PRODUCER = {"bootstrap.servers": "127.0.0.1:1"}
KAFKA = {"type": "kafka", "default_topic": "t", "origin_header": True, "host": "web1", "producer": PRODUCER}


def delivery(fates: Mapping[int, Counts], in_buffer: int) -> HandlerDelivery:
    accepted = sum(counts.total() for counts in fates.values()) + in_buffer
    return HandlerDelivery("udp", "kafka", accepted, fates, in_buffer, 0, {}, True)


def test_report_has_each_fate_and_the_minutes_of_forwarded_and_failed_messages() -> None:
    fates = {60: Counts(delivered=5, handler_failed=2, policy_drop=1), 120: Counts(delivered=4, corrupt=3)}
    assert report_of(delivery(fates, 6)) == KafkaReport(21, 9, 2, 4, 6, {60: (5, 2), 120: (4, 0)})


def test_first_minute_of_a_full_account_is_older_time_and_no_minute() -> None:
    minutes = {60 * number: Counts(delivered=1) for number in range(1, MAX_BUCKETS + 1)}
    report = report_of(delivery(minutes, 0))
    assert (report.forwarded, min(report.minutes), len(report.minutes)) == (MAX_BUCKETS, 120, MAX_BUCKETS - 1)


def test_post_of_a_host_whose_handlers_have_not_begun_has_no_listener_and_is_accepted() -> None:
    listener = {"name": "udp", "protocol": "udp", "port": 0, "handlers": [KAFKA, {"type": "log", "topic": "t"}]}
    settings = Settings.model_validate({"listener": [listener]})
    counts = KafkaCounts(settings, "web1", "disk")
    first, second = counts.next_post(), counts.next_post()
    assert parse_kafka_post(first.document()) == first
    assert (first.listeners, second.version, second.process) == ({}, first.version + 1, first.process)
