"""The thread that sweeps."""

from penstock.log import Log, Sweeper, TopicSettings
from penstock.testing import FakeClock
from penstock.testing.pipe import wait_until
from tests.log.log_helpers import UNSYNCED, fill


def test_sweeper_sweeps_until_it_is_stopped(tmp_path, caplog):
    clock = FakeClock()
    log = Log(tmp_path, TopicSettings(stale_after=10), clock=clock, fs=UNSYNCED)
    topic = log.topic("t", create=True)
    sweeper = Sweeper(log, interval_s=0.01)
    sweeper.start()
    for number in range(3):
        fill(topic, [b"%d" % number])
        clock.advance(11)
        wait_until(lambda expected=number + 1: topic.start == expected)
    sweeper.stop()
    log.close()
    assert caplog.text == ""


def test_failed_sweep_is_logged_and_repeated(tmp_path, caplog):
    log = Log(tmp_path, fs=UNSYNCED)
    calls = []

    def sweep():
        calls.append(1)
        raise RuntimeError("broken")

    log.sweep = sweep
    sweeper = Sweeper(log, interval_s=0.01)
    sweeper.start()
    wait_until(lambda: len(calls) >= 2)
    sweeper.stop()
    assert "retention: the log could not be swept" in caplog.text
    log.close()
