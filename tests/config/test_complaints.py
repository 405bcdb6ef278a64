"""Errors of a configuration name key and source in plain words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.config import ConfigError, Settings, load
from penstock.config.explain import keys_of

FILE = """# a comment
data_dir = "x"
topic.a.rotate_after = "never"
[log]
http = "nowhere"
htpp = [
  1,
]
[defaults.udp]
so_rcvbuf = "much"
[[listener]]
name = "a"
protocol = "udp"
handlers = [{type = "kafka", default_topic = "x", producer = {a = [1], "bootstrap.servers" = "x"}}]
[[listener]]
name = "b"
protocol = "sctp"
port = 99999
[[listener]]
name = "c"
[security.tokens.me]
token = 1234567
"""
SAID = """:5: log.http: 'nowhere' is not an address such as 127.0.0.1:8844
:6: log.htpp: unknown key (did you mean 'http'?)
:3: topic.a.rotate_after: 'never' is not a time such as 10s, 5m or 7d
:10: listener.a.so_rcvbuf: 'much' is not a size such as 16MiB
:14: listener.a.handlers.0.producer.a: is a text, a number, true or false
:17: listener.b.protocol: 'sctp' is not 'udp', 'tcp', 'http', 'otlp_grpc', 'unix_datagram' or 'unix_stream'
:18: listener.b.port: 99999 is more than 65535
:19: listener.c.protocol: is missing
:22: security.tokens.me.token: ******** is not a text"""


def messages(file: Path | None = None, *overrides: str, **variables: str) -> list[str]:
    """The lines that stop the start."""
    with pytest.raises(ConfigError) as error:
        load(file, overrides, variables)
    return str(error.value).splitlines()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "penstock.toml"


def test_errors_of_a_file_name_the_line(file: Path) -> None:
    file.write_text(FILE)
    assert messages(file) == [f"{file}{line}" for line in SAID.splitlines()]


def test_errors_of_a_variable_name_the_variable() -> None:
    listener = {"PENSTOCK_LISTENER__EVENTS_UDP__PORT": "many"}
    assert messages(**listener) == [
        "PENSTOCK_LISTENER__EVENTS_UDP__PORT: listener.events-udp.port: 'many' is not a whole number"
    ]
    assert messages(PENSTOCK_LOG__HTPP="x") == ["PENSTOCK_LOG__HTPP: log.htpp: unknown key (did you mean 'http'?)"]
    assert messages(PENSTOCK_LOG__HTTP="0.0.0.0:1")[0].startswith(
        "PENSTOCK_LOG__HTTP: log.http: 0.0.0.0:1 is not loopback"
    )


def test_errors_of_an_option_name_the_option() -> None:
    assert messages(None, "buffer.slots=x") == ["buffer.slots: 'x' is not a whole number"]


def test_error_names_the_source_that_wins(file: Path) -> None:
    file.write_text('[log]\nhttp = "127.0.0.1:1"\n')
    assert messages(file, PENSTOCK_LOG__HTTP="x")[0].startswith("PENSTOCK_LOG__HTTP: log.http: ")
    assert messages(file, "log.http=x", PENSTOCK_LOG__HTTP="y")[0].startswith("log.http: 'x'")


def test_missing_partner_key_names_the_line_of_the_group(file: Path) -> None:
    file.write_text('[console]\nhttp = "127.0.0.1:1"\n[security]\ntls_cert = "x"\n')
    assert messages(file) == [f"{file}:3: security: tls_cert and tls_key need each other"]


def test_invalid_toml_names_the_line(file: Path) -> None:
    file.write_text("[log]\nhttp = nowhere\n")
    assert messages(file) == [f"{file}:2: Invalid value"]
    file.write_text('[security]\ninsecure = true\ninsecure = "a secret"\n')
    assert messages(file) == [f"{file}:3: insecure is set twice: remove one of the lines"]
    file.write_text('[sql]\n[log]\n[sql]  # again\npostgres = "127.0.0.1:8847"\n')
    assert messages(file) == [f"{file}:3: [sql] is there already: write its keys below the first one"]
    # Lines with a part of a value.
    file.write_text('[security]\n[security] tokens = "a secret"\n')
    assert messages(file) == [f"{file}:2: a key is there already: write its keys below the first one"]
    file.write_text("a = 1\na = '''\na secret='''\n")
    assert messages(file) == [f"{file}:3: a key is set twice: remove one of the lines"]
    file.write_text("listener = 5\n")
    assert messages(file) == [f"{file}:1: listener: write each one as [[listener]]"]
    file.write_text("\n[defaults.ucp]\nport = 1\n")
    assert messages(file) == [f"{file}:2: defaults.ucp: unknown key (did you mean 'udp'?)"]
    assert messages(file.parent / "none") == [f"{file.parent / 'none'}: cannot be read: No such file or directory"]


def test_byte_order_mark_is_ignored(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbfdata_dir = 5\n")
    assert messages(file) == [f"{file}:1: data_dir: 5 is not a text"]


@pytest.mark.parametrize("value", ["[[]]", "{ a = { b = 1 } }", "true", "-1e400", "'\\\\'", "1979-05-27"])
def test_messages_never_use_pydantics_words(value: str) -> None:
    for key in keys_of(Settings()):
        if not key.name.startswith("listener."):
            with pytest.raises(ConfigError) as error:  # one is wrong in any case
                load(None, ["buffer.slots=x", f"{key.name}={value}"], {})
            assert not re.search(r"[Ii]nput|valid |[Vv]alue error|Field|instance|parse", str(error.value))
            assert all(": " in line for line in str(error.value).splitlines())
