"""The pool of committing threads."""

import threading

from penstock.log.commit.committer_threads import Committers


def test_what_was_scheduled_is_done_before_the_pool_is_closed():
    done = []
    pool = Committers(3)
    for n in range(100):
        pool.schedule(lambda n=n: done.append(n))
    pool.close()
    assert sorted(done) == list(range(100))


def test_a_slow_one_does_not_hold_up_the_others():
    pool = Committers(2)
    gate, passed = threading.Event(), threading.Event()
    pool.schedule(gate.wait)
    pool.schedule(passed.set)
    assert passed.wait(5)
    gate.set()
    pool.close()
