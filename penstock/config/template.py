"""A complete, commented configuration file, and the addition of a listener to an existing file.

The file lists every key with its meaning and its default, commented out. It contains the default listeners, because
the first ``[[listener]]`` of a file replaces them all.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from penstock.config.default_listeners import default_listener_tables
from penstock.config.explain import format_value
from penstock.config.keys.listeners import ListenerConfig
from penstock.config.keys.tree import Settings

WIDTH = 110
HEAD = """\
# Configuration of Penstock. A line that begins with # and a name is a key with its default: remove the # to change it.
# Keys without a default, such as files of TLS, have an example. Lines that begin with # and a space explain.
# `penstock config check` checks the file, `penstock reload` applies it to a running instance.
# Sizes are written as "16MiB", times as "10s", "5m", "6h" or "7d"; a number without a unit is bytes or seconds.
"""
ALL_KEYS = """\
# The other keys of a listener. [defaults.udp], [defaults.tcp], [defaults.http] and [defaults.otlp_grpc] have the same
# keys, for all listeners of that protocol. Brackets name the protocols or codecs for which a key has an effect.
# A handler of the type log appends messages to a topic; docs/listeners.md has the others: kafka, console, discard.
"""
SHOWN_KEYS = ("name", "protocol", "port", "codec", "handlers")
"""Keys of a listener that each [[listener]] of the file has."""
LISTENERS = """\
# Listeners. The first [[listener]] in this file replaces the default listeners, which are therefore written out here.
"""
EXAMPLES = """\
# Examples of further listeners.
#
# HTTP: OpenTelemetry (OTLP), Loki, Splunk HEC, Elasticsearch's _bulk and JSON, by the path of the request.
#[[listener]]
#name = "web"
#protocol = "http"
#port = 4318
#[[listener.handlers]]
#type = "log"
#topic = "web"
#
# OpenTelemetry over gRPC.
#[[listener]]
#name = "otlp"
#protocol = "otlp_grpc"
#port = 4317
#[[listener.handlers]]
#type = "log"
#topic = "otlp"
#
# Programs of this host that call syslog(3), without a syslog daemon.
#[[listener]]
#name = "host"
#protocol = "unix_datagram"
#path = "/dev/log"
#annotate_source = true
#[[listener.handlers]]
#type = "log"
#topic = "syslog"
#
# Syslog over TLS, from other machines (RFC 5425).
#[[listener]]
#name = "syslog-tls"
#protocol = "tcp"
#codec = "syslog"
#host = "0.0.0.0"
#port = 6514
#tls_cert = "tls/server.crt"
#tls_key = "tls/server.key"
#[[listener.handlers]]
#type = "log"
#topic = "syslog"
#
# The forward protocol of Fluent Bit and Fluentd, and GELF of Graylog's senders.
#[[listener]]
#name = "forward"
#protocol = "tcp"
#codec = "forward"
#port = 24224
#[[listener.handlers]]
#type = "log"
#topic = "forward"
#
#[[listener]]
#name = "gelf"
#protocol = "udp"
#codec = "gelf"
#port = 12201
#[[listener.handlers]]
#type = "log"
#topic = "gelf"
"""
FURTHER_GROUPS = """\
# A copy of topics in another Penstock. See docs/relay.md.
#[[relay]]
#name = "central"
#topic = ["events", "syslog"]
#to = "central.example.com:8845"
#token_file = "relay.token"
#tls_ca = "tls/ca.crt"

# A copy of a table in a database. See docs/exports.md.
#[[export]]
#name = "warehouse"
#source = "events"
#to = "postgresql://penstock@db.example.com/shop"
#password_file = "warehouse.password"

# A bearer token: who may read and write which topics. See docs/security.md.
#[security.tokens.shop]
#token = "choose-a-long-random-text"
#read = ["shop"]
#write = ["shop"]

# Settings of one topic; the keys are those of [log.topic_defaults].
#[topic.audit]
#retention_policy = "keep"
#stale_after = "365d"

# Retention of rows in the tables, by kind or type of event.
#[pipeline.retention]
#event = "400d"
#"event/click" = "30d"

