"""The counts of handlers that forward to Kafka, as a host posts them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.client.relay.kafka_counts import KafkaCounts, kafka_reports, report_of
from penstock.config import Settings
from penstock.counts import Counts
from penstock.handover.dropped_frames import MAX_BUCKETS, DroppedFrameCounts, Move
from penstock.handover.paths import state_file
from penstock.handover.positions.accounts import Account, Accounts
from penstock.handover.state_page import StatePage
from penstock.ledger.handler_deliveries import HandlerDelivery
from penstock.ledger.hosts import over_kafka
from penstock.ledger.hosts.kafka_hosts import KafkaHostRegister, KafkaPost, KafkaReport, parse_kafka_post

PRODUCER = {"bootstrap.servers": "127.0.0.1:1"}
M = 1_795_806_960
"""A minute."""
KAFKA = {"type": "kafka", "default_topic": "t", "origin_header": True, "host": "web1", "producer": PRODUCER}


def delivery(fates: Mapping[int, Counts], in_buffer: int, folded: int = -1) -> HandlerDelivery:
    accepted = sum(counts.total() for counts in fates.values()) + in_buffer
    return HandlerDelivery("udp", "kafka", accepted, fates, in_buffer, 0, {}, True, folded)


def test_report_has_each_fate_and_the_minutes_of_forwarded_and_failed_messages() -> None:
    fates = {60: Counts(delivered=5, handler_failed=2, policy_drop=1), 120: Counts(delivered=4, corrupt=3)}
    assert report_of(delivery(fates, 6)) == KafkaReport(21, 9, 2, 4, 6, {60: (5, 2), 120: (4, 0)})


def test_first_minute_of_a_full_account_is_older_time_and_no_minute() -> None:
    minutes = {60 * number: Counts(delivered=1) for number in range(1, MAX_BUCKETS + 1)}
    report = report_of(delivery(minutes, 0, folded=60))
    assert (report.forwarded, min(report.minutes), len(report.minutes)) == (MAX_BUCKETS, 120, MAX_BUCKETS - 1)


@pytest.mark.parametrize("drops", [[], [5], [5, 7], [5, 7, 9], range(45), range(95, 105)])
def test_drops_of_the_writer_leave_the_minutes_of_the_account(tmp_path: Path, drops: Sequence[int]) -> None:
    account = Account(base=0, mark=0)
    for number in range(100):
        account = replace(account, end=1, end_mark=10 * number + 10).finish({f"{M + 60 * number}@delivered": 10})
    page = StatePage(state_file(tmp_path, "udp"))
    writer = DroppedFrameCounts(page)
    # One by one, as each is folded after it is added.
    for number in drops:
        writer.skip("kafka", Move(0, 8, 1000), {f"{M + 60 * number}@policy_drop": 1})
        writer.confirm_skip()
    page.close()
    accounts = Accounts(tmp_path, "udp", "kafka")
    accounts.write(account)
    accounts.close()
    report = kafka_reports(tmp_path, {"udp": "kafka"})["udp"]
    assert (report.forwarded, report.dropped) == (1000, len(drops))
    now = float(M + 60 * 105)
    register = KafkaHostRegister(tmp_path / "hosts", lambda: {"t/0": 1000}, lambda: now, lambda: now)
    assert register.post(KafkaPost("web1", "d", "p", 1, int(now * 1000), "1", {"udp": report}).document())
    now += 11
    register.post_ends({"ends": {"t/0": 1000}, "age_ms": 1})
    arrived = {M + 60 * number: 10 for number in range(100)}
    compared = over_kafka.compare(register.settled_states(), {"web1/udp": arrived})["web1", "udp"]
    assert (compared.missing, compared.doubled, compared.in_kafka) == (0, 0, 0)
    arrived[M + 60 * 90] = 9
    compared = over_kafka.compare(register.settled_states(), {"web1/udp": arrived})["web1", "udp"]
    assert (compared.missing, compared.missing_minutes) == (1, (M + 60 * 90, M + 60 * 90))


def test_post_of_a_host_whose_handlers_have_not_begun_has_no_listener_and_is_accepted() -> None:
    listener = {"name": "udp", "protocol": "udp", "port": 0, "handlers": [KAFKA, {"type": "log", "topic": "t"}]}
    settings = Settings.model_validate({"listener": [listener]})
    counts = KafkaCounts(settings, "web1", "disk")
    first, second = counts.next_post(), counts.next_post()
    assert parse_kafka_post(first.document()) == first
    assert (first.listeners, second.version, second.process) == ({}, first.version + 1, first.process)
