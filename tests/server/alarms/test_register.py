"""The register of alarms: what is delivered, and what survives a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.files.checked_document import read_document, write_document
from penstock.server.alarms.delivery import FAILED, REMOVED, SENT
from penstock.server.alarms.register import AlarmRegister
from penstock.server.alarms.rules import RULES
from penstock.slogd.errors import BadRequest, NotFound

DROPS = "PenstockKernelDrops"


class Deliveries:
    """Messages that a register delivers, and the time that it reads."""

    def __init__(self, path: Path) -> None:
        self.path, self.now, self.is_accepted = path, 1_800_000_000.0, True
        self.messages: list[dict[str, Any]] = []
        self.register = self.restarted()

    def restarted(self) -> AlarmRegister:
        """Return a register that reads the file of the previous one."""
        self.register = AlarmRegister(self.path, self.deliver, lambda: self.now)
        return self.register

    def deliver(self, message: dict[str, Any]) -> bool:
        self.messages.append(message)
        return self.is_accepted

    def enter(self, state: str, listener: str = "web", *, outcome: str = SENT) -> None:
        """Enter a begin or an end, whose delivery then finishes; "" while it is in flight."""
        self.register.enter([change(state, listener)], [])
        if outcome:
            for message in self.messages:
                self.register.mark_finished(message, outcome)

    def firing(self) -> dict[str, Any]:
        """Return the document of the only alarm of the rule that fires."""
        (alarm,) = self.rule()["firing"]
        return dict(alarm)

    @property
    def delivered(self) -> list[tuple[str, str]]:
        return [(message["state"], message["labels"]["listener"]) for message in self.messages]

    def rule(self) -> dict[str, Any]:
        """Return the document of the rule."""
        return next(rule for rule in self.register.document()["alarms"] if rule["alarm"] == DROPS)


def change(state: str, listener: str) -> dict[str, Any]:
    return {
        "alarm": DROPS,
        "state": state,
        "severity": "warning",
        "labels": {"listener": listener},
        "value": 3,
        "summary": f"the kernel dropped 3 of {listener}",
        "at": "2026-11-22T01:15:20+00:00",
    }


@pytest.fixture
def deliveries(tmp_path: Path) -> Deliveries:
    return Deliveries(tmp_path / "alarms.state")


def test_rules_are_quiet_pending_or_firing(deliveries: Deliveries) -> None:
    assert {rule["alarm"]: rule["state"] for rule in deliveries.register.document()["alarms"]} == {
        rule.name: "quiet" for rule in RULES
    }
    waiting = {"alarm": DROPS, "labels": {"listener": "web"}, "since": "2026-11-22T01:15:10+00:00"}
    deliveries.register.enter([], [waiting])
    assert (deliveries.rule()["state"], deliveries.rule()["pending"][0]["labels"]) == ("pending", {"listener": "web"})
    deliveries.enter("begins")
    (firing,) = deliveries.rule()["firing"]
    assert (deliveries.rule()["state"], firing["since"]) == ("firing", "2026-11-22T01:15:20+00:00")
    deliveries.enter("ends")
    assert deliveries.rule()["state"] == "quiet"
    assert [entry["state"] for entry in deliveries.register.document()["history"]] == ["ends", "begins"]


def test_firing_alarm_shows_its_current_number_since_its_begin(deliveries: Deliveries) -> None:
    deliveries.enter("begins")
    later = change("begins", "web") | {
        "value": 20_000,
        "summary": "the kernel dropped 20,000 of web",
        "at": "2026-11-22T01:20:00+00:00",
    }
    deliveries.register.enter([], [], [change("begins", "other"), later])
    firing = deliveries.firing()
    assert (firing["value"], firing["summary"]) == (20_000, "the kernel dropped 20,000 of web")
    assert firing["since"] == "2026-11-22T01:15:20+00:00"
    assert deliveries.delivered == [("begins", "web")]
    deliveries.restarted()
    assert deliveries.firing()["value"] == 3


def test_acknowledged_alarm_is_delivered_again_only_after_it_ended_and_began(deliveries: Deliveries) -> None:
    deliveries.enter("begins")
    assert deliveries.register.acknowledge(DROPS, {"listener": "web"}, "ann", "cable") == 1
    deliveries.restarted().enter([], [])
    assert deliveries.rule()["firing"][0]["acknowledged"] == {
        "at": "2027-01-15T08:00:00+00:00",
        "by": "ann",
        "note": "cable",
    }
    assert deliveries.delivered == [("begins", "web")]
    deliveries.enter("ends")
    deliveries.enter("begins")
    assert deliveries.delivered == [("begins", "web"), ("ends", "web"), ("begins", "web")]
    assert deliveries.rule()["firing"][0]["acknowledged"] is None


def test_alarm_that_is_acknowledged_before_its_delivery_is_not_delivered_after_a_restart(
    deliveries: Deliveries,
) -> None:
    deliveries.enter("begins", outcome="")
    deliveries.register.acknowledge(DROPS, {}, "ann", "")
    deliveries.restarted().enter([], [])
    assert deliveries.delivered == [("begins", "web")]


@pytest.mark.survives("alarms", "SIGKILL")
def test_delivery_that_a_stop_interrupted_is_repeated_after_the_restart(deliveries: Deliveries) -> None:
    deliveries.enter("begins", outcome="")
    deliveries.restarted().enter([], [])
    assert deliveries.delivered == [("begins", "web")] * 2


def test_dropped_delivery_is_not_repeated(deliveries: Deliveries) -> None:
    deliveries.is_accepted = False
    deliveries.enter("begins", outcome="")
    deliveries.register.enter([], [])
    assert deliveries.delivered == [("begins", "web")]
    assert (deliveries.firing()["delivered"], deliveries.firing()["given_up"]) == (False, True)
    deliveries.enter("ends", outcome="")
    deliveries.restarted().enter([], [])
    assert deliveries.delivered == [("begins", "web"), ("ends", "web")]


def test_end_that_a_stop_interrupted_is_repeated_before_the_alarm_begins_again(deliveries: Deliveries) -> None:
    deliveries.enter("begins")
    deliveries.enter("ends", outcome="")
    deliveries.restarted()
    deliveries.messages.clear()
    deliveries.enter("begins", outcome="")
    assert deliveries.delivered == [("ends", "web"), ("begins", "web")]
    for message in deliveries.messages:
        deliveries.register.mark_finished(message, SENT)
    deliveries.restarted().enter([], [])
    assert deliveries.delivered == [("ends", "web"), ("begins", "web")]


def test_begin_in_flight_at_its_end_is_repeated_after_a_restart_with_the_end(deliveries: Deliveries) -> None:
    deliveries.enter("begins", outcome="")
    deliveries.enter("ends", outcome="")
    deliveries.restarted()
    deliveries.messages.clear()
    deliveries.register.enter([], [])
    assert deliveries.delivered == [("begins", "web"), ("ends", "web")]


@pytest.mark.parametrize("outcome", [SENT, FAILED, REMOVED])
def test_end_whose_delivery_finished_is_not_repeated(deliveries: Deliveries, outcome: str) -> None:
    deliveries.enter("begins")
    deliveries.enter("ends", outcome=outcome)
    deliveries.restarted().enter([], [])
    assert deliveries.delivered == [("begins", "web"), ("ends", "web")]


def test_end_is_forgotten_if_alarms_have_no_destination_any_more(deliveries: Deliveries) -> None:
    deliveries.enter("begins")
    deliveries.enter("ends", outcome="")
    AlarmRegister(deliveries.path, None, lambda: deliveries.now).enter([], [])
    deliveries.restarted().enter([], [])
    assert deliveries.delivered == [("begins", "web"), ("ends", "web")]


@pytest.mark.survives("alarms", "other format")
def test_state_of_a_version_that_stored_no_ends_is_read(deliveries: Deliveries) -> None:
    deliveries.enter("begins")
    document = read_document(deliveries.path)
    del document["ending"], document["firing"][0]["is_given_up"]
    write_document(deliveries.path, document)
    deliveries.restarted()
    assert (deliveries.firing()["delivered"], deliveries.firing()["given_up"]) == (True, False)


@pytest.mark.survives("alarms", "changed configuration")
def test_alarm_that_was_given_up_is_not_delivered_until_the_destinations_change(deliveries: Deliveries) -> None:
    deliveries.enter("begins", outcome=FAILED)
    assert (deliveries.firing()["delivered"], deliveries.firing()["given_up"]) == (False, True)
    deliveries.restarted().deliver_by(deliveries.deliver, is_changed=False)
    deliveries.register.enter([], [])
    assert deliveries.delivered == [("begins", "web")]
    deliveries.register.deliver_by(deliveries.deliver, is_changed=True)
    assert deliveries.delivered == [("begins", "web")] * 2
    assert (deliveries.firing()["delivered"], deliveries.firing()["given_up"]) == (False, False)
    deliveries.register.mark_finished(deliveries.messages[-1], SENT)
    deliveries.register.deliver_by(deliveries.deliver, is_changed=True)
    assert (deliveries.firing()["delivered"], deliveries.firing()["given_up"]) == (True, False)
    assert deliveries.delivered == [("begins", "web")] * 2


def test_end_of_an_alarm_that_was_given_up_is_delivered(deliveries: Deliveries) -> None:
    deliveries.enter("begins", outcome=FAILED)
    deliveries.enter("ends")
    assert deliveries.delivered == [("begins", "web"), ("ends", "web")]


def test_alarm_whose_destination_was_removed_is_delivered_to_the_new_one(deliveries: Deliveries) -> None:
    deliveries.enter("begins", outcome="")
    deliveries.register.deliver_by(deliveries.deliver, is_changed=True)
    deliveries.register.enter([], [])
    assert deliveries.delivered == [("begins", "web")]
    deliveries.register.mark_finished(deliveries.messages[0], REMOVED)
    deliveries.register.enter([], [])
    assert deliveries.delivered == [("begins", "web")] * 2


def test_muted_alarm_is_not_delivered_until_the_mute_ends(deliveries: Deliveries) -> None:
    deliveries.register.mute(DROPS, {"listener": "web"}, deliveries.now + 60, "ann", "test")
    deliveries.enter("begins", "web")
    deliveries.enter("begins", "other")
    assert deliveries.delivered == [("begins", "other")]
    deliveries.now += 59
    deliveries.restarted().enter([], [])
    assert deliveries.rule()["mutes"][0]["by"] == "ann"
    assert deliveries.delivered == [("begins", "other")]
    deliveries.now += 1
    deliveries.register.enter([], [])
    assert deliveries.delivered == [("begins", "other"), ("begins", "web")]


def test_alarm_that_ends_while_it_is_muted_is_delivered_if_its_begin_was(deliveries: Deliveries) -> None:
    deliveries.enter("begins", "web")
    deliveries.register.mute(DROPS, {}, deliveries.now + 60, "ann", "")
    deliveries.enter("begins", "other")
    deliveries.enter("ends", "web")
    deliveries.enter("ends", "other")
    assert deliveries.delivered == [("begins", "web"), ("ends", "web")]


def test_mute_in_the_past_unmutes(deliveries: Deliveries) -> None:
    deliveries.register.mute(DROPS, {}, deliveries.now + 60, "ann", "")
    deliveries.register.mute(DROPS, {}, 0, "bob", "")
    assert deliveries.rule()["mutes"] == []
    states = [(entry["state"], entry["by"]) for entry in deliveries.register.document()["history"]]
    assert states == [("unmuted", "bob"), ("muted", "ann")]


def test_alarm_that_does_not_fire_and_unknown_rule_are_refused(deliveries: Deliveries) -> None:
    deliveries.enter("begins")
    with pytest.raises(NotFound, match="does not fire for listener=other"):
        deliveries.register.acknowledge(DROPS, {"listener": "other"}, "ann", "")
    with pytest.raises(NotFound, match="no alarm is named 'Nothing'"):
        deliveries.register.mute("Nothing", {}, 0, "ann", "")


def test_label_that_the_rule_does_not_have_is_refused(deliveries: Deliveries) -> None:
    deliveries.enter("begins")
    register, until = deliveries.register, deliveries.now + 60
    words = "PenstockKernelDrops has no label 'listner': its labels are listener"
    with pytest.raises(BadRequest, match=words):
        register.mute(DROPS, {"listner": "web"}, until, "ann", "")
    with pytest.raises(BadRequest, match=words):
        register.mute(DROPS, {"listner": "web"}, 0, "ann", "")
    with pytest.raises(BadRequest, match=words):
        register.acknowledge(DROPS, {"listner": "web"}, "ann", "")
    with pytest.raises(BadRequest, match="PenstockUnaccounted has no label 'topic': it has no labels"):
        register.mute("PenstockUnaccounted", {"topic": "t"}, until, "ann", "")
    assert deliveries.rule()["mutes"] == []


def test_rule_that_only_prometheus_evaluates_cannot_be_muted(deliveries: Deliveries) -> None:
    with pytest.raises(BadRequest, match="PenstockAway is evaluated and sent by Prometheus only"):
        deliveries.register.mute("PenstockAway", {}, deliveries.now + 60, "ann", "")


def test_missing_mute_cannot_be_ended_and_the_others_are_named(deliveries: Deliveries) -> None:
    register, until = deliveries.register, deliveries.now + 60
    with pytest.raises(NotFound, match="PenstockKernelDrops is not muted: penstock alarms list shows the mutes"):
        register.mute(DROPS, {}, 0, "ann", "")
    register.mute(DROPS, {"listener": "web"}, until, "ann", "")
    with pytest.raises(NotFound, match="no mute for all its alarms, but for listener=web: name the labels"):
        register.mute(DROPS, {}, 0, "ann", "")
    register.mute(DROPS, {}, until, "ann", "")
    with pytest.raises(NotFound, match="for listener=other, but for listener=web and for all its alarms: name"):
        register.mute(DROPS, {"listener": "other"}, 0, "ann", "")
    assert len(deliveries.rule()["mutes"]) == 2
    register.mute(DROPS, {"listener": "web"}, 0, "ann", "")
    assert [mute["labels"] for mute in deliveries.rule()["mutes"]] == [{}]
    assert [entry["state"] for entry in register.document()["history"]] == ["unmuted", "muted", "muted"]


@pytest.mark.survives("alarms", "damaged bytes")
def test_damaged_file_is_reported_and_forgotten(deliveries: Deliveries, caplog: pytest.LogCaptureFixture) -> None:
    deliveries.enter("begins")
    deliveries.path.write_bytes(deliveries.path.read_bytes()[:-1])
    assert deliveries.restarted().firing() == []
    assert "acknowledgements, mutes and history are forgotten" in caplog.text
    deliveries.enter("begins")
    assert deliveries.restarted().firing()[0]["alarm"] == DROPS


@given(st.binary(max_size=200))
def test_any_bytes_are_a_state_or_forgotten(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.state"
    path.write_bytes(content)
    assert AlarmRegister(path, None, float).firing() == []


def test_alarm_is_delivered_once_a_destination_is_configured(tmp_path: Path) -> None:
    register, delivered = AlarmRegister(tmp_path / "alarms.state", None, float), list[dict[str, Any]]()
    begin = {"alarm": "PenstockCorrupt", "labels": {}, "state": "begins", "at": "now"}
    register.enter([begin], [])
    register.deliver_by(lambda message: delivered.append(message) is None, is_changed=True)
    register.enter([], [])
    assert delivered == [begin]
    register.deliver_by(None, is_changed=True)
    register.enter([begin | {"state": "ends"}], [])
    assert delivered == [begin]