# A table with columns from the field data of one type of event.
#[pipeline.typed.click.columns]
#path = "string"
"""


def template() -> str:
    """Return the complete file."""
    first, *following = (listener_block(**_arguments(listener)) for listener in default_listener_tables())
    head, handlers = first.split("[[listener.handlers]]")
    first = "\n".join([head, ALL_KEYS, *_group_lines(ListenerConfig, "listener"), f"[[listener.handlers]]{handlers}"])
    return "\n".join([HEAD, *_group_lines(Settings, ""), LISTENERS, first, *following, EXAMPLES, FURTHER_GROUPS])


def listener_block(name: str, protocol: str, port: int, host: str, codec: str, topic: str) -> str:
    """Return a ``[[listener]]`` whose messages go to ``topic``; empty texts mean the default."""
    keys = {"name": name, "protocol": protocol, "host": host, "port": port, "codec": codec}
    lines = [f"{key} = {json.dumps(value)}" for key, value in keys.items() if value != ""]
    return "\n".join(["[[listener]]", *lines, "[[listener.handlers]]", 'type = "log"', f'topic = "{topic}"', ""])


def with_listener(text: str, block: str) -> str:
    """Return the configuration ``text`` with one more listener; comments and all other lines stay.

    A text without any listener gets the default listeners too: otherwise the new one would replace them.
    """
    has_listeners = any(line.strip().replace(" ", "") == "[[listener]]" for line in text.splitlines())
    defaults = [] if has_listeners else [listener_block(**_arguments(table)) for table in default_listener_tables()]
    complete_lines = text if not text or text.endswith("\n") else f"{text}\n"
    return "\n".join([complete_lines, *defaults, block])


def _arguments(listener: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": listener["name"],
        "protocol": listener["protocol"],
        "port": listener["port"],
        "host": "",
        "codec": listener["codec"],
        "topic": listener["handlers"][0]["topic"],
    }


def _group_lines(group: type[BaseModel], name: str) -> Iterator[str]:
    """Yield the lines of a group and of the groups in it: keys first, as a table's keys end at the next header."""
    if name and group is not ListenerConfig:
        yield f"[{name}]"
    groups: list[tuple[str, type[BaseModel]]] = []
    for key, field in group.model_fields.items():
        if group is ListenerConfig and key in SHOWN_KEYS:
            continue
        default = None if field.is_required() else field.get_default(call_default_factory=True, validated_data={})
        if isinstance(default, BaseModel):
            groups.append((f"{name}.{key}" if name else key, type(default)))
        elif not _holds_groups(field):
            yield from _key_lines(key, default, field)
    yield ""
    for inner, model in groups:
        yield from _group_lines(model, inner)


def _holds_groups(field: FieldInfo) -> bool:
    """Report whether a key holds named or repeated groups, which are examples in the file."""
    return any(isinstance(part, type) and issubclass(part, BaseModel) for part in get_args(field.annotation))


def _key_lines(key: str, default: Any, field: FieldInfo) -> Iterator[str]:
    for line in textwrap.wrap(field.description or "", WIDTH):
        yield f"# {line}"
    yield f"#{key} = {NO_DEFAULT[key] if default is None else _literal(default, field)}"


NO_DEFAULT = {
    "tls_cert": '"tls/server.crt"',
    "tls_key": '"tls/server.key"',
    "client_ca": '"tls/ca.crt"',
    "salt_file": '"redaction.key"',
    "users": '"console.users"',
}
"""Examples of keys that have no default."""


def _literal(default: Any, field: FieldInfo) -> str:
    """Return a default as a TOML value."""
    if isinstance(default, Mapping):
        pairs = ", ".join(f"{name} = {json.dumps(entry)}" for name, entry in default.items())
        return f"{{ {pairs} }}" if pairs else "{}"
    if isinstance(default, tuple):
        return json.dumps(list(default))
    text = format_value(default, field)
    # Sizes and times have units, so they are texts in TOML although their defaults are numbers.
    is_plain = isinstance(default, bool | int | float) and re.fullmatch(r"true|false|[0-9.]+", text)
    return text if is_plain else json.dumps(text)
