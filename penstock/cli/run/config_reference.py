"""The reference page of all configuration keys."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.config.explain import ExplainedKey, explain
from penstock.config.sources import IGNORED

EXAMPLES = (
    'listener.events-udp.handlers=[{type="log"}, {type="console"}, {type="discard"}, {type="kafka", '
    'default_topic="", producer={"bootstrap.servers"="127.0.0.1:9092"}, '
    'encryption={algorithm="AES", key="0123456789abcdef"}}]',
    'relay=[{name="central", topic="events", to="127.0.0.1:18845"}]',
    'export=[{name="warehouse", to="postgresql://penstock@db/shop"}]',
    'pipeline.typed.click.columns={path="string"}',
)
"""An example of each group that may be repeated."""
GROUPS = {
    "relay.central": "[[relay]]",
    "export.warehouse": "[[export]]",
    "pipeline.typed.click": "[pipeline.typed.click]",
    "pipeline.typed.click.columns.path": "[pipeline.typed.click.columns.path]",
    "listener.events-udp.handlers.0": '[[listener.handlers]] type = "log"',
    "listener.events-udp.handlers.1": '[[listener.handlers]] type = "console"',
    "listener.events-udp.handlers.2": '[[listener.handlers]] type = "discard"',
    "listener.events-udp.handlers.3": '[[listener.handlers]] type = "kafka"',
    "listener.events-udp.handlers.3.encryption": "[listener.handlers.encryption]",
    "listener.events-udp": "[[listener]]",
    "listener.events-udp.multiline": "[listener.multiline]",
    "listener.events-udp.defrag": "[listener.defrag]",
    "listener.events-udp.defrag.detect_holes": "[listener.defrag.detect_holes]",
}
"""Heading of a group, as the configuration file has it."""
REPEATED = ("listener.events-tcp.", "listener.syslog-")
"""Default listeners with the same keys as the first one, which alone is on the page."""
MAPPINGS = (".producer.", "pipeline.spark.")
"""Groups with the keys of another program, which are one row."""
INTRODUCTION = """# Configuration

`penstock config init` writes a complete, commented `penstock.toml` with all defaults.
`penstock config add listener --name web --protocol http --port 4318` adds a listener to it and keeps comments.
`penstock config check` reports each error, `penstock reload` applies the file to a running instance.

Settings come from one TOML file (`--config`, else `./penstock.toml`), then from variables such as
`PENSTOCK_LOG__HTTP=...`, then from options such as `-o log.http=...` and `-o listener.NAME.port=...`; a later source
replaces an earlier one. An unknown key or a bad value stops the start with an error that names it. Sizes are written as
`16MiB`, times as `10s`, `5m`, `6h`, `7d`; a number without a unit is bytes or seconds (`stale_after = 7` is 7 seconds).
`penstock config explain --changed` prints the keys that differ from their defaults, with their source.

**The first `[[listener]]` of a file replaces the four default listeners.** A start without any names the defaults it
uses; `penstock reload` asks for `--yes` before it closes a listener that received messages within the last hour.

`[defaults.udp]`, `[defaults.tcp]`, `[defaults.http]` and `[defaults.otlp_grpc]` have the keys of a listener, for all
listeners of that protocol; `[topic.NAME]` has those of `[log.topic_defaults]` for one topic, and
`[security.tokens.NAME]` has `token`, `read`, `write`, `cursor`, `admin`, `ledger`, `relay`, `host` and `monitor`: see
[security](security.md).

Accepted without effect, and named at the start: {ignored}."""


def reference_page() -> str:
    """Return the page as Markdown."""
    groups: dict[str, list[ExplainedKey]] = {}
    for key in explain(environment={}, overrides=EXAMPLES):
        if not key.name.startswith(REPEATED):
            group, _, name = _split(key.name)
            groups.setdefault(group, []).append(ExplainedKey(name, key.value, key.default, key.meaning, key.origin))
    ignored = "; ".join(f"`{key}` ({why})" for key, why in IGNORED.items())
    sections = [line for group, keys in groups.items() for line in _section(group, keys)]
    return "\n".join([INTRODUCTION.format(ignored=ignored), *sections, ""])


def _split(name: str) -> tuple[str, str, str]:
    """Return group and key of a name; a whole mapping is one key."""
    for mapping in MAPPINGS:
        if mapping in f"{name}.":
            name = name[: name.index(mapping) + len(mapping) - 1]
    return name.rpartition(".")


def _section(group: str, keys: Iterable[ExplainedKey]) -> list[str]:
    head = f"`{GROUPS.get(group, f'[{group}]')}`" if group else "General"
    rows = [f"| `{key.name}` | {f'`{key.default}`' if key.default else ''} | {key.meaning} |" for key in keys]
    return [f"\n## {head}\n", "| key | default | meaning |", "| --- | --- | --- |", *rows]
