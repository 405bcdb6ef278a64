"""Keys that take effect at a reload."""

from __future__ import annotations

import pytest

from penstock.config import PipelineConfig, Settings
from penstock.config.reloadable import AT_START, FOLLOWED, differing, in_force, restart_reason

TOKEN = {"token": "0123456789abcdef", "read": ["*"]}


def test_keys_read_at_the_start_stay_and_are_named() -> None:
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


def test_settings_that_a_running_pipeline_follows_are_reloaded() -> None:
    typed = {"click": {"columns": {"path": "string"}}}
    pipeline = {"retention": {"event": "30d"}, "merge_files_every": "1m", "typed": typed}
    new = Settings.model_validate({"pipeline": {**pipeline, "target_lag": "2s"}})
    effective, waiting = in_force(Settings(), new)
    assert waiting == ["pipeline.target_lag"]
    assert [*differing(Settings(), effective)] == [
        "pipeline.merge_files_every",
        "pipeline.retention.event",
        "pipeline.typed.click",
    ]
    assert in_force(new, Settings())[0].pipeline.retention == {}


def test_each_key_of_the_pipeline_is_followed_or_has_a_restart_reason() -> None:
    with_reason = {key.partition(".")[2] for key in AT_START if key.startswith("pipeline.")}
    assert with_reason | {*FOLLOWED} == PipelineConfig.model_fields.keys()
    assert not with_reason & {*FOLLOWED}


def test_differing_names_keys_inside_mappings() -> None:
    old = Settings.model_validate({"topic": {"a": {"stale_after": "1d"}, "b": {}}})
    new = Settings.model_validate({"topic": {"a": {"stale_after": "2d"}, "c": {}}, "shutdown_time": "9s"})
    assert list(differing(old, new)) == ["shutdown_time", "topic.a.stale_after", "topic.b", "topic.c"]


def test_differing_skips_listeners() -> None:
    new = Settings.model_validate({"listener": [{"name": "a", "protocol": "udp"}]})
    effective, waiting = in_force(Settings(), new)
    assert (effective.listener, waiting, list(differing(Settings(), effective))) == (new.listener, [], [])


def test_first_token_waits_for_a_restart() -> None:
    none, entry = Settings(), Settings.model_validate({"security": {"tokens": {"a": TOKEN}}})
    second = Settings.model_validate({"security": {"tokens": {"b": TOKEN}}})
    assert in_force(entry, second) == (second, [])
    assert in_force(none, entry) == (none, ["security.tokens.a"])
    assert in_force(entry, none) == (entry, ["security.tokens.a"])


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("log.http", "ports"),
        ("buffer.slots", "no process reads"),
        ("pipeline.spark.master", "Spark's session"),
        ("pipeline.topics", "source"),
        ("security.tokens", "first"),
    ],
)
def test_restart_reason_of_a_key_is_the_reason_of_its_group(key: str, reason: str) -> None:
    assert reason in restart_reason(key)
