"""Settings of a topic, and changes to them."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config import TopicConfig
from penstock.log import InvalidSetting, TopicSettings

VALUES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.text()))


def test_configuration_has_the_same_defaults():
    assert TopicSettings.from_config(TopicConfig()) == TopicSettings()


def test_change_replaces_the_named_settings():
    changed = TopicSettings().changed({"stale_after": 5, "readers": ["a"], "retention_policy": "keep"})
    assert (changed.stale_after, changed.readers, changed.retention_policy) == (5.0, ("a",), "keep")
    assert changed.changed({}) == changed
    assert changed.message_size_limit == TopicSettings().message_size_limit


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("stale_afer", 1),
        ("stale_after", -1),
        ("stale_after", "7d"),
        ("stale_after", float("nan")),
        ("rotate_after", True),
        ("retain_bytes", 1.5),
        ("durability", "safe"),
        ("compression", None),
        ("retention_policy", ["keep"]),
        ("readers", "anybody"),
        ("writers", [""]),
    ],
)
def test_bad_change_is_reported_with_its_key(key, value):
    with pytest.raises(InvalidSetting, match=f"^{key}: "):
        TopicSettings().changed({"segment_size_limit": 5, key: value})


@given(st.dictionaries(st.sampled_from([*TopicSettings().document(), "other"]), VALUES))
def test_random_changes_give_settings_or_a_clear_error(changes):
    allowed = {}
    for key, value in changes.items():
        with suppress(InvalidSetting):
            allowed |= TopicSettings().changed({key: value}) and {key: value}
    changed = TopicSettings().changed(allowed)
    assert TopicSettings().changed(changed.document()) == changed
    if allowed.keys() < changes.keys():
        with pytest.raises(InvalidSetting) as bad:
            TopicSettings().changed(changes)
        assert str(bad.value).split(":")[0] in changes.keys() - allowed.keys()
