"""Settings that change while the daemon runs."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from penstock.config import Settings
from penstock.handover.drain.listener_drains import Drains
from penstock.ledger.ledger import Ledger
from penstock.log import Log, TooManyTopics
from penstock.server.alarms.delivery import FAILED, AlarmDelivery
from penstock.server.alarms.register import AlarmRegister
from penstock.server.alarms.watch import AlarmWatch
from penstock.server.api.monitoring import MonitoringApi
from penstock.server.auth.rights import TokenAuthenticator
from penstock.server.live_settings import Alarms, Reconfigurer, log_settings
from penstock.server.metrics.prometheus import Family
from penstock.slogd.errors import Unauthenticated
from penstock.supervise.daemon_channel import Channel, DaemonEnd
from penstock.testing.pipe import wait_until
from tests.server.alarms.test_register import change


def settings(folder: Path, **groups: object) -> Settings:
    return Settings.model_validate({"data_dir": str(folder), "listener": [], **groups})


def tokens(name: str) -> dict[str, object]:
    return {"tokens": {name: {"token": f"the token of {name}", "read": ["*"]}}}


def firing_alarm(register: AlarmRegister) -> dict[str, Any]:
    (alarm,) = (alarm for rule in register.document()["alarms"] for alarm in rule["firing"])
    return dict(alarm)


def test_new_settings_apply_and_a_topics_own_settings_stay(tmp_path: Path) -> None:
    old = settings(tmp_path, security=tokens("somebody"))
    log = Log(old.topics, **log_settings(old))
    log.topic("plain", create=True)
    log.create("own", {"stale_after": 5.0})
    ledger, guard = Ledger(log, old.buffers, []), TokenAuthenticator.from_config(old.security, None)
    reports, channel = MonitoringApi(old, log, ledger), Channel()
    drains = Drains(old.buffers, log)
    delivery, looks = AlarmDelivery(old.alarms), threading.Semaphore(0)
    register = AlarmRegister(tmp_path / "alarms.state", None, log.clock.expected)

    def families() -> list[Family]:
        looks.release()
        return [Family("penstock_topic_fate_total", "counter", "", [({"topic": "t", "fate": "corrupt"}, 1.0)])]

    watch = AlarmWatch(3600, log.clock, families, str, register.enter)
    watch.start()
    assert looks.acquire(timeout=20)
    alarms = Alarms(delivery, register, watch)
    delivery.on_finished = register.mark_finished
    register.enter([change("begins", "web")], [])
    register.mark_finished(register.firing()[0], FAILED)
    reconfigurer = Reconfigurer(DaemonEnd(os.dup(channel.descriptor)), log, ledger, reports, guard, drains, alarms)
    new = settings(
        tmp_path,
        log={"max_topics": 2, "topic_defaults": {"stale_after": "2d", "segment_size_limit": "1MiB"}},
        topic={"later": {"stale_after": "3d"}},
        transactions={"max_open": 1},
        security=tokens("another"),
        alarms={"command": "true", "every": "100ms"},
    )
    reconfigurer.apply(new)
    assert (log.settings("plain").stale_after, log.settings("plain").segment_size_limit) == (2 * 86400, 1 << 20)
    assert (log.settings("own").stale_after, log.settings("own").segment_size_limit) == (5, 1 << 20)
    assert log.settings("later").stale_after == 3 * 86400
    assert log.transactions.limits.max_open == 1
    with pytest.raises(TooManyTopics):
        log.topic("third", create=True)
    assert guard.caller("Bearer the token of another").name == "another"
    with pytest.raises(Unauthenticated):
        guard.caller("Bearer the token of somebody")
    assert reports.settings is new
    assert all(looks.acquire(timeout=20) for _ in range(3)), "the interval applies at once"
    assert delivery.is_alive()
    wait_until(lambda: firing_alarm(register)["delivered"], what="an alarm that was given up is delivered")
    watch.stop()
    delivery.stop()
    for thread in (watch, delivery):
        thread.join(20)
    log.close()


def test_reload_is_answered_after_drains_of_removed_listeners_ended(tmp_path: Path) -> None:
    class SlowDrains(Drains):
        retained: tuple[str, ...] = ()

        def retain(self, listeners: Iterable[str]) -> None:
            time.sleep(0.2)
            self.retained = tuple(listeners)

    first = settings(tmp_path)
    log, channel = Log(first.topics), Channel()
    ledger, guard = Ledger(log, first.buffers, []), TokenAuthenticator.from_config(first.security, None)
    register, delivery = AlarmRegister(tmp_path / "alarms.state", None, log.clock.expected), AlarmDelivery(first.alarms)
    alarms = Alarms(delivery, register, AlarmWatch(3600, log.clock, list, str, register.enter))
    drains = SlowDrains(first.buffers, log)
    end = DaemonEnd(os.dup(channel.descriptor))
    Reconfigurer(end, log, ledger, MonitoringApi(first, log, ledger), guard, drains, alarms).start()
    listener = {"name": "a", "protocol": "udp", "handlers": [{"type": "log", "topic": "in"}]}
    kept = settings(tmp_path, listener=[listener])
    assert channel.send_settings(kept.model_dump(mode="json"), {}, lambda: True, lambda: None)
    assert drains.retained == ("a",)
    drains.stop()
    log.close()
