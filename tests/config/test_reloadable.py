"""What of a new configuration comes into force at once."""

from __future__ import annotations

from penstock.config import Settings
from penstock.config.reloadable import differing, in_force

TOKEN = {"token": "0123456789abcdef", "read": ["*"]}


def test_what_is_read_at_the_start_alone_stays_and_is_named() -> None:
    new = Settings.model_validate(
        {
            "buffer": {"slots": 32},
            "log": {"http": "127.0.0.1:1", "max_topics": 5},
            "pipeline": {"target_lag": "2s", "spark": {"master": "local[9]", "a.b": "c"}},
        }
    )
    effective, waiting = in_force(Settings(), new)
    assert waiting == ["buffer.slots", "log.http", "pipeline.target_lag", "pipeline.spark.master", "pipeline.spark.a.b"]
    assert list(differing(Settings(), effective)) == ["log.max_topics"]
    assert effective.log.http == Settings().log.http


def test_what_differs_is_named_to_the_key_also_in_mappings() -> None:
    old = Settings.model_validate({"topic": {"a": {"stale_after": "1d"}, "b": {}}})
    new = Settings.model_validate({"topic": {"a": {"stale_after": "2d"}, "c": {}}, "shutdown_time": "9s"})
    assert list(differing(old, new)) == ["shutdown_time", "topic.a.stale_after", "topic.b", "topic.c"]


def test_listeners_are_not_named_by_key() -> None:
    new = Settings.model_validate({"listener": [{"name": "a", "protocol": "udp"}]})
    effective, waiting = in_force(Settings(), new)
    assert (effective.listener, waiting, list(differing(Settings(), effective))) == (new.listener, [], [])


def test_tokens_change_at_once_but_not_whether_there_are_any() -> None:
    none, one = Settings(), Settings.model_validate({"security": {"tokens": {"a": TOKEN}}})
    other = Settings.model_validate({"security": {"tokens": {"b": TOKEN}}})
    assert in_force(one, other) == (other, [])
    assert in_force(none, one) == (none, ["security.tokens.a"])
    assert in_force(one, none) == (one, ["security.tokens.a"])
