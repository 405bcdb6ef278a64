"""The word that makes a transaction visible in all topics at once."""

import threading
import time

from hypothesis import given
from hypothesis import strategies as st

from penstock.files.file_system import OS
from penstock.log import Log, TopicReader
from penstock.log.store.visibility import DECIDING, FILE_NAME, FREE, PUBLISHING, CommitBarrier, ReaderGate
from tests.log.log_helpers import UNSYNCED, fill, opened, payloads


def test_readers_wait_during_a_publication(tmp_path):
    barrier, gate = CommitBarrier(OS, tmp_path), ReaderGate(tmp_path)
    lengths = []
    with barrier.deciding() as publish:
        assert gate.read(lambda: 1, 0) == 1
        publish()
        thread = threading.Thread(target=lambda: lengths.append(ReaderGate(tmp_path).read(lambda: 2, 7)))
        thread.start()
        time.sleep(0.01)
        assert lengths == []
    thread.join()
    assert lengths == [2]
    barrier.close()


def test_length_read_across_a_publication_is_read_again(tmp_path):
    barrier, gate = CommitBarrier(OS, tmp_path), ReaderGate(tmp_path)
    with barrier.deciding():
        pass
    reads = []

    def read():
        reads.append(1)
        if len(reads) == 1:
            with barrier.deciding() as publish:
                publish()
        return len(reads)

    assert gate.read(read, 0) == 2
    barrier.close()


def test_readers_continue_with_the_old_lengths_when_the_writer_died(tmp_path):
    barrier = CommitBarrier(OS, tmp_path)
    barrier._store(PUBLISHING)
    barrier.close()
    gate = ReaderGate(tmp_path)
    assert gate.read(lambda: 9, 4) == 4
    assert gate.read(lambda: 9, 0) == 9
    following = CommitBarrier(OS, tmp_path)
    assert following.writer_died
    following.free()
    assert gate.read(lambda: 9, 4) == 9
    following.close()
    assert not CommitBarrier(OS, tmp_path).writer_died


def test_log_of_a_writer_killed_while_deciding_opens_all_topics_before_readers_continue(tmp_path):
    log = Log(tmp_path, fs=UNSYNCED)
    fill(log.topic("a", create=True), [b"x"])
    log._barrier._store(DECIDING)
    log.close()
    log = Log(tmp_path, fs=UNSYNCED)
    assert list(log._topics) == ["a"]
    assert int.from_bytes((tmp_path / "BARRIER").read_bytes(), "little") % 4 == FREE
    assert payloads(log.topic("a")) == [b"x"]
    log.close()


def test_readers_continue_without_a_word_or_with_a_damaged_word(tmp_path):
    with opened(tmp_path) as topic:
        fill(topic, [b"a"])
        for data in (b"", b"\xff" * 3):
            (tmp_path / "BARRIER").write_bytes(data)
            assert payloads(TopicReader(topic.path)) == [b"a"]
    (tmp_path / "BARRIER").write_bytes(b"\xff" * 8)
    log = Log(tmp_path, fs=UNSYNCED)
    assert payloads(TopicReader(tmp_path / "t")) == [b"a"]
    log.close()


def test_flipped_bit_in_the_word_is_detected_and_opens_all_topics(tmp_path):
    barrier = CommitBarrier(OS, tmp_path)
    with barrier.deciding():
        pass
    barrier.close()
    written = (tmp_path / "BARRIER").read_bytes()
    for bit in range(64):
        flipped = (int.from_bytes(written, "little") ^ 1 << bit).to_bytes(8, "little")
        (tmp_path / "BARRIER").write_bytes(flipped)
        opened = CommitBarrier(OS, tmp_path)
        assert opened.writer_died
        opened.free()
        opened.close()
        assert not CommitBarrier(OS, tmp_path).writer_died


@given(st.binary(max_size=16) | st.binary(min_size=8, max_size=8))
def test_readers_continue_with_any_bytes_in_the_word(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("topics")
    (folder / FILE_NAME).write_bytes(data)
    barrier = CommitBarrier(OS, folder)
    barrier.free()
    assert ReaderGate(folder).read(lambda: 7, 0) == 7
    barrier.close()
