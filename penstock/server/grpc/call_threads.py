"""The two threads that handle the events of the daemon's gRPC servers, in turn (``process.servers.call_queue``).

Commits of direct calls run on the same thread as soon as no more events are waiting, because waking another thread
costs as much as a small commit. If a commit takes long, a second thread takes over the events, and the committers get
the commits for a while.

In the log daemon the thread also reads and writes the sockets if grpc supports it (see ``process.tuning``). All servers
share one queue: grpc gives the sockets of the process to any thread that polls, and a thread that polls for another
server would have to wake the right one for each call.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from grpc._cython import cygrpc  # type: ignore[attr-defined]  # the stubs know public names

from penstock.log.commit.committer_threads import Committers, Work
from penstock.process.servers.call_queue import CallQueue, handle

POLLS_BEFORE_COMMIT = 4
"""Polls without an event before a commit runs: a single poll may miss data that has already arrived."""
MAX_COMMIT_S, COMMITTERS_ONLY_S = 0.005, 1.0
"""Longest time that all calls wait for a commit on this thread; after a longer one, committers run them this long."""
_LOGGER = logging.getLogger(__name__)


class CallThreads:
    """Two threads, which start with the first server and end with the last one. Thread-safe."""

    def __init__(self, committers: Committers) -> None:
        self.queue = cygrpc.CompletionQueue()
        self._committers = committers
        self._servers: tuple[CallQueue, ...] = ()
        self._threads = [threading.Thread(target=self._run, name=f"grpc-{n}", daemon=True) for n in range(2)]
        self._leader, self._handover_lock, self._wake_standby = self._threads[0], threading.Lock(), threading.Event()
        self._commits_done, self._busy_since, self._slow_until = 0, 0.0, 0.0
        self._is_over = False

    def serve(self, server: CallQueue) -> None:
        """Handle the events of a server that has begun."""
        self._servers = (*self._servers, server)
        if len(self._servers) == 1:
            for thread in self._threads:
                thread.start()

    def wait_until_over(self, server: CallQueue, timeout_s: float) -> bool:
        """Wait until a stopped server has finished all calls, and for the threads after the last one; report whether
        the server has.
        """
        deadline = time.monotonic() + timeout_s
        if not server.wait_until_over(timeout_s):
            return False
        for thread in self._threads if all(server.is_over for server in self._servers) else ():
            thread.join(max(deadline - time.monotonic(), 0))
        return True

    def _run(self) -> None:
        while not self._is_over:
            if self._leader is threading.current_thread():
                with self._committers.scheduling_locally() as commits:
                    self._lead(commits)
            else:
                self._wait_to_take_over()

    def _lead(self, commits: list[Work]) -> None:
        """Handle events, and run waiting ``commits`` when there are none, until another thread takes over."""
        waiting_since = 0.0
        while self._leader is threading.current_thread() and not self._is_over:
            event = self._next_event(bool(commits))
            if event.completion_type != cygrpc.CompletionType.queue_timeout:
                handle(event)
            elif commits:
                self._commit(commits.pop())
            else:
                self._finish_drained()
            # Workaround: grpc spins while a reference to an event of a finished call is held during the next poll.
            event = None
            waiting_since = self._hand_over_if_slow(commits, waiting_since)

    def _finish_drained(self) -> None:
        for server in self._servers:
            server.finish_if_drained()
        if all(server.is_over for server in self._servers):
            self._is_over = True
            self._wake_standby.set()

    def _next_event(self, busy: bool) -> Any:
        """Return the next event; if ``busy``, only one that has already happened."""
        must_not_wait = busy or any(server.is_draining for server in self._servers)
        for _ in range(POLLS_BEFORE_COMMIT if busy else 1):
            # No deadline: it would be by the wall clock, which may be set during the wait. 0 is always in the past.
            event = self.queue.poll(0.0 if must_not_wait else None)
            if event.completion_type != cygrpc.CompletionType.queue_timeout:
                break
        return event

    def _hand_over_if_slow(self, commits: list[Work], waiting_since: float) -> float:
        """Give a commit to the committers if it waits too long or they must run it; return since when one waits."""
        if not commits:
            return 0.0
        now = time.monotonic()
        if self._busy_since or now < self._slow_until or now - (waiting_since or now) > MAX_COMMIT_S:
            self._committers.hand_over(commits.pop())
        return waiting_since or now

    def _commit(self, work: Work) -> None:
        self._busy_since = time.monotonic()
        if not self._wake_standby.is_set():
            self._wake_standby.set()
        has_more = False
        try:
            has_more = work()
        except Exception:
            _LOGGER.exception("a commit failed")
        with self._handover_lock:
            self._busy_since = 0.0
            self._commits_done += 1
        if has_more:
            self._committers.hand_over(work)

    def _wait_to_take_over(self) -> None:
        """Take over the events if a commit blocks the leader for too long; sleep while no commits run."""
        commits_before = self._commits_done
        self._wake_standby.wait()
        time.sleep(MAX_COMMIT_S)
        with self._handover_lock:
            now = time.monotonic()
            if self._busy_since and now - self._busy_since > MAX_COMMIT_S:
                self._leader, self._slow_until = threading.current_thread(), now + COMMITTERS_ONLY_S
            elif self._commits_done == commits_before and not self._busy_since and not self._is_over:
                self._wake_standby.clear()
        # Order: tested after the flag is cleared. A commit that began in between has not seen the cleared flag.
        if self._busy_since:
            self._wake_standby.set()
