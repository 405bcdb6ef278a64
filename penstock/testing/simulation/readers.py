"""Readers: of the topics' folders, of streams, with cursors, and the pipeline that lands rows and posts proofs."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Iterator

from penstock.counts import Counts, SourceBucket
from penstock.files.file_system import OS
from penstock.ledger.book.book_from_topics import gap_rows
from penstock.ledger.posts import BadPost, LandedPost, dump
from penstock.log import CorruptBatch, Topic, TopicReader
from penstock.log.store.batch_format import PREAMBLE
from penstock.log.store.segment_files import SegmentFiles, first_offsets, read_synced
from penstock.server.read_ahead.stream_pages import NewestBatches
from penstock.server.reading.entry_pages import DEFAULT_BUDGET, page_of, read_page
from penstock.server.reading.query import Query
from penstock.slogd.errors import ApiError
from penstock.testing.simulation.promises import Broken
from penstock.testing.simulation.senders import World

LANDED = "landed.message"
CURSOR = "reader"


class FolderReader:
    """Polls a topic's folder from its last offset on; every fourth time it reads an old range again."""

    def __init__(self, world: World, dice: random.Random, topic: str) -> None:
        self.name = f"reader of {topic}"
        self._world, self._dice, self._topic = world, dice, topic
        self._offset = 0
        self.reset()

    def reset(self) -> None:
        """Open the folder again, as after a power cut."""
        self._reader = TopicReader(self._world.machine.topics / self._topic)
        # A power cut may set the synced length back; the daemon's recovery finds it again in the rows. What is visible
        # before it stays.
        self._end = 0
        with contextlib.suppress(FileNotFoundError, CorruptBatch):
            self._end = self._reader.end
            self._check_gaps(self._reader)

    def step(self) -> None:
        """Read a few rows."""
        again = self._dice.random() < 0.25
        reader = TopicReader(self._reader.path) if again else self._reader
        begin = self._dice.randint(0, self._offset) if again else self._offset
        try:
            end = reader.end
            self._see_end(end, is_own=not again)
            batches = [stored.batch for stored in reader.read(begin, max_rows=self._dice.choice([1, 10, 1000]))]
        except FileNotFoundError:
            return
        except CorruptBatch as error:
            # Readers of the folder do not wait for the recovery after a power cut: what it repairs is not visible yet.
            if not self._world.promises.damages:
                raise Broken(f"{self.name}: corrupt without damage: {error}") from None
            return
        self.check_disk()
        self._check_gaps(reader)
        following = self._world.promises.see(self._topic, batches, self.name, begin, end, reader.gaps)
        if not again and following is not None:
            self._offset = following

    def _see_end(self, end: int, is_own: bool) -> None:
        if end < self._end:
            raise Broken(f"{self.name}: the end went back from {self._end} to {end}")
        if is_own:
            # While a publication hangs, a new reader may see its rows, which this one does not see until it ends.
            self._end = end

    def _check_gaps(self, reader: TopicReader) -> None:
        """Check gaps before the recovery too: a reader does not wait for it, and passes the rows for good."""
        corrupt = [gap for gap in reader.gaps() if gap.reason == "corrupt"]
        self._world.promises.check_gaps(self._topic, corrupt)

    def check_disk(self) -> None:
        """Check that visible rows are on the disk: a power cut must not take what was read. Raises Broken."""
        files, directory = self._world.machine.files, self._reader.path
        names = files.names(directory) if directory.exists() else []
        segments = [SegmentFiles(directory, first) for first in first_offsets(names)]
        for segment in segments:
            # Invariant: a sealed segment was synced as a whole before the next one began.
            length, _ = (read_synced(OS, segment) or (0, 0)) if segment is segments[-1] else (OS.size(segment.data), 0)
            # The schema message is the same in each segment, and a recovery writes it again.
            if not files.is_on_disk(segment.data, PREAMBLE.size, length):
                raise Broken(f"{self.name}: visible rows of {segment.data.name} are not on the disk")


