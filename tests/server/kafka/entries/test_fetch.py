from __future__ import annotations

import time

from penstock.records import body
from penstock.server.kafka.entries.fetch import CLOCK_SLACK_MS, _search_start
from penstock.server.kafka.records.creation_times import MAX_AHEAD_MS
from tests.server.running import Running


def test_search_by_time_skips_entries_that_are_too_old_to_match(endpoint: Running) -> None:
    topic = endpoint.log.topic("t", create=True)
    endpoint.api.topics.append(topic, body([b"a", b"b"]), "http").result(20)
    now, reader = int(time.time() * 1000), topic.reader()
    later = now + MAX_AHEAD_MS + CLOCK_SLACK_MS + 60_000
    assert (_search_start(reader, now), _search_start(reader, later)) == (0, 2)
