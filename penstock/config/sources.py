"""The raw settings of the file, the environment and the command line as one tree, with the source of each key."""

from __future__ import annotations

import copy
import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from penstock.config.default_listeners import Protocol, default_listener_tables
from penstock.config.nearest_name import nearest
from penstock.config.toml_lines import format_position
from penstock.config.units import ConfigError

DEFAULT_FILE = "penstock.toml"
ENVIRONMENT_PREFIX = "PENSTOCK_"
NOT_SETTINGS = {"PENSTOCK_SKIP_TUNING", "PENSTOCK_SUCCESSION"}
"""Variables with the prefix that processes read before the configuration, see ``process.tuning`` and
``supervise.succession``.
"""
FROM_DEFAULTS = "defaults"
"""Source of a key that a listener or topic inherits."""


IGNORED = {
    "log.topic_defaults.index_after_bytes": "slogd's; every batch is indexed",
    "topic.*.index_after_bytes": "slogd's; every batch is indexed",
}
"""Keys of other programs' files that are accepted without effect (``*`` matches any name), with the reason."""


@dataclass(slots=True)
class RawSettings:
    """The settings before validation, with the source of each key (dotted, listeners by name).

    ``file`` is the file that was read, or empty. ``ignored`` maps keys without effect to the reason; ``tree`` omits
    them. ``has_default_listeners``: no source names a listener.
    """

    tree: dict[str, Any]
    file: str = ""
    origins: dict[str, str] = field(default_factory=dict)
    ignored: dict[str, str] = field(default_factory=dict)
    has_default_listeners: bool = False


