"""The configuration: where values come from, and what stops the start."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from penstock.config import ConfigError, Settings, load, parse_size, parse_time, split_address


def test_default_has_four_listeners() -> None:
    listeners = load(environment={}).listener
    assert [(x.name, x.protocol, x.port, x.codec, x.handlers[0].topic) for x in listeners] == [
        ("events-udp", "udp", 23456, "plog", "events"),
        ("events-tcp", "tcp", 23456, "plog", "events"),
        ("syslog-udp", "udp", 5514, "syslog", "syslog"),
        ("syslog-tcp", "tcp", 5514, "syslog", "syslog"),
    ]


def test_option_wins_over_variable_and_variable_over_file(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text('[log]\nhttp = "127.0.0.1:1"\ngrpc = "127.0.0.1:2"\nmax_topics = 3\n')
    environment = {"PENSTOCK_LOG__HTTP": "127.0.0.1:11", "PENSTOCK_LOG__GRPC": "127.0.0.1:12"}
    log = load(file, ["log.http=127.0.0.1:21"], environment).log
    assert (log.http, log.grpc, log.max_topics) == ("127.0.0.1:21", "127.0.0.1:12", 3)


def test_option_and_variable_address_a_listener_by_name() -> None:
    settings = load(None, ["listener.events-tcp.max_line=2KiB"], {"PENSTOCK_LISTENER__EVENTS_UDP__PORT": "7"})
    assert (settings.listener[0].port, settings.listener[1].max_line) == (7, 2048)


def test_listener_inherits_the_defaults_of_its_protocol(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text(
        '[defaults.udp]\nso_rcvbuf = "1MiB"\n[defaults.udp.defrag]\nmax_size = "2MiB"\n'
        '[[listener]]\nname = "a"\nprotocol = "udp"\n[listener.defrag]\nexpire_time = "1s"\n'
        '[[listener]]\nname = "b"\nprotocol = "udp"\nso_rcvbuf = "3MiB"\n'
    )
    a, b = load(file, environment={}).listener
    assert (a.so_rcvbuf, a.defrag.max_size, a.defrag.expire_time) == (1 << 20, 2 << 20, 1.0)
    assert b.so_rcvbuf == 3 << 20


def test_topic_inherits_the_topic_defaults() -> None:
    overrides = ["log.topic_defaults.rotate_after=1h", "topic.events.segment_size_limit=1MiB"]
    topic = load(None, overrides, {}).topic["events"]
    assert (topic.rotate_after, topic.segment_size_limit) == (3600.0, 1 << 20)


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("log.htpp=127.0.0.1:1", "log.htpp: unknown key (did you mean 'http'?)"),
        ("pipelin.topics=x", "pipelin: unknown key (did you mean 'pipeline'?)"),
        ("listener.events-udp.prot=1", "listener.events-udp.prot: unknown key (did you mean 'port'?)"),
        ("listener.evnts-udp.port=1", "there is no listener 'evnts-udp' (did you mean 'events-udp'?)"),
        ("listener.events-udp.defrag.max_siz=1", "listener.events-udp.defrag.max_siz: unknown key (did you mean"),
        ("log.http=here", "log.http: 'here' is not an address"),
        ("buffer.term_length=65KiB", "term_length must be a power of two"),
        ("listener.events-udp.handlers=[{type='log', overflow='block'}]", "overflow = block is for tcp"),
        ("listener.events-udp.commands_from=['localhost']", "commands_from.0: 'localhost' does not appear to be"),
        ("listener.events-udp.handlers=[{type='log', topic='_x'}]", "'_x' is reserved for internal topics"),
        ("listener.events-udp.handlers=[{}, {}]", "two handlers of type 'log'"),
        ("listener.syslog-udp.timezone=Mars/Base", "'Mars/Base' is not a time zone such as Europe/Berlin"),
        ("listener.syslog-tcp.multiline={indented=true, begins='x'}", "indented and begins exclude each other"),
        ("listener.syslog-tcp.multiline.begins='('", "begins: "),
        ("listener.syslog-udp.multiline.indented=true", "multiline is for tcp and unix_stream listeners only"),
        ("listener.events-tcp.framing=nul", "the lines of codec plog end with LF"),
        ("listener.events-udp.name=grpc", "'grpc' is reserved in the balance"),
        ("log.http=http://127.0.0.1:1", "log.http: 'http://127.0.0.1:1' is not an address such as"),
        ("log.http=[::1:1", "log.http: '[::1:1' is not an address such as"),
        ("log.http=127.0.0.1:8845", "log.http: 127.0.0.1:8845 is the address of log.grpc: choose another port"),
        ("console.http=127.0.0.1:8844", "console.http: 127.0.0.1:8844 is the address of log.http: choose another port"),
        ("console.http=0.0.0.0:8845", "console.http: 0.0.0.0:8845 is the address of log.grpc: choose another port"),
        ("log.kafka=localhost:8844", "log.kafka: localhost:8844 is the address of log.http: choose another port"),
        ("pipeline.schemas.click='a BANANA'", "pipeline.schemas.click: 'a BANANA': 'BANANA' is not a type such as"),
        ("data_dir=''", "data_dir: is empty: name a folder"),
        ("relay=[{name='r', topic='*', to='central:1'}]", "relay.r.topic.0: '*' does not match"),
        ("nonsense", "write it as key=value"),
    ],
)
def test_bad_key_or_value_is_named(override: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, [override], {})
    assert expected in str(caught.value)


def test_unknown_variable_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"log\.htp: unknown key"):
        load(environment={"PENSTOCK_LOG__HTP": "x"})


def test_file_that_is_not_toml_is_named(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text("log = [")
    with pytest.raises(ConfigError, match=r"p\.toml"):
        load(tmp_path / "p.toml", environment={})


def test_sizes_and_times_have_units() -> None:
    assert (parse_size("16MiB"), parse_size("4 KiB"), parse_size("7")) == (16 << 20, 4096, 7)
    assert (parse_time("250ms"), parse_time("6h"), parse_time("1.5m")) == (0.25, 21600.0, 90.0)
    assert split_address("127.0.0.1:80") == ("127.0.0.1", 80)


@given(st.text())
def test_arbitrary_text_is_a_size_or_a_value_error(text: str) -> None:
    for parse in (parse_size, parse_time):
        with contextlib.suppress(ValueError):
            assert float(parse(text)) >= 0  # type: ignore[arg-type]


@given(st.text(alphabet="abc.=[]{}'\"_0189\n", max_size=30))
def test_arbitrary_option_raises_only_config_errors(text: str) -> None:
    with contextlib.suppress(ConfigError):
        load(None, [text], {})


def test_kafka_server_is_off_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings().log.kafka == ""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"needs kio: pip install 'penstock-pipe\[kafka\]'"):
        Settings.model_validate({"log": {"kafka": "127.0.0.1:9092"}})


SHARED = {"name": "in", "protocol": "udp", "port": 9000, "receivers": 3}


def test_receivers_become_listeners_and_survive_a_dump() -> None:
    settings = Settings.model_validate({"listener": [SHARED]})
    assert [entry.name for entry in settings.listener] == ["in", "in-2", "in-3"]
    assert {entry.port for entry in settings.listener} == {9000}
    assert Settings.model_validate(settings.model_dump(mode="json")) == settings


@pytest.mark.parametrize(
    ("listeners", "expected"),
    [
        ([SHARED, {"name": "in-2", "protocol": "udp", "port": 1}], "two listeners have the name 'in-2'"),
        ([SHARED, SHARED], "two listeners have the name 'in'"),
        ([SHARED, SHARED | {"name": "other"}], "listeners 'in' and 'other' have the same port"),
        ([SHARED | {"protocol": "tcp"}], "receivers is for udp listeners"),
        ([SHARED | {"port": 0}], "receivers is for udp listeners with a port"),
        ([SHARED | {"name": "x" * 32}], "no room for their number"),
    ],
)
def test_invalid_receivers_are_refused(listeners: list[dict[str, Any]], expected: str) -> None:
    with pytest.raises(ValidationError, match=expected):
        Settings.model_validate({"listener": listeners})
