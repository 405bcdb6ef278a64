"""What files and the environment may hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config import ConfigError, Settings, load
from tests.fuzzed import DEEP

LINES = [
    "[[listener]]",
    'name = "a"',
    'protocol = "udp"',
    "port = 0",
    "[defaults.udp]",
    "listener = 1",
    "[listener]",
    "[topic.a]",
    "[log.topic_defaults]",
    "stale_after = 1",
    "topic_defaults = 3",
    "log = []",
    "defaults = 7",
    "topic = [1]",
    "[[listener.handlers]]",
    'type = "kafka"',
    'handlers = "x"',
]
TEXTS = (
    st.binary(max_size=100)
    | st.just(b"a = " + DEEP)
    | st.lists(st.sampled_from(LINES), max_size=8).map(lambda lines: "\n".join(lines).encode())
)


@given(TEXTS)
def test_a_file_of_any_bytes_is_a_configuration_or_a_config_error(
    tmp_path_factory: pytest.TempPathFactory, text: bytes
) -> None:
    path = tmp_path_factory.mktemp("etc") / "penstock.toml"
    path.write_bytes(text)
    try:
        assert isinstance(load(path, environment={}), Settings)
    except ConfigError as error:
        assert str(error)  # noqa: PT017 some texts are good


@given(st.sampled_from(["", "LISTENER__EVENTS_UDP__PORT", "LOG", "LISTENER", "DEFAULTS__UDP"]), st.text(max_size=30))
def test_any_value_of_the_environment_is_taken_or_a_config_error(key: str, text: str) -> None:
    try:
        assert isinstance(load(environment={f"PENSTOCK_{key}": text}), Settings)
    except ConfigError as error:
        assert str(error)  # noqa: PT017 some texts are good


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("listener=7", "listener: write each one as"),
        ("listener=[1]", "listener: write each one as"),
        ("defaults=7", "defaults: write it as"),
        ("defaults.udp=7", "defaults"),
    ],
)
def test_a_group_that_is_given_as_something_else_is_named(override: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        load(overrides=[override], environment={})
