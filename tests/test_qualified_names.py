"""Names of two parts: partitions of Kafka and sources of other hosts."""

from __future__ import annotations

import pytest

from penstock import qualified_names as names


def test_partition_name_is_split_into_its_parts() -> None:
    name = names.partition_name("events", 3)
    assert (name, names.is_partition(name)) == ("events/3", True)
    assert names.split_partition(name) == names.topic_and_partition(name) == ("events", 3)
    assert names.topic_of(name) == "events"


def test_topic_of_the_log_has_no_partition() -> None:
    assert names.partition_name("events", None) == names.topic_of("events") == "events"
    assert names.topic_and_partition("events") == ("events", None)
    assert not names.is_partition("events")
    with pytest.raises(ValueError, match="invalid literal"):
        names.split_partition("events")


def test_relayed_source_has_host_and_source() -> None:
    name = names.relayed_name("edge-1", "events-udp")
    assert (name, names.is_relayed(name)) == ("edge-1/events-udp", True)
    assert names.split_relayed(name) == ("edge-1", "events-udp")
    assert not names.is_relayed("events-udp")
