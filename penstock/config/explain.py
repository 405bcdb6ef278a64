"""Every key: its value in force, its default, what it means, and who gave the value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from penstock.config.keys.secrets import MASK, is_secret
from penstock.config.keys.tree import Settings
from penstock.config.loader import check
from penstock.config.sources import gather
from penstock.config.units import parse_size, parse_time

DEFAULT = "default"
BINARY = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
TIMES = (("d", 86400), ("h", 3600), ("m", 60))


@dataclass(frozen=True, slots=True)
class ExplainedKey:
    """One key. ``value`` and ``default`` as one writes them; ``origin``: default, a file, a variable or an option."""

    name: str
    value: str
    default: str
    meaning: str
    origin: str


def explain(
    file: Path | None = None, overrides: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> list[ExplainedKey]:
    """All keys in the order of the configuration. Raises ConfigError as ``load`` does."""
    given = gather(file, overrides, environment)
    return keys_of(check(given), given.origins)


def keys_of(settings: Settings, origins: Mapping[str, str] | None = None) -> list[ExplainedKey]:
    """All keys of ``settings``, secrets masked; ``origins``: who gave which."""
    given = origins or {}
    return [
        ExplainedKey(
            name, _shown(leaf, value, field), _default(field), field.description or "", given.get(name, DEFAULT)
        )
        for name, leaf, value, field in _keys(settings, "")
    ]


def _shown(leaf: str, value: Any, field: FieldInfo) -> str:
    secret = is_secret(leaf, field) and value not in (None, "", {})
    return MASK if secret else written(value, field)


def _keys(group: BaseModel, prefix: str) -> Iterator[tuple[str, str, Any, FieldInfo]]:
    """Full name, own name, value and field of every key."""
    for name, field in type(group).model_fields.items():
        for inner, value in _inside(name, getattr(group, name)):
            if isinstance(value, BaseModel):
                yield from _keys(value, f"{prefix}{inner}.")
            else:
                yield prefix + inner, inner.removeprefix(f"{name}."), value, field


def _inside(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """A value, or the groups in it by their names."""
    if isinstance(value, tuple) and value and all(isinstance(item, BaseModel) for item in value):
        for number, item in enumerate(value):
            yield f"{name}.{getattr(item, 'name', None) or number}", item
    elif isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield f"{name}.{key}", item
    else:
        yield name, value


def written(value: Any, field: FieldInfo) -> str:
    """A value as one writes it in the file: sizes and times with the largest unit that divides them."""
    parser = next((m.func for m in field.metadata if getattr(m, "func", None) in (parse_size, parse_time)), None)
    if isinstance(value, bool):
        return str(value).lower()
    if parser is None or not isinstance(value, int | float):
        return (
            ""
            if value is None or value == {}
            else ", ".join(map(str, value))
            if isinstance(value, tuple)
            else str(value)
        )
    return _in_units(value, BINARY, "") if parser is parse_size else _in_units(value, TIMES, "s")


def _in_units(value: float, units: Sequence[tuple[str, int]], plain: str) -> str:
    for unit, size in units:
        if value and value % size == 0:
            return f"{int(value // size)}{unit}"
    return f"{value:g}{plain}" if value != int(value) else f"{int(value)}{plain}"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return ""
    default = field.get_default(call_default_factory=True, validated_data={})
    return "" if isinstance(default, BaseModel) else written(default, field)