class StreamReader:
    """Follows a topic as the API's streams do: newest batches from memory, others from the folder."""

    def __init__(self, world: World, topic: str) -> None:
        self.name = f"stream of {topic}"
        self._world, self._topic_name = world, topic
        self._query = Query(topic, offset=0)
        self._offset = 0
        self.reset()

    def reset(self) -> None:
        """Forget the connection to a daemon that has died."""
        self._life = 0
        self._pages: Iterator[None] = iter(())

    def step(self) -> None:
        """Take the next page; connect again to a daemon that was restarted."""
        daemon = self._world.daemon
        if not daemon.is_running:
            return
        if self._life != daemon.life:
            self._life = daemon.life
            self._pages = self._follow()
        next(self._pages, None)

    def _follow(self) -> Iterator[None]:
        api = self._world.daemon.api
        if self._topic_name not in api.topics.log.names():
            self._life = 0
            return
        topic = api.topics.log.topic(self._topic_name)
        reader = topic.reader()
        newest = NewestBatches()
        # The subscription ends with the daemon. A kill may leave the topic's lock taken, and an unsubscription after it
        # would wait forever.
        topic.subscribe(newest.add)
        while True:
            self._read_page(topic, reader, newest)
            yield

    def _read_page(self, topic: Topic, reader: TopicReader, newest: NewestBatches) -> None:
        end = topic.writer.end
        if end is not None and end <= self._offset:
            return
        batches = newest.following(self._offset)
        if batches:
            page = page_of(batches, self._offset, self._query)
        else:
            page = read_page(topic, reader, self._offset, self._query.page, DEFAULT_BUDGET, self._query)
        self._world.promises.see(self._topic_name, page.batches, self.name, self._offset, page.next, reader.gaps)
        self._offset = page.next


class CursorReader:
    """Moves a cursor over what the folder reader has seen."""

    def __init__(self, world: World, dice: random.Random, topic: str) -> None:
        self.name = f"cursor of {topic}"
        self._world, self._dice, self._topic = world, dice, topic
        self._offset = 0

    def step(self) -> None:
        """Commit the cursor. Raises LogError, OSError."""
        rows, daemon = self._world.promises.rows[self._topic], self._world.daemon
        if not rows or not daemon.is_running:
            return
        self._offset = min(self._offset + self._dice.randint(1, 20), max(rows) + 1)
        cursors, key = self._world.promises.cursors, (self._topic, CURSOR)
        cursors[key] = (*cursors.get(key, (None,)), self._offset)
        daemon.log.topic(self._topic).cursors.commit(CURSOR, self._offset)
        cursors[key] = (self._offset,)


class Lander:
    """The pipeline: rows land in a table in memory, then their counts are posted, in the same order after a crash."""

    def __init__(self, world: World, topics: list[str]) -> None:
        self.name = "pipeline"
        self._world, self._topics = world, topics
        self.posts: dict[str, list[LandedPost]] = {topic: [] for topic in topics}
        self._posted = dict.fromkeys(topics, 0)

    @property
    def is_idle(self) -> bool:
        """Report whether all that has landed is posted."""
        return all(self._posted[topic] == len(posts) for topic, posts in self.posts.items())

    def step(self, topic: str) -> None:
        """Land and post what a topic has, or post again what the last attempt may not have posted.

        Raises LogError, OSError.
        """
        daemon, posts = self._world.daemon, self.posts[topic]
        if not daemon.is_running:
            return
        if self._posted[topic] == len(posts):
            self._land(topic)
        for post in posts[self._posted[topic] :]:
            try:
                daemon.ledger.post(json.loads(dump(post)))
            except BadPost:
                if not (self._world.promises.has_lies or topic in self._world.promises.shortened):
                    raise
                # Rows or books of this post are lost: the range is landed again as the log has it now.
                del posts[self._posted[topic] :]
                return
            self._posted[topic] += 1

    def _land(self, topic: str) -> None:
        posts = self.posts[topic]
        begin = posts[-1].through if posts else 0
        reader = TopicReader(self._world.machine.topics / topic)
        try:
            end = reader.end
            if end <= begin:
                return
            counts: dict[SourceBucket, Counts] = {}
            with contextlib.suppress(ApiError):
                for key, rows in reader.rows_by_origin(begin, end).items():
                    counts.setdefault(key, Counts())[LANDED] += rows
            for gap in reader.gaps():
                for key, rows in gap_rows(gap, max(begin, gap.begin), min(end, gap.end)).items():
                    counts.setdefault(key, Counts())[f"gap.{gap.reason}"] += rows
        except (FileNotFoundError, CorruptBatch):
            return
        posts.append(LandedPost(topic, len(posts) + 1, end, counts))