def gather_settings(
    file: Path | None = None, overrides: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> RawSettings:
    """Return all settings with inherited ones filled in. Raises ConfigError."""
    tree = _read_file(file)
    read = str(file or DEFAULT_FILE) if tree else ""
    raw = RawSettings(tree, read, dict.fromkeys(_leaf_names(tree), read))
    # Options may change a key of a default listener, so these exist before options are applied.
    raw.has_default_listeners = "listener" not in tree
    tree.setdefault("listener", default_listener_tables())
    _check_listener_names(tree["listener"], read)
    # Order: the file, then the environment, then options; a later source replaces an earlier one.
    for name, text in sorted((os.environ if environment is None else environment).items()):
        if name.startswith(ENVIRONMENT_PREFIX) and name not in NOT_SETTINGS:
            _set_key(raw, name[len(ENVIRONMENT_PREFIX) :].lower().split("__"), _parse_value(text), name)
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals:
            raise ConfigError(f"-o {override}: write it as key=value")
        _set_key(raw, key.strip().split("."), _parse_value(text.strip()), f"-o {key}")
    _check_listener_names(tree["listener"], "")  # a variable or option may have replaced the whole list
    raw.ignored = drop_ignored(tree)
    _apply_defaults(raw)
    return raw


def _leaf_names(tree: Any, prefix: str = "") -> Iterator[str]:
    """Yield the dotted names of all values in a tree, listeners by their names."""
    if isinstance(tree, list) and tree and all(isinstance(item, dict) for item in tree):
        tree = {str(item.get("name", number)): item for number, item in enumerate(tree)}
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from _leaf_names(value, f"{prefix}.{key}" if prefix else key)
    else:
        yield prefix


def _read_file(file: Path | None) -> dict[str, Any]:
    path = file or Path(DEFAULT_FILE)
    if file is None and not path.exists():
        return {}
    try:
        # TOML is UTF-8, also in a locale with another encoding. Editors of Windows begin it with a byte order mark.
        return tomllib.loads(path.read_text("utf-8-sig"))
    except OSError as error:
        advice = ": let the user of this process read it (chown, chmod)" if isinstance(error, PermissionError) else ""
        raise ConfigError(f"{path}: cannot be read: {error.strerror}{advice}") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: is not UTF-8: save the file with this encoding") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(_toml_error(path, str(error))) from None


def _toml_error(path: Path, error: str) -> str:
    """Return tomllib's error as ``FILE:LINE: problem``."""
    problem, _, place = error.removesuffix(")").partition(" (at line ")
    if not place:
        return f"{path}: {error}"
    number = int(place.partition(",")[0])
    if problem == "Cannot overwrite a value":
        problem = f"{_key(path, number)} is set twice: remove one of the lines"
    elif problem.startswith("Cannot declare"):
        # The written configuration has most tables, and documents show further keys below the same head.
        problem = f"{_key(path, number)} is there already: write its keys below the first one"
    return f"{path}:{number}: {problem}"


def _key(path: Path, number: int) -> str:
    """Return the key, or the head of the table, in a line of a file."""
    line = path.read_text("utf-8-sig").split("\n")[number - 1]
    try:
        tomllib.loads(line)
    except tomllib.TOMLDecodeError:
        # Limit: a line that is not complete may end a value of several lines, which may be a secret.
        return "a key"
    return line.partition("=")[0].partition("#")[0].strip()


def _check_listener_names(listeners: object, file: str) -> None:
    if not isinstance(listeners, list) or not all(isinstance(item, dict) for item in listeners):
        raise ConfigError(f"{format_position(file, ['listener'])}listener: write each one as [[listener]]")


def _parse_value(text: str) -> Any:
    """Parse a value as TOML, or else as text, so that 16MiB needs no quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _set_key(raw: RawSettings, path: Sequence[str], value: Any, source: str) -> None:
    """Set the key at ``path``; listeners are addressed by name."""
    if list(path[:2]) in (["pipeline", "spark"], ["pipeline", "kafka"]):  # keys of Spark and Kafka contain dots
        path = [*path[:2], ".".join(path[2:])]
    node: Any = raw.tree
    names: list[str] = []
    for depth, part in enumerate(path[:-1]):
        node = _find_listener(node, part, source) if isinstance(node, list) else node.setdefault(part, {})
        names.append(str(node.get("name", part)) if depth == 1 and path[0] == "listener" else part)
        if not isinstance(node, dict | list):
            raise ConfigError(f"{source}: {'.'.join(path[: depth + 1])} is not a group")
    if isinstance(node, list):
        raise ConfigError(f"{source}: name a key of the listener, such as {'.'.join(path)}.port")
    node[path[-1]] = value
    raw.origins |= dict.fromkeys(_leaf_names(value, ".".join([*names, path[-1]])), source)


def _find_listener(listeners: list[Any], name: str, source: str) -> dict[str, Any]:
    names = [str(item.get("name")) for item in listeners]
    for item, candidate in zip(listeners, names, strict=True):
        # Names of variables cannot contain hyphens or dots.
        if name in (candidate, candidate.replace("-", "_").replace(".", "_")):
            table: dict[str, Any] = item
            return table
    raise ConfigError(f"{source}: there is no listener {name!r}{nearest(name, names)}")


def _apply_defaults(raw: RawSettings) -> None:
    """Fill missing keys of listeners from [defaults.PROTOCOL] and of topics from log.topic_defaults."""
    tree = raw.tree
    defaults = tree.pop("defaults", {})
    if not isinstance(defaults, dict) or not all(isinstance(values, dict) for values in defaults.values()):
        raise ConfigError("defaults: write it as [defaults.udp] and [defaults.tcp]")
    for key in defaults:
        if key not in get_args(Protocol):
            where = format_position(raw.file, ["defaults", key])
            raise ConfigError(f"{where}defaults.{key}: unknown key{nearest(key, list(get_args(Protocol)))}")
    for item in tree["listener"]:
        _fill_missing(raw, f"listener.{item.get('name')}", item, defaults.get(str(item.get("protocol")), {}))
    topic_defaults = tree.get("log", {}).get("topic_defaults", {}) if isinstance(tree.get("log"), dict) else {}
    for name, settings in tree["topic"].items() if isinstance(tree.get("topic"), dict) else ():
        _fill_missing(raw, f"topic.{name}", settings, topic_defaults)


def _fill_missing(raw: RawSettings, prefix: str, item: Any, defaults: Any) -> None:
    """Copy missing keys from ``defaults``, with the source of the default."""
    if not isinstance(item, dict) or not isinstance(defaults, dict):
        return
    for key, value in defaults.items():
        if key in item:
            _fill_missing(raw, f"{prefix}.{key}", item[key], value)
        else:
            item[key] = copy.deepcopy(value)
            raw.origins |= dict.fromkeys(_leaf_names(value, f"{prefix}.{key}"), FROM_DEFAULTS)


def drop_ignored(tree: dict[str, Any]) -> dict[str, str]:
    """Remove the ignored keys from the tree; return their names with the reasons."""
    return {name: reason for key, reason in IGNORED.items() for name in list(_drop_key(tree, key.split("."), ""))}


def _drop_key(node: Any, path: list[str], prefix: str) -> Iterator[str]:
    first, *rest = path
    for name in list(node) if isinstance(node, dict) and first == "*" else [first]:
        if not isinstance(node, dict) or name not in node:
            continue
        if rest:
            yield from _drop_key(node[name], rest, f"{prefix}{name}.")
        else:
            del node[name]
            yield prefix + name
