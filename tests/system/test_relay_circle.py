"""Two instances that relay one topic to each other: each has each entry once, and no entry circulates."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from penstock.testing.pipe import Pipe, wait_until
from tests.system.configured_pipe import SMALL, listener
from tests.system.topic_files import entries

SENT = [f"message {number}".encode() for number in range(200)]

pytestmark = pytest.mark.timeout(300)


def test_entries_do_not_circulate_between_two_instances(tmp_path: Path) -> None:
    pipes = {}
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        pipes[name] = Pipe(tmp_path / name)
    first, second = pipes.values()
    for pipe, other in ((first, second), (second, first)):
        pipe.configure(
            SMALL
            + listener("events-udp", "udp", 'defrag.max_size = "16KiB"', topic="events")
            + f'[[relay]]\nname = "up"\nto = "{other.grpc}"\nhost = "{pipe.output.parent.name}"\ntopic = "events"\n'
        )
    with contextlib.ExitStack() as stack:
        for pipe in (first, second):
            stack.callback(pipe.stop)
            pipe.start()
        first.datagrams(*SENT)
        circle = "the relays form a circle; remove the topic from relay.topic on one of them"
        wait_until(lambda: circle in second.output.read_text(), what="the second one is refused")
        wait_until(lambda: len(entries(second, "events")) == len(SENT), what="all entries have arrived")
        # A further attempt of the relay, at most 5 s after the refusal, copies nothing either.
        first.datagrams(b"last")
        wait_until(lambda: len(entries(second, "events")) > len(SENT), what="the last entry has arrived")
        for pipe in (first, second):
            payloads = sorted(entry["payload"] for entry in entries(pipe, "events"))
            assert payloads == sorted([*SENT, b"last"])
        assert first.balance()["unaccounted"] == second.balance()["unaccounted"] == 0
