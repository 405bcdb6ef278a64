"""A group that a Java client committed is resumed, with correctly terminated metadata."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from penstock.java.jars import KAFKA_BROKER, fetch_all
from penstock.java.runtime import find_java
from penstock.kafka.client.seekable_consumer import readable_metadata
from tests.kafka.kafka_helpers import Topics

SOURCE = Path(__file__).parents[1] / "JavaGroup.java"
DIRTY = "glibc.malloc.tcache_count=0:glibc.malloc.perturb=72"
"""Has the C library fill what it gives out: librdkafka's text does not end, and only here memory is clean."""
COMMITTED = [(18, ""), (18, "18,"), (12, "18,"), (15, "17,mine"), (9, "18"), (7, "other's")]
"""Offset and metadata of each partition, as plain and large-message clients commit them."""
FIRST = [18, 18, 18, 17, 9, 7]


def test_group_committed_by_java_is_resumed(topics: Topics) -> None:
    topic, group = topics.new(len(COMMITTED)), "of-java"
    topics.plain(topic, [b"%d" % number for number in range(20)], range(len(COMMITTED)))
    jars = os.pathsep.join(map(str, fetch_all(KAFKA_BROKER)))
    arguments = [str(part) for pair in COMMITTED for part in pair]
    java = [str(find_java().home / "bin" / "java"), "-Xmx128m", "-cp", jars, str(SOURCE)]
    subprocess.run([*java, topics.address, topic, group, *arguments], check=True, timeout=120)
    ours = [sys.executable, "-m", "tests.kafka.resumed_group", topics.address, topic, group, str(len(COMMITTED))]
    answer = subprocess.run(
        ours, env={**os.environ, "GLIBC_TUNABLES": DIRTY}, check=True, timeout=120, capture_output=True, text=True
    )
    resumed = json.loads(answer.stdout)
    assert [offset for _, offset in resumed["first"]] == FIRST
    assert [offset for offset, _ in resumed["committed"]] == FIRST
    assert resumed["committed"][0][1] is None
    texts = [text for _, text in resumed["committed"][3:]]
    assert all(text.startswith(prefix) for text, prefix in zip(texts, ["mine", "18", "other's"], strict=True))


class RawPartition:
    """A partition with raw metadata, as librdkafka returns it."""

    def __init__(self, raw: bytes | None) -> None:
        self._raw = raw

    @property
    def metadata(self) -> str | None:
        return None if self._raw is None else self._raw.decode()


@pytest.mark.parametrize(
    ("raw", "text"),
    [(None, None), (b"18,", "18,"), (b"18,\xb7\xb7", "18,"), (b"18,mine\xff", "18,mine"), (b"\xb7", "")],
)
def test_metadata_ends_before_bytes_that_are_no_text(raw: bytes | None, text: str | None) -> None:
    assert readable_metadata(RawPartition(raw)) == text  # type: ignore[arg-type]


def test_metadata_of_a_partition_is_unchanged() -> None:
    assert readable_metadata(TopicPartition("t", 0, 1, "18,é")) == "18,é"
