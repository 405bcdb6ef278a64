"""What is wrong with a configuration, in its own words: who said it, which key, what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel

from penstock.config.keys.handlers import BUILT_IN
from penstock.config.keys.secrets import MASK, is_secret
from penstock.config.keys.tree import Settings
from penstock.config.nearest_name import nearest
from penstock.config.sources import ENVIRONMENT_PREFIX, INHERITED, Given
from penstock.config.toml_lines import place

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
"""Pydantic's types of errors, in words."""
SEVERAL = "is a text, a number, true or false"
"""What is said where none of several types fits."""


def complaints(given: Given, errors: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each bad key, of pydantic's ``errors``."""
    found: dict[str, list[str]] = {}
    for error in errors:
        where = list(error["loc"])
        path = _inside(given.tree, [part for at, part in enumerate(where) if not _is_tag(where, at)], error["type"])
        name, text = ".".join(_named(given.tree, path)), in_words(error, _keys(where[:-1]))
        key, path = (name, path) if name else _named_in(text)
        found.setdefault(_said(given, key, path) + (f"{name}: " if name else ""), []).append(text)
    return [start + (texts[0] if len(texts) == 1 else SEVERAL) for start, texts in found.items()]


def _is_tag(where: Sequence[str | int], at: int) -> bool:
    """Whether a part of a location only says which type of handler it was taken for."""
    return at > 1 and where[at - 2] == "handlers" and isinstance(where[at - 1], int)


def _inside(tree: Any, where: list[str | int], kind: str) -> list[str | int]:
    """``where`` without what pydantic adds to say as which of several types it took a value."""
    for depth, part in enumerate(where):
        try:
            tree = tree[part]
        except (KeyError, IndexError, TypeError):
            return where if kind == "missing" else where[:depth]
    return where


def _named(tree: Any, where: Sequence[str | int]) -> list[str]:
    """The location with listeners by name instead of by number."""
    names = []
    for part in where:
        tree = tree[part] if isinstance(tree, list) and isinstance(part, int) else (tree or {}).get(part)
        names.append(str(tree.get("name", part)) if isinstance(part, int) and isinstance(tree, dict) else str(part))
    return names


def _named_in(text: str) -> tuple[str, list[str | int]]:
    """The key that a complaint about the whole begins with."""
    key = text.partition(":")[0]
    return key, list(key.split("."))


def in_words(error: Mapping[str, Any], known: Sequence[str] = ()) -> str:
    """What one of pydantic's ``errors`` says is wrong, without the value of what nobody should see.

    ``known``: the keys that there are.
    """
    kind, where = str(error["type"]), [str(part) for part in error["loc"]]
    if kind == "extra_forbidden":
        return f"unknown key{nearest(where[-1], known)}"
    if kind not in WORDS:
        return str(error["msg"]).removeprefix("Value error, ")
    shown = MASK if any(map(is_secret, where)) else repr(error["input"])
    return WORDS[kind].format(input=shown, **error.get("ctx", {}))


def _keys(where: Sequence[str | int]) -> list[str]:
    """The keys known at a location."""
    found: set[type[BaseModel]] = {Settings}
    for at, part in enumerate(where):
        if _is_tag(where, at):
            found = {BUILT_IN[str(part)]} if part in BUILT_IN else found
        elif not isinstance(part, int):
            inner = {m for g in found if part in g.model_fields for m in _models(g.model_fields[part].annotation)}
            found = inner or found
    return sorted({key for model in found for key in model.model_fields})


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The groups that values of a type can be or hold."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


def _said(given: Given, key: str, path: Sequence[str | int]) -> str:
    """Who gave ``key``: ``FILE:LINE: `` or the variable; "" for an option, which names it, and for a default."""
    origin = _origin(given, key)
    if origin.startswith(ENVIRONMENT_PREFIX):
        return f"{origin}: "
    if origin == INHERITED:
        path = _where_inherited(given.tree, path)
    return place(given.file, path) if origin in (given.file, INHERITED) else ""


def _origin(given: Given, key: str) -> str:
    """Who gave ``key``, or something in it, or else beside it."""
    parts = key.split(".")
    for depth in range(len(parts), 0, -1):
        group = ".".join(parts[:depth])
        for name, origin in given.origins.items():
            if f"{name}.".startswith(f"{group}."):
                return origin
    return ""


def _where_inherited(tree: Any, path: Sequence[str | int]) -> list[str | int]:
    """Where a listener's or topic's value stands that it did not give itself."""
    own = list(path[2:])
    if path[0] == "listener":
        return ["defaults", str(tree["listener"][path[1]].get("protocol")), *own]
    return ["log", "topic_defaults", *own]
