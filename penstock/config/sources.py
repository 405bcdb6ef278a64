"""What the file, the environment and the command line say, as one tree, and which of them said what."""

from __future__ import annotations

import copy
import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from penstock.config.default_listeners import Protocol, default_listener_tables
from penstock.config.ignored import drop_ignored
from penstock.config.nearest_name import nearest
from penstock.config.toml_lines import place
from penstock.config.units import ConfigError

DEFAULT_FILE = "penstock.toml"
ENVIRONMENT_PREFIX = "PENSTOCK_"
NOT_SETTINGS = {"PENSTOCK_SKIP_TUNING"}
"""Variables with the prefix that processes read before the configuration, see ``process.tuning``."""
INHERITED = "defaults"
"""Who gave what a listener or topic takes from the defaults of all."""


@dataclass(slots=True)
class Given:
    """The values given, not yet checked, and for each key (dotted, listeners by name) who gave it.

    ``file`` is the one that was read, "" where none was. ``ignored``: keys that were given and have no effect, each
    with the reason; they are not in ``tree``.
    """

    tree: dict[str, Any]
    file: str = ""
    origins: dict[str, str] = field(default_factory=dict)
    ignored: dict[str, str] = field(default_factory=dict)


def gather(
    file: Path | None = None, overrides: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> Given:
    """All values given; what a listener or topic inherits is filled in. Raises ConfigError."""
    tree = _read_file(file)
    read = str(file or DEFAULT_FILE) if tree else ""
    given = Given(tree, read, dict.fromkeys(_leaves(tree), read))
    tree.setdefault("listener", default_listener_tables())
    _check_listener_names(tree["listener"], read)
    for name, text in sorted((os.environ if environment is None else environment).items()):
        if name.startswith(ENVIRONMENT_PREFIX) and name not in NOT_SETTINGS:
            _set(given, name[len(ENVIRONMENT_PREFIX) :].lower().split("__"), _value(text), name)
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals:
            raise ConfigError(f"-o {override}: write it as key=value")
        _set(given, key.strip().split("."), _value(text.strip()), f"-o {key}")
    _check_listener_names(tree["listener"], "")  # it may have been given as a whole
    given.ignored = drop_ignored(tree)
    _inherit(given)
    return given


def _leaves(tree: Any, prefix: str = "") -> Iterator[str]:
    """The dotted names of all values in a tree, listeners by their names."""
    if isinstance(tree, list) and tree and all(isinstance(item, dict) for item in tree):
        tree = {str(item.get("name", number)): item for number, item in enumerate(tree)}
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from _leaves(value, f"{prefix}.{key}" if prefix else key)
    else:
        yield prefix


def _read_file(file: Path | None) -> dict[str, Any]:
    path = file or Path(DEFAULT_FILE)
    if file is None and not path.exists():
        return {}
    try:
        return tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(_with_line(path, str(error))) from None


def _with_line(path: Path, error: str) -> str:
    """``error`` of tomllib as ``FILE:LINE: what is wrong``."""
    what, _, line = error.removesuffix(")").partition(" (at line ")
    return f"{path}:{line.partition(',')[0]}: {what}" if line else f"{path}: {error}"


def _check_listener_names(listeners: object, file: str) -> None:
    if not isinstance(listeners, list) or not all(isinstance(item, dict) for item in listeners):
        raise ConfigError(f"{place(file, ['listener'])}listener: write each one as [[listener]]")


def _value(text: str) -> Any:
    """A value as TOML reads it, else the text itself (so that 16MiB needs no quotes)."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _set(given: Given, path: Sequence[str], value: Any, said: str) -> None:
    """Set the key at ``path``; a listener is found by its name."""
    if list(path[:2]) in (["pipeline", "spark"], ["pipeline", "kafka"]):  # their own keys have dots
        path = [*path[:2], ".".join(path[2:])]
    node: Any = given.tree
    names: list[str] = []
    for depth, part in enumerate(path[:-1]):
        node = _listener(node, part, said) if isinstance(node, list) else node.setdefault(part, {})
        names.append(str(node.get("name", part)) if depth == 1 and path[0] == "listener" else part)
        if not isinstance(node, dict | list):
            raise ConfigError(f"{said}: {'.'.join(path[: depth + 1])} is not a group")
    if isinstance(node, list):
        raise ConfigError(f"{said}: name a key of the listener, such as {'.'.join(path)}.port")
    node[path[-1]] = value
    given.origins |= dict.fromkeys(_leaves(value, ".".join([*names, path[-1]])), said)


def _listener(listeners: list[Any], name: str, said: str) -> dict[str, Any]:
    names = [str(item.get("name")) for item in listeners]
    for item, known in zip(listeners, names, strict=True):
        if name in (known, known.replace("-", "_").replace(".", "_")):
            found: dict[str, Any] = item
            return found
    raise ConfigError(f"{said}: there is no listener {name!r}{nearest(name, names)}")


def _inherit(given: Given) -> None:
    """Fill what a listener leaves out from [defaults.PROTOCOL], a topic's from log.topic_defaults."""
    tree = given.tree
    defaults = tree.pop("defaults", {})
    if not isinstance(defaults, dict) or not all(isinstance(values, dict) for values in defaults.values()):
        raise ConfigError("defaults: write it as [defaults.udp] and [defaults.tcp]")
    for key in defaults:
        if key not in get_args(Protocol):
            where = place(given.file, ["defaults", key])
            raise ConfigError(f"{where}defaults.{key}: unknown key{nearest(key, list(get_args(Protocol)))}")
    for item in tree["listener"]:
        _fill(given, f"listener.{item.get('name')}", item, defaults.get(str(item.get("protocol")), {}))
    topic_defaults = tree.get("log", {}).get("topic_defaults", {}) if isinstance(tree.get("log"), dict) else {}
    for name, settings in tree["topic"].items() if isinstance(tree.get("topic"), dict) else ():
        _fill(given, f"topic.{name}", settings, topic_defaults)


def _fill(given: Given, prefix: str, item: Any, defaults: Any) -> None:
    """Put into ``item`` what it does not have of ``defaults``; it comes from where the default does."""
    if not isinstance(item, dict) or not isinstance(defaults, dict):
        return
    for key, value in defaults.items():
        if key in item:
            _fill(given, f"{prefix}.{key}", item[key], value)
        else:
            item[key] = copy.deepcopy(value)
            given.origins |= dict.fromkeys(_leaves(value, f"{prefix}.{key}"), INHERITED)
