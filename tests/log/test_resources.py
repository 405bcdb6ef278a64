"""Resources shared by topics: the budget of bytes, and open files."""

import errno
import os
import resource
import threading
from types import SimpleNamespace

import pytest

from penstock.log import Log, LogFull, TopicSettings
from penstock.log.errors import write_error
from penstock.log.resources import OpenFiles
from penstock.testing import FakeClock
from tests.log.log_helpers import UNSYNCED, fill, origin, payloads, rows


def test_append_over_a_limit_is_refused_by_its_name_until_there_is_space(tmp_path):
    clock = FakeClock()
    log = Log(tmp_path, TopicSettings(stale_after=10), max_bytes=40_000, clock=clock, fs=UNSYNCED)
    topic = log.topic("t", create=True)
    fill(topic, [b"x" * 9000])
    with pytest.raises(LogFull, match=r"log.max_bytes: \d+ of 40000 bytes"):
        topic.append(rows(b"x" * 30_000), origin()).result(10)
    assert payloads(topic) == [b"x" * 9000]
    log.topic("_own", create=True, internal=True).append(rows(b"x" * 9000), origin()).result(10)
    log.close()
    log = Log(tmp_path, TopicSettings(stale_after=10), max_bytes=40_000, clock=clock, fs=UNSYNCED)
    topic = log.topic("t")
    with pytest.raises(LogFull, match=r"log\.max_bytes"):
        topic.append(rows(b"x" * 9000), origin()).result(10)
    clock.advance(11)
    log.sweep()
    fill(topic, [b"x" * 9000])
    assert len(payloads(topic)) == 1
    log.close()


class Holder:
    def __init__(self):
        self.lock = threading.Lock()
        self.released = 0

    def release(self):
        self.released += 1


def test_least_recent_writer_closes_its_files():
    handles, many = OpenFiles(2), [Holder() for _ in range(4)]
    for holder in (*many[:2], many[0], *many[2:]):
        handles.touch(holder)
    assert [holder.released for holder in many] == [1, 1, 0, 0]


def test_no_files_are_closed_below_the_limit():
    handles, many = OpenFiles(5), [Holder() for _ in range(5)]
    for holder in many:
        handles.touch(holder)
    assert [holder.released for holder in many] == [0] * 5


def test_action_without_descriptors_is_repeated_once_the_other_holders_have_closed_their_files():
    handles, many = OpenFiles(5), [Holder() for _ in range(3)]
    for holder in many:
        handles.touch(holder)

    def open_files():
        if sum(holder.released for holder in many) < 2:
            raise OSError(errno.EMFILE, "Too many open files")
        return "opened"

    assert handles.retry_with_room(many[0], open_files) == "opened"
    assert [holder.released for holder in many] == [0, 1, 1]
    with pytest.raises(OSError, match="disk"):
        handles.retry_with_room(many[0], lambda: (_ for _ in ()).throw(OSError(errno.EIO, "disk")))


def test_append_without_descriptors_is_refused_with_the_name_of_the_limit():
    error = write_error(OSError(errno.EMFILE, "Too many open files"))
    assert isinstance(error, LogFull)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert str(error) == f"no file descriptor is free: RLIMIT_NOFILE (ulimit -n, LimitNOFILE) is {limit}; try again"


def test_topics_share_a_quarter_of_the_descriptors(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 256))
    handles, many = OpenFiles(), [Holder() for _ in range(17)]
    for holder in many:
        handles.touch(holder)
    assert [holder.released for holder in many] == [1] + [0] * 16


def test_a_thousand_topics_keep_their_files_open(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (65_536, 65_536))
    handles, many = OpenFiles(), [Holder() for _ in range(1000)]
    for holder in many:
        handles.touch(holder)
    assert not any(holder.released for holder in many)


def test_holder_is_forgotten_before_its_lock_is_released():
    handles = OpenFiles(1)

    holder = Holder()
    # Another thread opens the files again as soon as the lock is free.
    holder.lock = SimpleNamespace(acquire=lambda blocking: True, release=lambda: handles.touch(holder))
    handles.touch(holder)
    handles.touch(Holder())
    assert id(holder) in handles._holders, "open files are tracked"


def test_active_writer_retains_its_files():
    handles, many = OpenFiles(1), [Holder() for _ in range(3)]
    with many[0].lock:
        handles.touch(many[0])
        handles.touch(many[1])
        assert many[0].released == 0
    handles.touch(many[2])
    assert [holder.released for holder in many] == [1, 1, 0]


def test_many_topics_have_few_open_files(tmp_path):
    log = Log(tmp_path, max_topics=2000, fs=UNSYNCED)
    log._shared.handles._limit = 20
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(2):
        for number in range(60):
            fill(log.topic(f"t{number}", create=True), [b"%d" % number])
    assert len(os.listdir("/proc/self/fd")) - before <= 4 * 20 + 5
    assert payloads(log.topic("t0")) == [b"0", b"0"]
    log.close()
