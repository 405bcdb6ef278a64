"""The pool of committer threads."""

import threading

from penstock.log.commit.committer_threads import Committers


def test_scheduled_work_is_finished_before_the_pool_is_closed():
    finished = []
    pool = Committers(3)
    for n in range(100):
        pool.schedule(lambda n=n: bool(finished.append(n)))
    pool.close()
    assert sorted(finished) == list(range(100))


def test_slow_topic_does_not_delay_other_topics():
    pool = Committers(2)
    gate, passed = threading.Event(), threading.Event()
    pool.schedule(lambda: not gate.wait())
    pool.schedule(lambda: bool(passed.set()))
    assert passed.wait(5)
    gate.set()
    pool.close()


def test_unfinished_topic_is_scheduled_after_waiting_topics():
    finished, pool = [], Committers(1)
    ready, over, remaining = threading.Event(), threading.Event(), [3, 3]

    def work(topic):
        ready.wait(5)
        finished.append(topic)
        remaining[topic] -= 1
        if not any(remaining):
            over.set()
        return remaining[topic] > 0

    for topic in (0, 1):
        pool.schedule(lambda topic=topic: work(topic))
    ready.set()
    assert over.wait(5)
    pool.close()
    assert finished == [0, 1, 0, 1, 0, 1]


def test_thread_that_schedules_locally_runs_its_own_work():
    pool, names = Committers(1), dict[str, str]()

    def work(name):
        names[name] = threading.current_thread().name
        return False

    with pool.scheduling_locally() as scheduled:
        pool.schedule(lambda: work("mine"))
        pool.schedule(lambda: work("another"))
        scheduled.pop()()
        pool.schedule(lambda: work("left"))
        pool.hand_over(scheduled.pop())
        pool.schedule(lambda: work("forgotten"))
    pool.schedule(lambda: work("later"))
    pool.close()
    assert names.pop("mine") == threading.current_thread().name
    assert names == dict.fromkeys(("another", "left", "forgotten", "later"), "committer-0")
