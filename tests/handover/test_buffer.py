"""A log buffer opens in any state, and positions never decrease."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from penstock.config import ListenerConfig
from penstock.counts import series_of
from penstock.handover.buffer import epoch_of, open_buffer
from penstock.handover.held_frames import read_held_frames
from penstock.handover.paths import buffer_file, held_file, position_file, state_file
from penstock.handover.positions.position import UNKNOWN
from penstock.handover.state_page import EPOCH, TOPIC_BY_POSITION, StatePage
from penstock.logbuffer.subscription import Subscription
from tests.ingest.ingest_life import live

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


def test_buffer_continues_at_its_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    end = offered(tmp_path)
    publication, readers = open_buffer(tmp_path, LISTENER, TERM)
    assert (publication.position, readers[0].position.position) == (end, 0)
    last = publication.last_frame()
    assert last
    assert (bytes(last.data), last.reserved_value) == (b"2", 2)
    assert caplog.messages == []


@pytest.mark.survives("log buffer", "changed configuration")
def test_new_term_length_waits_until_everything_is_read(tmp_path: Path) -> None:
    end = offered(tmp_path)
    publication, readers = open_buffer(tmp_path, LISTENER, 2 * TERM)
    assert publication.parameters.term_length == TERM
    readers[0].position.position = end
    publication.close()
    publication, readers = open_buffer(tmp_path, LISTENER, 2 * TERM)
    assert publication.parameters.term_length == 2 * TERM
    assert (publication.position, readers[0].position.position) == (end, end)


def test_unusable_file_is_renamed_and_positions_continue(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    end = offered(tmp_path)
    path = buffer_file(tmp_path, "events")
    publication, readers = open_buffer(tmp_path, LISTENER, TERM)
    readers[0].position.position = end
    publication.close()
    path.write_bytes(b"garbage")
    publication, _ = open_buffer(tmp_path, LISTENER, TERM)
    assert publication.position == end
    assert "renamed to" in caplog.messages[0]
    assert [p.read_bytes() for p in tmp_path.glob("*.unusable-*")] == [b"garbage"]
    publication.consumed(end)
    publication.offer(b"new")
    assert [bytes(frame.data) for frame in Subscription(path, end).poll()] == [b"new"]


def test_unreadable_log_position_saves_the_unstored_frames(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    end = offered(tmp_path)
    position_file(tmp_path, "events", "log").write_bytes(b"garbage")
    publication, readers = open_buffer(tmp_path, LISTENER, TERM)
    position = readers[0].position
    assert (position.stored, position.position) == (0, end)
    remaining = list(read_held_frames(held_file(tmp_path, "events"))[0])
    assert (remaining[0].begin, remaining[-1].end) == (0, end)
    assert "renamed to" in caplog.messages[0]
    publication.close()


@pytest.mark.parametrize("number", ["position", "claim"])
def test_reader_behind_the_end_is_reset_and_misses_no_frame(
    tmp_path: Path, number: str, caplog: pytest.LogCaptureFixture
) -> None:
    end = offered(tmp_path)
    with contextlib.closing(StatePage(state_file(tmp_path, "events"))) as page:
        epoch_of(page, 1, 0, 0)
    publication, readers = open_buffer(tmp_path, LISTENER, TERM)
    setattr(readers[0].position, number, end + 1024)
    publication.close()
    publication, readers = open_buffer(tmp_path, LISTENER, TERM)
    position = readers[0].position
    assert (publication.position, position.position, position.claim, position.mark) == (end, 0, 0, UNKNOWN)
    assert "no frame can be at" in caplog.messages[0]
    publication.close()


def test_epochs_of_a_page_are_of_one_series_and_a_lost_page_begins_another(tmp_path: Path) -> None:
    path = state_file(tmp_path, "events")
    names = []
    for inode in (1, 2, 3):
        with contextlib.closing(StatePage(path)) as page:
            names.append(epoch_of(page, inode, 0, 0)[0])
    assert len(set(names)) == 3
    assert {series_of(name) for name in names} == {names[0]}
    path.unlink()
    with contextlib.closing(StatePage(path)) as page:
        assert series_of(epoch_of(page, 3, 0, 0)[0]) != names[0]


def test_position_behind_the_end_holds_after_a_restart_of_the_machine(tmp_path: Path) -> None:
    """The machine may have lost the end of the buffer, and its frames were read."""
    end = offered(tmp_path)
    with contextlib.closing(StatePage(state_file(tmp_path, "events"))) as page:
        page.write(EPOCH, {"boot": "an earlier one", "made": 1, "epoch": "1"})
    publication, readers = open_buffer(tmp_path, LISTENER, TERM)
    readers[0].position.position = end + 1024
    publication.close()
    publication, readers = open_buffer(tmp_path, LISTENER, TERM)
    assert (publication.position, readers[0].position.position) == (end + 1024, end + 1024)
    publication.close()


@pytest.mark.survives("log buffer", "power cut")
def test_first_epoch_is_on_the_disk_with_the_topics_of_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[bool] = []

    def record_texts(page: StatePage) -> None:
        synced.append(bool(page.read(EPOCH) and page.read(TOPIC_BY_POSITION)))
        sync(page)

    sync = StatePage.sync
    monkeypatch.setattr(StatePage, "sync", record_texts)
    for _ in range(2):
        live(tmp_path, LISTENER).end()
    assert synced == [True], "a later epoch replaces one that tells of a restart as well"
