"""How ``penstock up`` tells the ledger of its processes."""

from __future__ import annotations

from pathlib import Path

from penstock.cli.run.ledger_door import LedgerDoor
from penstock.config import Settings
from penstock.supervise.timeline import Timeline
from penstock.testing.pipe import free_ports
from tests.spark.spark_daemon import daemon


def test_a_pipeline_that_was_started_again_is_in_the_timeline(tmp_path: Path) -> None:
    with daemon(tmp_path) as started:
        settings = Settings.model_validate({"data_dir": str(tmp_path), "log": {"http": started.http}})
        told = Timeline(LedgerDoor(settings))
        told.record_death("pipeline", "was killed by SIGKILL")
        told.deliver(1)
        told.record_return("pipeline")
        told.deliver(1)
        told.deliver(1)
        (event,) = started.ledger.events()
        assert (event.what, event.cause, event.version, event.until >= event.at) == (
            "pipeline",
            "was killed by SIGKILL",
            1,
            True,
        )
        assert told.is_delivered


def test_a_daemon_that_is_away_is_tried_again_later_and_holds_nothing_up(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    door = LedgerDoor(Settings.model_validate({"data_dir": str(tmp_path), "log": {"http": address}}))
    assert [door.send_events([{"id": "x"}]), door.send_events([{"id": "x"}]), door.poll_answers()] == [0, 0, 0]
