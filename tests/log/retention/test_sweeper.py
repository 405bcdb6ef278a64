"""The thread that sweeps."""

import time

from penstock.log import Log, Sweeper, TopicSettings
from penstock.testing import FakeClock
from tests.log.log_helpers import UNSYNCED, fill


def test_it_sweeps_again_and_again_until_it_is_stopped(tmp_path, caplog):
    clock = FakeClock()
    log = Log(tmp_path, TopicSettings(stale_after=10), clock=clock, fs=UNSYNCED)
    topic = log.topic("t", create=True)
    sweeper = Sweeper(log, interval=0.01)
    sweeper.start()
    for number in range(3):
        fill(topic, [b"%d" % number])
        clock.advance(11)
        end = time.monotonic() + 10
        while topic.start != number + 1 and time.monotonic() < end:
            time.sleep(0.01)
        assert topic.start == number + 1
    sweeper.stop()
    log.close()
    assert caplog.text == ""


def test_a_sweep_that_fails_is_told_and_tried_again(tmp_path, caplog):
    log = Log(tmp_path, fs=UNSYNCED)
    calls = []

    def sweep():
        calls.append(1)
        raise RuntimeError("broken")

    log.sweep = sweep
    sweeper = Sweeper(log, interval=0.01)
    sweeper.start()
    while len(calls) < 2:
        time.sleep(0.01)
    sweeper.stop()
    assert "the log was not swept" in caplog.text
    log.close()
