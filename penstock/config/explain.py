"""Every key with its value, its default, its meaning, and the source of its value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from penstock.config.keys.secrets import MASK, is_secret
from penstock.config.keys.tree import Settings
from penstock.config.loader import validate
from penstock.config.sources import gather_settings
from penstock.config.units import parse_size, parse_time

DEFAULT = "default"
BINARY = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
TIMES = (("d", 86400), ("h", 3600), ("m", 60))


@dataclass(frozen=True, slots=True)
class ExplainedKey:
    """A key: ``value`` and ``default`` in the notation of the file; ``origin``: default, a file, a variable or an
    option.
    """

    name: str
    value: str
    default: str
    meaning: str
    origin: str


def explain(
    file: Path | None = None, overrides: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> list[ExplainedKey]:
    """Return all keys in the order of the configuration. Raises ConfigError as ``load`` does."""
    raw = gather_settings(file, overrides, environment)
    return keys_of(validate(raw), raw.origins)


def keys_of(settings: Settings, origins: Mapping[str, str] | None = None) -> list[ExplainedKey]:
    """Return all keys of ``settings`` with masked secrets; ``origins`` maps keys to their sources."""
    sources = origins or {}
    return [
        ExplainedKey(
            name,
            _display(leaf, value, field),
            _default(field),
            field.description or "",
            sources.get(name, DEFAULT),
        )
        for name, leaf, value, field in _keys(settings, "")
    ]


def _display(leaf: str, value: Any, field: FieldInfo) -> str:
    # A number is not a secret, such as the limit max_open_per_token, and neither is the name of a file.
    secret = is_secret(leaf, field) and value not in (None, "", {}) and not isinstance(value, int | float | Path)
    return MASK if secret else format_value(value, field)


def _keys(group: BaseModel, prefix: str) -> Iterator[tuple[str, str, Any, FieldInfo]]:
    """Yield full name, own name, value and field of every key."""
    for name, field in type(group).model_fields.items():
        for inner, value in _named_groups(name, getattr(group, name)):
            if isinstance(value, BaseModel):
                yield from _keys(value, f"{prefix}{inner}.")
            else:
                yield prefix + inner, inner.removeprefix(f"{name}."), value, field


def _named_groups(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield a value, or the groups in it by their names."""
    if isinstance(value, tuple) and value and all(isinstance(item, BaseModel) for item in value):
        for number, item in enumerate(value):
            yield f"{name}.{getattr(item, 'name', None) or number}", item
    elif isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield f"{name}.{key}", item
    else:
        yield name, value


def format_value(value: Any, field: FieldInfo) -> str:
    """Return a value in the notation of the file: sizes and times with the largest unit that divides them."""
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
    return "" if isinstance(default, BaseModel) else format_value(default, field)
