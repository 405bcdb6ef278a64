"""The pool of committing threads."""

import threading

from penstock.log.commit.committer_threads import Committers


def test_what_was_scheduled_is_done_before_the_pool_is_closed():
    done = []
    pool = Committers(3)
    for n in range(100):
        pool.schedule(lambda n=n: bool(done.append(n)))
    pool.close()
    assert sorted(done) == list(range(100))


def test_a_slow_one_does_not_hold_up_the_others():
    pool = Committers(2)
    gate, passed = threading.Event(), threading.Event()
    pool.schedule(lambda: not gate.wait())
    pool.schedule(lambda: bool(passed.set()))
    assert passed.wait(5)
    gate.set()
    pool.close()


def test_what_has_more_to_do_comes_again_but_behind_those_that_wait():
    done, pool = [], Committers(1)
    ready, over, left = threading.Event(), threading.Event(), [3, 3]

    def work(one):
        ready.wait(5)
        done.append(one)
        left[one] -= 1
        if not any(left):
            over.set()
        return left[one] > 0

    for one in (0, 1):
        pool.schedule(lambda one=one: work(one))
    ready.set()
    assert over.wait(5)
    pool.close()
    assert done == [0, 1, 0, 1, 0, 1]


def test_a_thread_keeps_what_it_schedules_one_at_a_time_where_it_says_so_and_leaves_the_others():
    pool, names = Committers(1), dict[str, str]()

    def work(name):
        names[name] = threading.current_thread().name
        return False

    with pool.scheduling_locally() as kept:
        pool.schedule(lambda: work("mine"))
        pool.schedule(lambda: work("another"))
        kept.pop()()
        pool.schedule(lambda: work("left"))
        pool.hand_over(kept.pop())
        pool.schedule(lambda: work("forgotten"))
    pool.schedule(lambda: work("later"))
    pool.close()
    assert names.pop("mine") == threading.current_thread().name
    assert names == dict.fromkeys(("another", "left", "forgotten", "later"), "committer-0")
