"""Error lines of a configuration: the source (file and line, or variable), the key, and the problem."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel

from penstock.config.keys.handlers import BUILT_IN
from penstock.config.keys.secrets import MASK, is_secret
from penstock.config.keys.tree import Settings
from penstock.config.nearest_name import nearest
from penstock.config.sources import ENVIRONMENT_PREFIX, FROM_DEFAULTS, RawSettings
from penstock.config.toml_lines import format_position

WORDS = {
    "int_type": "{input} is not a whole number",
    "int_parsing": "{input} is not a whole number",
    "int_parsing_size": "{input} is too large",
    "int_from_float": "{input} is not a whole number",
    "float_type": "{input} is not a number",
    "float_parsing": "{input} is not a number",
    "finite_number": "{input} is not a finite number",
    "bool_type": "{input} is neither true nor false",
    "bool_parsing": "{input} is neither true nor false",
    "string_type": "{input} is not a text",
    "path_type": "{input} is not a text",
    "string_pattern_mismatch": "{input} does not match {pattern}",
    "string_too_long": "{input} has more than {max_length} characters",
    "literal_error": "{input} is not {expected}",
    "greater_than": "{input} is not more than {gt}",
    "greater_than_equal": "{input} is less than {ge}",
    "less_than": "{input} is not less than {lt}",
    "less_than_equal": "{input} is more than {le}",
    "model_type": "is a group of keys, not {input}",
    "model_attributes_type": "is a group of keys, not {input}",
    "dict_type": "is a group of keys, not {input}",
    "tuple_type": "is a list, not {input}",
    "list_type": "is a list, not {input}",
    "missing": "is missing",
}
"""Pydantic's error types in the words of a configuration file."""
MIXED_TYPE = "is a text, a number, true or false"
"""Text for a key of several types of which none fits."""


def complaints(raw: RawSettings, errors: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line for each bad key of pydantic's ``errors``."""
    texts_of_key: dict[str, list[str]] = {}
    for error in errors:
        where = list(error["loc"])
        path = _strip_type_tags(
            raw.tree, [part for index, part in enumerate(where) if not _is_tag(where, index)], error["type"]
        )
        name, text = ".".join(_name_listeners(raw.tree, path)), in_words(error, _keys(where[:-1]))
        # Errors of a whole group have an empty location; their text starts with the key.
        key, path = (name, path) if name else _leading_key(text)
        texts_of_key.setdefault(_prefix(raw, key, path) + (f"{name}: " if name else ""), []).append(text)
    return [start + (texts[0] if len(texts) == 1 else MIXED_TYPE) for start, texts in texts_of_key.items()]


def _is_tag(where: Sequence[str | int], index: int) -> bool:
    """Report whether a part of a location is only the tag of a handler type."""
    return index > 1 and where[index - 2] == "handlers" and isinstance(where[index - 1], int)


def _strip_type_tags(tree: Any, where: list[str | int], kind: str) -> list[str | int]:
    """Return the location without the parts that pydantic adds for a member of a union."""
    for depth, part in enumerate(where):
        try:
            tree = tree[part]
        except (KeyError, IndexError, TypeError):
            return where if kind == "missing" else where[:depth]
    return where


def _name_listeners(tree: Any, where: Sequence[str | int]) -> list[str]:
    """Return the location with listeners by name instead of by number."""
    names = []
    for part in where:
        if isinstance(part, int):
            # A text may stand for a list of one.
            tree = tree[part] if isinstance(tree, list) else None
        else:
            tree = tree.get(part) if isinstance(tree, dict) else None
        names.append(str(tree.get("name", part)) if isinstance(part, int) and isinstance(tree, dict) else str(part))
    return names


def _leading_key(text: str) -> tuple[str, list[str | int]]:
    """Return the key at the start of an error about a group."""
    key = text.partition(":")[0]
    return key, list(key.split("."))


def in_words(error: Mapping[str, Any], existing_keys: Sequence[str] = ()) -> str:
    """Return the problem of one of pydantic's ``errors`` in words; secrets are masked."""
    kind, where = str(error["type"]), [str(part) for part in error["loc"]]
    if kind == "extra_forbidden":
        return f"unknown key{nearest(where[-1], existing_keys)}"
    if kind not in WORDS:
        return str(error["msg"]).removeprefix("Value error, ")
    # A complaint is printed and logged, so the content of a secret key must not appear in it.
    shown = MASK if any(map(is_secret, where)) else repr(error["input"])
    return WORDS[kind].format(input=shown, **error.get("ctx", {}))


def _keys(where: Sequence[str | int]) -> list[str]:
    """Return the existing keys at a location."""
    models: set[type[BaseModel]] = {Settings}
    for index, part in enumerate(where):
        if _is_tag(where, index):
            models = {BUILT_IN[str(part)]} if part in BUILT_IN else models
        elif not isinstance(part, int):
            inner = {m for g in models if part in g.model_fields for m in _models(g.model_fields[part].annotation)}
            models = inner or models
    return sorted({key for model in models for key in model.model_fields})


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models that a type can be or contain."""
    # Unions and mappings contain the models of a key as type arguments.
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


def _prefix(raw: RawSettings, key: str, path: Sequence[str | int]) -> str:
    """Return the source of ``key``: ``FILE:LINE: `` or the variable; empty for an option, which names itself."""
    origin = _origin(raw, key)
    if origin.startswith(ENVIRONMENT_PREFIX):
        return f"{origin}: "
    if origin == FROM_DEFAULTS:
        path = _inherited_path(raw.tree, path)
    return format_position(raw.file, path) if origin in (raw.file, FROM_DEFAULTS) else ""


def _origin(raw: RawSettings, key: str) -> str:
    """Return the source of ``key``, or of a key inside it, or else of its group."""
    parts = key.split(".")
    for depth in range(len(parts), 0, -1):
        group = ".".join(parts[:depth])
        for name, origin in raw.origins.items():
            if f"{name}.".startswith(f"{group}."):
                return origin
    return ""


def _inherited_path(tree: Any, path: Sequence[str | int]) -> list[str | int]:
    """Return the location in the defaults from which a listener or topic inherits a key."""
    inner_path = list(path[2:])
    if path[0] == "listener":
        return ["defaults", str(tree["listener"][path[1]].get("protocol")), *inner_path]
    return ["log", "topic_defaults", *inner_path]
