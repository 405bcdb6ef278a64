"""Statistics summed over listeners; times of exports; senders, and their alarms."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis.strategies import binary

from penstock.config import Settings
from penstock.config.keys.alarms import AlarmsConfig
from penstock.counts import Origin
from penstock.files.checked_document import write_document
from penstock.handover.heartbeat import Heartbeat
from penstock.handover.landing_failure import FailurePage
from penstock.handover.paths import pipeline_state_files, senders_file
from penstock.handover.sender_table import SenderTable, named_arrivals, sender_counts
from penstock.handover.state_page import PIPELINE_TEXTS, STATISTICS, StatePage
from penstock.ledger.event_recorder import EventRecorder
from penstock.ledger.ledger import Ledger
from penstock.log import Log
from penstock.records import body
from penstock.server.alarms.evaluation import Evaluation, Moment
from penstock.server.alarms.rules import RULES
from penstock.server.alarms.watch import RuleState
from penstock.server.api.monitoring import MonitoringApi, add_up
from penstock.server.metrics.recorded_metrics import audit_families, contract_family, export_family
from penstock.slogd.errors import BadRequest
from tests.audit.audited import run_audit, write_parquet
from tests.small_disk import small_file_system


def settings_with_export(folder: Path) -> Settings:
    """Return settings with one export, whose state has a folder."""
    exports = [{"name": "copy", "to": "duckdb:/copy"}]
    settings = Settings.model_validate({"data_dir": folder, "export": exports})
    settings.export_states.mkdir(parents=True)
    return settings


def test_export_has_the_time_that_the_pipeline_wrote(tmp_path: Path) -> None:
    settings = settings_with_export(tmp_path)
    write_document(settings.export_states / "copy.json", {"at": 1770000000.5, "failure": "", "batch": 3})
    assert list(export_family(settings).samples) == [({"export": "copy"}, 1770000000.5)]


@given(state=binary(max_size=64))
def test_any_state_of_an_export_is_a_time_or_no_sample(tmp_path_factory: pytest.TempPathFactory, state: bytes) -> None:
    settings = settings_with_export(tmp_path_factory.mktemp("data"))
    (settings.export_states / "copy.json").write_bytes(state)
    assert list(export_family(settings).samples) == []


def test_violations_of_contracts_have_the_labels_of_their_rule(tmp_path: Path) -> None:
    settings = Settings.model_validate({"data_dir": tmp_path})
    settings.contracts.parent.mkdir(parents=True)
    assert list(contract_family(settings).samples) == []
    write_document(settings.contracts, {"violations": {"contract.order.amount.min": 3}})
    labels = {"table": "order", "column": "amount", "rule": "min"}
    assert list(contract_family(settings).samples) == [(labels, 3)]
    settings.contracts.write_bytes(b"damaged")
    assert list(contract_family(settings).samples) == []


def test_recorded_audit_has_its_outcome_and_the_time_of_the_next_check(tmp_path: Path) -> None:
    settings = Settings.model_validate({"data_dir": tmp_path})
    settings.audits.mkdir()
    record = {"topic": "orders", "table": "/lake", "status": 1, "every_s": 300.0, "at_s": 1770000000.5}
    write_document(settings.audits / "a.json", record)
    write_document(settings.audits / "once.json", record | {"table": "/once", "status": 0, "every_s": 0})
    outcome, due = audit_families(settings)
    assert list(outcome.samples) == [
        ({"topic": "orders", "table": "/lake"}, 1),
        ({"topic": "orders", "table": "/once"}, 0),
    ]
    assert list(due.samples) == [({"topic": "orders", "table": "/lake"}, 1770000600.5)]


def test_audits_of_one_topic_and_table_are_one_sample_that_fires_the_alarms(tmp_path: Path) -> None:
    settings = Settings.model_validate({"data_dir": tmp_path})
    settings.audits.mkdir()
    record = {"topic": "orders", "table": "/lake", "status": 2, "every_s": 300.0, "at_s": 1770000000.5}
    write_document(settings.audits / "a.json", record)
    write_document(settings.audits / "b.json", record | {"status": 1, "at_s": 1770009000.0})
    write_document(settings.audits / "c.json", record | {"status": 0})
    families = audit_families(settings)
    labels = {"topic": "orders", "table": "/lake"}
    assert [list(family.samples) for family in families] == [[(labels, 1)], [(labels, 1770000600.5)]]
    (silent,) = [rule for rule in RULES if rule.name == "PenstockAuditSilent"]
    late = Evaluation(silent.condition).holds({family.name: family for family in families}, Moment(0, 1770009001.5))
    assert late == {("orders", "/lake"): 8401.0}


def test_audit_that_finds_missing_records_fires_its_alarm_until_a_check_is_complete(tmp_path: Path) -> None:
    settings = Settings.model_validate({"data_dir": tmp_path / "data"})
    (tmp_path / "penstock.toml").write_text(f'data_dir = "{tmp_path}/data"\n')
    rows = [(0, offset) for offset in range(60)]
    source, table = write_parquet(tmp_path / "source", rows), write_parquet(tmp_path / "lake", rows[:57], files=1)
    (incomplete,) = [rule for rule in RULES if rule.name == "PenstockAuditIncomplete"]
    state = RuleState(incomplete)

    def changes_after_a_check(status: int) -> list[dict[str, Any]]:
        assert run_audit("", str(source), table, "--config", str(tmp_path / "penstock.toml"))[0] == status
        return list(state.changes({family.name: family for family in audit_families(settings)}, Moment(0, 1.5)))

    (begins,) = changes_after_a_check(1)
    assert (begins["state"], begins["severity"], begins["labels"]["table"]) == ("begins", "critical", str(table))
    assert "(audit status 1)" in begins["summary"]
    (table / "torn.parquet").write_bytes(b"PAR1 torn")
    assert changes_after_a_check(2) == [], "a check without a decision is not an end of the alarm"
    (table / "torn.parquet").unlink()
    write_parquet(table, rows, files=1)
    (ends,) = changes_after_a_check(0)
    assert (ends["alarm"], ends["state"]) == ("PenstockAuditIncomplete", "ends")


@given(record=binary(max_size=64))
def test_any_record_of_an_audit_has_samples_or_none(tmp_path_factory: pytest.TempPathFactory, record: bytes) -> None:
    settings = Settings.model_validate({"data_dir": tmp_path_factory.mktemp("data")})
    settings.audits.mkdir()
    (settings.audits / "a.json").write_bytes(record)
    assert [list(family.samples) for family in audit_families(settings)] == [[], []]


def test_statistics_are_summed_element_by_element() -> None:
    first = {
        "version": "1",
        "uptime": 5,
        "holes": 1,
        "v0_fragments": [1, 2],
        "kafka": {"count": 1, "rate": [1.0, 2.0]},
    }
    second = {
        "version": "1",
        "uptime": 9,
        "holes": 2,
        "v0_fragments": [3, 4],
        "kafka": {"count": 2, "rate": [0.5, 0.5]},
    }
    assert add_up([first, second]) == {"holes": 3, "v0_fragments": [4, 6], "kafka": {"count": 3, "rate": [1.5, 2.5]}}


def test_sum_without_listeners_is_empty() -> None:
    assert add_up([]) == {}
    assert add_up([{}, {"holes": 1}]) == {"holes": 1}


@pytest.fixture
def reports(tmp_path: Path) -> Iterator[MonitoringApi]:
    listeners = [{"name": "in", "protocol": "udp", "port": 5140, "receivers": 2}, {"name": "web", "protocol": "tcp"}]
    settings = Settings.model_validate({"data_dir": tmp_path, "listener": listeners})
    settings.buffers.mkdir(parents=True)
    log = Log(settings.topics)
    yield MonitoringApi(settings, log, Ledger(log, settings.buffers, ["in", "in-2", "web"]))
    log.close()


def messages_of(reports: MonitoringApi, alarm: str) -> list[dict[str, Any]]:
    """Return the messages of an alarm that fires at once."""
    state = RuleState(next(rule for rule in RULES if rule.name == alarm))
    families = {family.name: family for family in reports.metrics()}
    return list(state.changes(families, Moment(0.0, time.time())))


def test_alarm_fires_when_free_space_is_below_both_limits(reports: MonitoringApi, tmp_path: Path) -> None:
    whole = {"disk_free": 1 << 60, "disk_free_share": 1.0}
    for off in ("disk_free", "disk_free_share"):
        limits = AlarmsConfig.model_validate(whole | {off: 0})
        reports.settings = reports.settings.model_copy(update={"alarms": limits})
        assert messages_of(reports, "PenstockDiskLow") == []
        assert reports.balance({})["low_disks"] == {}
    reports.settings = reports.settings.model_copy(update={"alarms": AlarmsConfig.model_validate(whole)})
    (message,) = messages_of(reports, "PenstockDiskLow")
    assert message["labels"] == {"folder": str(tmp_path)}
    assert "retain_bytes" in message["advice"]
    free = reports.balance({})["low_disks"][str(tmp_path)]
    assert abs(free - shutil.disk_usage(tmp_path).free) < 1 << 30


@pytest.mark.survives("alarms", "full disk")
def test_alarm_fires_while_the_disk_is_full(tmp_path: Path) -> None:
    with small_file_system(tmp_path / "data", "8m") as folder:
        settings = Settings.model_validate({"data_dir": folder})
        settings.buffers.mkdir(parents=True)
        log = Log(settings.topics)
        ledger = Ledger(log, settings.buffers, ["in"])
        reports, recorder = MonitoringApi(settings, log, ledger), EventRecorder(ledger, log)
        recorder.check()
        assert messages_of(reports, "PenstockDiskFull") == []
        with open(folder / "ballast", "ab", buffering=0) as ballast, contextlib.suppress(OSError):
            while ballast.write(bytes(4096)):
                pass
        append = log.topic("t", create=True).append(body([b"x" * 100_000]), Origin("in", 0, 0, 0))
        assert str(append.exception(20)) == "No space left on device"
        recorder.check()
        (message,) = messages_of(reports, "PenstockDiskFull")
        assert (message["severity"], message["labels"]) == ("critical", {})
        assert [event["text"] for event in reports.events()["events"]] == ["the disk is full"]
        (folder / "ballast").unlink()
        log.close()


def hear(reports: MonitoringApi, receiver: str, *names: str, times: int = 1, then: float = 0.0) -> None:
    """Let senders send every second, and pass some seconds."""
    now = [0.0]
    table = SenderTable(senders_file(reports.settings.buffers, receiver), -1, lambda: now[0])
    for number in range(times):
        now[0] += 1.0
        counts = {name: sender_counts(1)[0] + 1 for name in names}
        table.stage(named_arrivals(counts), number, 1_800_000_000_000_000)
        table.confirm(number)
    now[0] += then
    table.tick()


def test_senders_are_selected_by_listener_and_text(reports: MonitoringApi) -> None:
    hear(reports, "in", "192.0.2.1", "192.0.2.2", times=3)
    hear(reports, "in-2", "192.0.2.1")
    hear(reports, "web", "198.51.100.1")
    document = reports.senders({})
    assert {each["listener"]: each["number"] for each in document["listeners"]} == {"in": 2, "web": 1}
    (listener,) = reports.senders({"listener": "in", "search": "2.1", "limit": "1"})["listeners"]
    (sender,) = listener["senders"]
    assert (sender["sender"], sender["accepted"], sender["losses"]["hole"]) == ("192.0.2.1", 4, 4)
    assert reports.senders({"limit": "1"})["listeners"][0]["number"] == 2
    with pytest.raises(BadRequest, match="there is no listener 'no'"):
        reports.senders({"listener": "no"})


def firing(reports: MonitoringApi, alarm: str) -> list[dict[str, str]]:
    (rule,) = (rule for rule in RULES if rule.name == alarm)
    state, families = RuleState(rule), {family.name: family for family in reports.metrics()}
    changes = [*state.changes(families, Moment(0, 0)), *state.changes(families, Moment(rule.hold, rule.hold))]
    return [change["labels"] for change in changes]


def test_silent_sender_fires_an_alarm_by_its_name(reports: MonitoringApi) -> None:
    hear(reports, "in", "192.0.2.1", times=600, then=61)
    hear(reports, "in-2", "192.0.2.2", times=600, then=59)
    hear(reports, "web", *(f"192.0.2.{number}" for number in range(21)), times=600, then=70)
    assert firing(reports, "PenstockSilentSender") == [
        {"listener": "in", "sender": "192.0.2.1"},
        {"listener": "web", "sender": "many"},
    ]
    assert firing(reports, "PenstockNewSender") == []


def test_silence_beyond_the_expected_one_fires_at_the_next_evaluation(reports: MonitoringApi) -> None:
    hear(reports, "web", "once", then=21)
    *others, web = reports.settings.listener
    reports.settings = reports.settings.model_copy(
        update={"listener": (*others, web.model_copy(update={"expect": 20.0}))}
    )
    (rule,) = (rule for rule in RULES if rule.name == "PenstockSilentSender")
    families = {family.name: family for family in reports.metrics()}
    (change,) = RuleState(rule).changes(families, Moment(0, 0))
    assert change["labels"] == {"listener": "web", "sender": "once"}


def test_former_table_of_a_listener_that_counts_no_senders_is_ignored(reports: MonitoringApi) -> None:
    hear(reports, "web", "192.0.2.1", times=600, then=61)
    *others, web = reports.settings.listener
    silent = web.model_copy(update={"senders": "off"})
    reports.settings = reports.settings.model_copy(update={"listener": (*others, silent)})
    assert firing(reports, "PenstockSilentSender") == []
    assert reports.senders({"listener": "web"})["listeners"] == [{"listener": "web", "number": 0, "senders": []}]


def test_new_sender_fires_an_alarm_by_its_name(reports: MonitoringApi) -> None:
    hear(reports, "web", "first", times=3601)
    hear(reports, "web", "second")
    assert firing(reports, "PenstockNewSender") == [{"listener": "web", "sender": "second"}]


def test_expected_interval_of_a_listener_is_the_limit_of_silence(reports: MonitoringApi) -> None:
    hear(reports, "web", "once", then=301)
    assert firing(reports, "PenstockSilentSender") == []
    *others, web = reports.settings.listener
    expecting = web.model_copy(update={"expect": 300.0})
    reports.settings = reports.settings.model_copy(update={"listener": (*others, expecting)})
    assert firing(reports, "PenstockSilentSender") == [{"listener": "web", "sender": "once"}]


def test_silent_host_fires_an_alarm_by_its_name(reports: MonitoringApi) -> None:
    log, now = reports._log, int(time.time()) // 60 * 60
    for number in range(20):
        bucket = now - 3600 + 60 * number
        log.topic("web", create=True).append(body([b"m"]), Origin("db1/in", bucket, 0, 0)).result()
    assert firing(reports, "PenstockHostSilent") == [{"host": "db1"}]
    log.topic("web").append(body([b"m"]), Origin("db1/in", now, 0, 0)).result()
    assert firing(reports, "PenstockHostSilent") == []


def test_failing_pipeline_is_in_the_balance_and_fires_an_alarm(reports: MonitoringApi) -> None:
    assert "landing_failure" not in reports.balance({})
    assert firing(reports, "PenstockPipelineFails") == []
    page = FailurePage(reports.settings.landing_failure)
    page.record("Python worker failed to connect back")
    document = reports.balance({})["landing_failure"]
    assert (document["cause"], document["times"]) == ("Python worker failed to connect back", 1)
    assert firing(reports, "PenstockPipelineFails") == [{}]
    page.clear()
    assert firing(reports, "PenstockPipelineFails") == []


def test_old_failure_of_a_pipeline_that_does_not_run_is_forgotten(reports: MonitoringApi) -> None:
    page = FailurePage(reports.settings.landing_failure, lambda: (time.time_ns() // 1000) - 86_460_000_000)
    page.record("a trial")
    assert "landing_failure" not in reports.balance({})
    pipeline = StatePage(
        next(iter(pipeline_state_files(reports.settings.data_dir).values())), PIPELINE_TEXTS, claim=True
    )
    pipeline.write(STATISTICS, Heartbeat().beat())
    assert reports.balance({})["landing_failure"]["cause"] == "a trial"
    pipeline.close()


def test_stopped_pipeline_is_in_the_balance_and_the_metrics(reports: MonitoringApi) -> None:
    first, second, *_ = pipeline_state_files(reports.settings.data_dir).values()
    page = StatePage(first, PIPELINE_TEXTS, claim=True)
    page.write(STATISTICS, Heartbeat().beat())
    assert reports.balance({})["silent"] == {}
    page.write(STATISTICS, Heartbeat(lambda: time.monotonic() - 12.4).beat())
    assert reports.balance({})["silent"] == {"pipeline": pytest.approx(12.4, abs=1)}
    (family,) = (family for family in reports.metrics() if family.name == "penstock_pipeline_silent_seconds")
    ((labels, silent_s),) = family.samples
    assert (labels, silent_s) == ({}, pytest.approx(12.4, abs=1))
    other = StatePage(second, PIPELINE_TEXTS, claim=True)
    other.write(STATISTICS, Heartbeat(lambda: time.monotonic() - 40).beat())
    assert reports.balance({})["silent"].keys() == {"pipeline", "pipeline 2"}
    other.close()
    assert reports.balance({})["silent"].keys() == {"pipeline"}, "the other one was killed"
    page.write(STATISTICS, {})
    assert reports.balance({})["silent"] == {}, "it has ended"
