"""Keys that are accepted and have no effect."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config import ConfigError, ignored_keys, load

SLOGD = "[log.topic_defaults]\nindex_after_bytes = 4096\n[topic.events]\nindex_after_bytes = 1\nrotate_after = '1h'\n"


def test_slogds_keys_are_taken_and_named_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text(SLOGD)
    assert load(file, environment={}).topic["events"].rotate_after == 3600
    line = ignored_keys(file, environment={})
    assert "log.topic_defaults.index_after_bytes (" in line
    assert "topic.events.index_after_bytes (" in line
    assert "\n" not in line


def test_nothing_is_said_where_every_key_has_an_effect() -> None:
    assert ignored_keys(overrides=["topic.events.rotate_after=1h"], environment={}) == ""


def test_the_same_key_elsewhere_stops_the_start() -> None:
    with pytest.raises(ConfigError, match="index_after_bytes: unknown key"):
        load(overrides=["log.index_after_bytes=1"], environment={})


@pytest.mark.parametrize("wrong", ["topic=1", "log=1", "log.topic_defaults=1", "topic.events=1"])
def test_what_is_no_group_is_named_as_ever(wrong: str) -> None:
    with pytest.raises(ConfigError, match=wrong.partition("=")[0]):
        load(overrides=[wrong], environment={})
