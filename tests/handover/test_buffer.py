"""Opening a log buffer: it opens after anything, and positions never go back."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config import ListenerConfig
from penstock.handover.buffer import open_buffer
from penstock.handover.held_frames import kept_frames
from penstock.handover.paths import buffer_file, held_file, position_file
from penstock.logbuffer.subscription import Subscription

LISTENER = ListenerConfig(name="events", protocol="udp")
TERM = 1 << 16


def offered(folder: Path, term_length: int = TERM, messages: int = 3) -> int:
    publication, readers = open_buffer(folder, LISTENER, term_length)
    publication.consumed(readers[0].position.position)
    for number in range(messages):
        publication.offer(b"%d" % number, reserved_value=number)
    end = publication.position
    publication.close()
    return end


def test_it_goes_on_where_it_was_left(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    end = offered(tmp_path)
    publication, readers = open_buffer(tmp_path, LISTENER, TERM)
    assert (publication.position, readers[0].position.position) == (end, 0)
    last = publication.last_frame()
    assert last
    assert (bytes(last.data), last.reserved_value) == (b"2", 2)
    assert caplog.messages == []


def test_another_term_length_waits_until_all_is_read(tmp_path: Path) -> None:
    end = offered(tmp_path)
    publication, readers = open_buffer(tmp_path, LISTENER, 2 * TERM)
    assert publication.parameters.term_length == TERM
    readers[0].position.position = end
    publication.close()
    publication, readers = open_buffer(tmp_path, LISTENER, 2 * TERM)
    assert publication.parameters.term_length == 2 * TERM
    assert (publication.position, readers[0].position.position) == (end, end)


def test_a_file_that_cannot_be_used_is_put_aside_and_positions_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    end = offered(tmp_path)
    path = buffer_file(tmp_path, "events")
    publication, readers = open_buffer(tmp_path, LISTENER, TERM)
    readers[0].position.position = end
    publication.close()
    path.write_bytes(b"garbage")
    publication, _ = open_buffer(tmp_path, LISTENER, TERM)
    assert publication.position == end
    assert "put aside" in caplog.messages[0]
    assert [p.read_bytes() for p in tmp_path.glob("*.unusable-*")] == [b"garbage"]
    publication.consumed(end)
    publication.offer(b"new")
    assert [bytes(frame.data) for frame in Subscription(path, end).poll()] == [b"new"]


def test_where_the_logs_position_cannot_be_read_all_that_it_may_not_have_is_kept_aside_for_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    end = offered(tmp_path)
    position_file(tmp_path, "events", "log").write_bytes(b"garbage")
    publication, readers = open_buffer(tmp_path, LISTENER, TERM)
    position = readers[0].position
    assert (position.stored, position.position) == (0, end)
    kept, _ = kept_frames(held_file(tmp_path, "events"))
    assert (kept[0].begin, kept[-1].end) == (0, end)
    assert "put aside" in caplog.messages[0]
    publication.close()
