"""The way from the supervisor to the running daemon."""

from __future__ import annotations

import os
import threading
from typing import Any

from penstock.supervise.daemon_channel import Channel, DaemonEnd, NewEvents, NewSettings


def answering(end: DaemonEnd, into: list[Any]) -> threading.Thread:
    def answer() -> None:
        while (told := end.receive()) is not None:
            into.append(told)
            end.answer(told)

    thread = threading.Thread(target=answer)
    thread.start()
    return thread


def test_settings_of_any_length_and_eventfds_arrive_and_are_confirmed() -> None:
    channel, told = Channel(), []
    end = DaemonEnd(os.dup(channel.descriptor))
    thread = answering(end, told)
    wake, settings = os.eventfd(0, os.EFD_NONBLOCK), {"long": "x" * 1_000_000}
    assert channel.tell(settings, {"events": wake}, lambda: True, lambda: None)
    assert channel.tell({}, {}, lambda: True, lambda: None)
    channel.close()
    thread.join()
    assert [(one.number, one.settings, list(one.wakes)) for one in told] == [(1, settings, ["events"]), (2, {}, [])]
    os.eventfd_write(told[0].wakes["events"] or -1, 7)
    assert os.eventfd_read(wake) == 7


def test_what_a_daemon_that_died_had_not_read_its_successor_reads_and_an_old_answer_counts_for_nothing() -> None:
    channel, told, ticks = Channel(), [], []
    assert not channel.tell({"first": 1}, {}, lambda: len(ticks) < 2, lambda: ticks.append(0))
    thread = answering(DaemonEnd(os.dup(channel.descriptor)), told)
    assert channel.tell({"second": 2}, {}, lambda: True, lambda: None)
    channel.close()
    thread.join()
    assert [one.settings for one in told] == [{"first": 1}, {"second": 2}]


def test_events_arrive_among_settings_and_are_answered_for_without_anybody_waiting() -> None:
    channel, told = Channel(), []
    first = channel.send_events([{"id": "a"}, {"id": "b"}])
    assert (first, channel.hear()) == (1, 0)
    thread = answering(DaemonEnd(os.dup(channel.descriptor)), told)
    assert channel.tell({"new": 1}, {}, lambda: True, lambda: None)
    assert channel.hear() == 2
    channel.close()
    thread.join()
    assert told == [NewEvents(1, [{"id": "a"}, {"id": "b"}]), NewSettings(2, {"new": 1}, {})]


def test_events_that_a_daemon_does_not_read_hold_nothing_up() -> None:
    channel = Channel()
    sent = [channel.send_events([{"id": "x" * 10_000}]) for _ in range(1000)]
    assert sent[-1] == 0
    channel.close()


def test_what_nobody_has_read_can_be_forgotten() -> None:
    channel, told = Channel(), []
    assert not channel.tell({"old": 1}, {"events": os.eventfd(0, os.EFD_CLOEXEC)}, lambda: False, lambda: None)
    channel.clear()
    channel.clear()
    thread = answering(DaemonEnd(os.dup(channel.descriptor)), told)
    assert channel.tell({"new": 1}, {}, lambda: True, lambda: None)
    channel.close()
    thread.join()
    assert [one.settings for one in told] == [{"new": 1}]


def test_more_eventfds_than_a_message_holds_arrive_all() -> None:
    channel, told = Channel(), []
    thread = answering(DaemonEnd(os.dup(channel.descriptor)), told)
    wakes = {f"listener{number}": os.eventfd(0, os.EFD_NONBLOCK) for number in range(600)}
    assert channel.tell({"a": 1}, wakes, lambda: True, lambda: None)
    channel.close()
    thread.join()
    got = {name: wake for one in told for name, wake in one.wakes.items()}
    assert list(got) == list(wakes)
    assert all(one.settings == {"a": 1} for one in told)
    os.eventfd_write(got["listener599"] or -1, 1)
    assert os.eventfd_read(wakes["listener599"]) == 1
    for wake in [*got.values(), *wakes.values()]:
        os.close(wake or -1)
