"""The channel from the supervisor to the running daemon."""

from __future__ import annotations

import os
import threading
from typing import Any

from penstock.supervise.daemon_channel import Channel, DaemonEnd, NewEvents, NewSettings


def start_answering(end: DaemonEnd, messages: list[Any]) -> threading.Thread:
    def answer() -> None:
        while (message := end.receive()) is not None:
            messages.append(message)
            end.answer(message)

    thread = threading.Thread(target=answer)
    thread.start()
    return thread


def test_large_settings_and_eventfds_arrive_and_are_confirmed() -> None:
    channel, messages = Channel(), []
    end = DaemonEnd(os.dup(channel.descriptor))
    thread = start_answering(end, messages)
    wake, settings = os.eventfd(0, os.EFD_NONBLOCK), {"long": "x" * 1_000_000}
    assert channel.send_settings(settings, {"events": wake}, lambda: True, lambda: None)
    assert channel.send_settings({}, {}, lambda: True, lambda: None)
    channel.close()
    thread.join()
    assert [(message.number, message.settings, list(message.wakes)) for message in messages] == [
        (1, settings, ["events"]),
        (2, {}, []),
    ]
    os.eventfd_write(messages[0].wakes["events"] or -1, 7)
    assert os.eventfd_read(wake) == 7


def test_successor_reads_what_a_dead_daemon_had_not_read() -> None:
    channel, messages, ticks = Channel(), [], []
    assert not channel.send_settings({"first": 1}, {}, lambda: len(ticks) < 2, lambda: ticks.append(0))
    thread = start_answering(DaemonEnd(os.dup(channel.descriptor)), messages)
    assert channel.send_settings({"second": 2}, {}, lambda: True, lambda: None)
    channel.close()
    thread.join()
    assert [message.settings for message in messages] == [{"first": 1}, {"second": 2}]


def test_events_arrive_among_settings_and_are_answered() -> None:
    channel, messages = Channel(), []
    first = channel.send_events([{"id": "a"}, {"id": "b"}])
    assert (first, channel.poll_answers()) == (1, 0)
    thread = start_answering(DaemonEnd(os.dup(channel.descriptor)), messages)
    assert channel.send_settings({"new": 1}, {}, lambda: True, lambda: None)
    assert channel.poll_answers() == 2
    channel.close()
    thread.join()
    assert messages == [NewEvents(1, [{"id": "a"}, {"id": "b"}]), NewSettings(2, {"new": 1}, {})]


def test_send_events_does_not_block_if_the_daemon_does_not_read() -> None:
    channel = Channel()
    sent = [channel.send_events([{"id": "x" * 10_000}]) for _ in range(1000)]
    assert sent[-1] == 0
    channel.close()


def test_unread_messages_are_discarded() -> None:
    channel, messages = Channel(), []
    assert not channel.send_settings({"old": 1}, {"events": os.eventfd(0, os.EFD_CLOEXEC)}, lambda: False, lambda: None)
    channel.discard_unread()
    channel.discard_unread()
    thread = start_answering(DaemonEnd(os.dup(channel.descriptor)), messages)
    assert channel.send_settings({"new": 1}, {}, lambda: True, lambda: None)
    channel.close()
    thread.join()
    assert [message.settings for message in messages] == [{"new": 1}]


def test_more_eventfds_than_fit_into_a_message_arrive() -> None:
    channel, messages = Channel(), []
    thread = start_answering(DaemonEnd(os.dup(channel.descriptor)), messages)
    wakes = {f"listener{number}": os.eventfd(0, os.EFD_NONBLOCK) for number in range(600)}
    assert channel.send_settings({"a": 1}, wakes, lambda: True, lambda: None)
    channel.close()
    thread.join()
    received = {name: wake for message in messages for name, wake in message.wakes.items()}
    assert list(received) == list(wakes)
    assert all(message.settings == {"a": 1} for message in messages)
    os.eventfd_write(received["listener599"] or -1, 1)
    assert os.eventfd_read(wakes["listener599"]) == 1
    for wake in [*received.values(), *wakes.values()]:
        os.close(wake or -1)
