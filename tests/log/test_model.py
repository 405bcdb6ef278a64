"""All operations of a log in any order, on a file system that loses unsynced data at random power cuts."""

import itertools
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from penstock.log import (
    Limits,
    Log,
    LogError,
    ProducerSequence,
    TopicReader,
    TopicSettings,
)
from penstock.log.read.glance import glance
from penstock.log.store import (
    gaps,
)
from penstock.testing import CrashingFileSystem, FakeClock
from tests.log.log_helpers import origin, rows

NAMES = ["a", "b"]
SETTINGS = TopicSettings(segment_size_limit=2500, rotate_after=50, stale_after=100)
CHANGES = [
    {"compression": "zstd"},
    {"retention_policy": "keep"},
    {"retain_bytes": 6000},
    {"segment_size_limit": 1},
    {"stale_after": 10.0},
]
PRODUCER = "p"
topics = st.sampled_from(NAMES)


class Model(RuleBasedStateMachine):
    """The acknowledged rows by topic and offset, compared with the content of the log."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-model-"))
        self.fs = CrashingFileSystem(self.folder, 1)
        self.clock = FakeClock()
        self.numbers = itertools.count()
        self.stored: dict[str, dict[int, bytes]] = {name: {} for name in NAMES}
        self.ends = dict.fromkeys(NAMES, 0)
        self.cursors: dict[str, dict[str, int]] = {name: {} for name in NAMES}
        self.changed: dict[str, dict[str, object]] = {name: {} for name in NAMES}
        self.there: set[str] = set()
        self.sequences = dict.fromkeys(NAMES, 0)
        self.log = self.start()

    def start(self) -> Log:
        return Log(
            self.folder,
            SETTINGS,
            fs=self.fs,
            clock=self.clock,
            committers=1,
            transactions=Limits(timeout=30),
        )

    def values(self, count: int) -> list[bytes]:
        number = next(self.numbers)
        return [b"%d.%d" % (number, part) for part in range(count)]

    def attempt(self, work, unsure=None):
        """Return the result of ``work``, or None after a power cut and a restart."""
        try:
            return work()
        except (LogError, OSError) as error:
            if self.fs.stop_after is None or self.fs.stop_after >= 0:
                raise AssertionError("an error without a reason") from error
            self.power_cut(unsure or {})
            return None

    def power_cut(self, unsure) -> None:
        """Restart after a cut; each of the requests in flight, ``unsure`` (values by topic), is stored completely
        or not at all.
        """
        self.log.close()
        self.fs.crash()
        self.log = self.start()
        for name in self.log.names():
            seen = glance(self.folder / name)
            topic = self.log.topic(name)  # recovered
            assert seen is None or (seen.end, list(seen.gaps)) == (topic.end, topic.gaps()), "it was in order"
        stored = {name: self.rows(name) for name in unsure}
        complete = {name: set(values) <= set(stored[name].values()) for name, values in unsure.items()}
        assert len(set(complete.values())) <= 1, "a transaction is there in part"
        for name, values in unsure.items():
            assert complete[name] or not set(values) & set(stored[name].values()), "a request is there in part"
            if complete[name]:
                self.stored[name] |= {o: v for o, v in stored[name].items() if v in values}
        self.there = set(self.log.names())

    def rows(self, name: str) -> dict[int, bytes]:
        if not (self.folder / name).is_dir():
            return {}
        batches = [stored.batch for stored in TopicReader(self.folder / name).read(0)]
        return {
            offset: payload
            for batch in batches
            for offset, payload in zip(
                batch.column("offset").to_pylist(), batch.column("payload").to_pylist(), strict=True
            )
        }

    def acknowledge(self, name: str, values: list[bytes], first: int) -> None:
        self.there.add(name)
        self.stored[name] |= {first + k: value for k, value in enumerate(values)}

    @rule(after=st.integers(0, 60))
    def the_power_will_go(self, after):
        if self.fs.stop_after is None:  # it may have gone already, and nobody have noticed yet
            self.fs.stop_after = after

    @rule(name=topics, count=st.integers(1, 4))
    def append(self, name, count):
        values = self.values(count)
        counts = {"accepted": count}

        def work():
            return self.log.topic(name, create=True).append(rows(*values), origin(counts=counts)).result(10)

        answer = self.attempt(work, {name: values})
        if answer is not None:
            self.acknowledge(name, values, answer.first)

    @rule(name=topics, retries=st.booleans())
    def append_as_a_producer(self, name, retries):
        """Append, and send the same append again until it is answered."""
        values, producer = self.values(2), ProducerSequence(PRODUCER, self.sequences[name])

        def work():
            topic = self.log.topic(name, create=True)
            return topic.append(rows(*values), origin(counts={"accepted": 2}), producer=producer).result(10)

        answer = self.attempt(work, {name: values}) or self.attempt(work, {name: values})
        if answer is not None:
            self.acknowledge(name, values, answer.first)
            self.sequences[name] += 1
            if retries:
                second = self.attempt(work)
                assert second is None or second.first == answer.first

    @rule(parts=st.lists(st.tuples(topics, st.integers(1, 3)), min_size=1, max_size=4), end=st.sampled_from("ca-"))
    def transaction(self, parts, end):
        """Append to several topics, then commit, abort, or neither."""
        values = [(name, self.values(count)) for name, count in parts]
        together = {name: [v for n, vs in values if n == name for v in vs] for name, _ in values}
        transaction = self.attempt(self.log.transactions.begin)
        if transaction is None:
            return
        log = self.log
        for name, part in values:
            counts = {"accepted": len(part)}
            self.attempt(lambda n=name, p=part, c=counts: self.append_part(log, transaction, n, p, c))
        if self.log is not log or end == "-":
            return
        if end == "a":
            self.attempt(lambda: log.transactions.abort(transaction))
            return
        answers_by_topic = self.attempt(lambda: log.transactions.commit(transaction), together)
        for name, answers in (answers_by_topic or {}).items():
            parts_here = [part for n, part in values if n == name]
            for part, answer in zip(parts_here, answers, strict=True):
                self.acknowledge(name, part, answer.first)

    def append_part(self, log, transaction, name, part, counts) -> None:
        if self.log is log:
            log.transactions.append(transaction, name, rows(*part), origin(counts=counts))

    @rule(name=topics, data=st.data())
    def commit_a_cursor(self, name, data):
        if name not in self.there:
            return
        offset = data.draw(st.integers(0, self.ends[name]))

        def work():
            self.log.topic(name).cursors.commit("c", offset)
            return True

        before = self.cursors[name].get("c")
        committed = self.attempt(work)
        if committed:
            self.cursors[name]["c"] = offset
        elif name in self.there:
            now = self.log.topic(name).cursors.offsets().get("c")
            assert now in (before, offset)
            self.cursors[name] = {"c": now} if now is not None else {}

    @rule(name=topics, change=st.sampled_from(CHANGES))
    def configure(self, name, change):
        if name not in self.there:
            return
        before, after = dict(self.changed[name]), {**self.changed[name], **change}
        configured = self.attempt(lambda: self.log.configure(name, change))
        self.changed[name] = after
        if configured is None and name in self.there:
            now = self.log.topic(name).settings
            assert now in (SETTINGS.changed(before), SETTINGS.changed(after))
            self.changed[name] = after if now == SETTINGS.changed(after) else before

    @rule(name=topics)
    def delete(self, name):
        if name not in self.there:
            return

        def work():
            self.log.delete(name)
            return True

        deleted = self.attempt(work)
        if deleted or name not in self.there:
            self.there.discard(name)
            self.stored[name], self.cursors[name], self.changed[name] = {}, {}, {}
            self.sequences[name] += 5  # its numbers are forgotten: any is taken
        else:
            self.cursors[name] = self.log.topic(name).cursors.offsets()
            self.expire_rows(name)

    @rule(seconds=st.sampled_from([1, 20, 60, 150]))
    def sweep(self, seconds):
        self.clock.advance(seconds)
        try:
            self.log.sweep()
        except (LogError, OSError):
            self.power_cut({})
        if self.fs.stop_after is not None and self.fs.stop_after < 0:
            self.power_cut({})
        for name in self.there:
            self.expire_rows(name)

    def expire_rows(self, name) -> None:
        """Move expired rows to the gaps: they need not be stored any more."""
        lost = TopicReader(self.folder / name).gaps()
        assert all(gap.reason != "corrupt" for gap in lost)
        for gap in lost:
            for offset in range(gap.begin, gap.end):
                self.stored[name].pop(offset, None)

    @rule(name=topics)
    def compact(self, name):
        if name in self.there:
            self.attempt(lambda: self.log.topic(name).compact())

    @rule(name=topics)
    def verify(self, name):
        if name in self.there:
            assert not self.attempt(lambda: self.log.topic(name).verify())

    @rule()
    def restart(self):
        if self.fs.stop_after is None:
            self.log.close()
            self.log = self.start()

    @rule()
    def power_goes(self):
        self.fs.stop_after = 0
        with suppress(LogError, OSError):
            self.fs.sync_directory(self.folder)
        self.power_cut({})

    @invariant()
    def acknowledged_rows_are_stored_once(self):
        for name in NAMES:
            stored = self.rows(name)
            assert self.stored[name].items() <= stored.items()
            assert len(set(stored.values())) == len(stored)
            self.check_offsets(name, stored)

    def check_offsets(self, name, rows) -> None:
        if not (self.folder / name).is_dir():
            return
        reader = TopicReader(self.folder / name)
        end = reader.end
        assert end >= self.ends[name], "offsets are given again"
        self.ends[name] = end
        missing = [offset for gap in reader.gaps() for offset in range(gap.begin, gap.end)]
        assert sorted([*rows, *missing]) == list(range(end)), "each offset is a row or in one gap"
        remaining = sum(stored.origin.counts["accepted"] for stored in reader.whole_batches())
        dropped = sum(
            counts.get("accepted", 0)
            for gap in reader.gaps()
            for buckets in (gap.received or {}).values()
            for counts in buckets.values()
        )
        assert remaining + dropped == end, "the counts go with the rows"

    @invariant()
    def settings_and_cursors_are_stored(self):
        if self.fs.stop_after is not None:
            return
        assert set(self.log.names()) == self.there
        for name in self.there:
            topic = self.log.topic(name)
            assert topic.cursors.offsets() == self.cursors[name]
            assert topic.settings == SETTINGS.changed(self.changed[name])

    def teardown(self) -> None:
        self.log.close()
        shutil.rmtree(self.folder)


def run(examples: int, steps: int) -> None:
    with patch.object(gaps, "MIN_GAPS_SAVED", 1):
        run_state_machine_as_test(
            Model,
            settings=settings(
                max_examples=examples,
                stateful_step_count=steps,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )


def test_power_cuts_neither_lose_nor_repeat_acknowledged_rows():
    run(15, 25)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_many_power_cuts_neither_lose_nor_repeat_acknowledged_rows():
    run(600, 60)
