"""Where values come from, and what stops the start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from penstock.config.keys.handlers import BUILT_IN
from penstock.config.keys.tree import Settings
from penstock.config.keys.values import ConfigError
from penstock.config.sources import Given, gather, nearest


def load(
    file: Path | None = None, overrides: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> Settings:
    """The settings of ``file`` (else ./penstock.toml where there is one), the environment and ``overrides``.

    Raises ConfigError naming every key that is unknown or bad.
    """
    try:
        return check(gather(file, overrides, environment))
    except RecursionError:
        raise ConfigError("the configuration is nested too deeply") from None


def ignored_keys(
    file: Path | None = None, overrides: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> str:
    """One line that names the keys given to ``load`` that have no effect; empty where there are none."""
    found = gather(file, overrides, environment).ignored
    return f"without effect: {', '.join(f'{key} ({why})' for key, why in found.items())}" if found else ""


def check(given: Given) -> Settings:
    """The settings of what was given. Raises ConfigError naming every key that is unknown or bad."""
    try:
        return Settings.model_validate(given.tree)
    except ValidationError as error:
        raise ConfigError("\n".join(_explain(given.tree, dict(e)) for e in error.errors())) from None


def _explain(tree: dict[str, Any], error: dict[str, Any]) -> str:
    where = list(error["loc"])
    name = ".".join(_named(tree, [part for at, part in enumerate(where) if not _is_tag(where, at)]))
    if error["type"] == "extra_forbidden":
        return f"{name}: unknown key{nearest(str(where[-1]), _keys(where[:-1]))}"
    if error["type"] == "missing":
        return f"{name}: is missing"
    message = str(error["msg"]).removeprefix("Value error, ")
    return f"{name}: {message}" if name else message


def _is_tag(where: Sequence[str | int], at: int) -> bool:
    """Whether a part of a location only says which type of handler it was taken for."""
    return at > 1 and where[at - 2] == "handlers" and isinstance(where[at - 1], int)


def _named(tree: Any, where: Sequence[str | int]) -> list[str]:
    """The location with listeners by name instead of by number."""
    names = []
    for part in where:
        tree = tree[part] if isinstance(tree, list) and isinstance(part, int) else (tree or {}).get(part)
        names.append(str(tree.get("name", part)) if isinstance(part, int) and isinstance(tree, dict) else str(part))
    return names


def _keys(where: Sequence[str | int]) -> list[str]:
    """The keys known at a location."""
    found: set[type[BaseModel]] = {Settings}
    for at, part in enumerate(where):
        if _is_tag(where, at):
            found = {BUILT_IN[str(part)]} if part in BUILT_IN else found
        elif not isinstance(part, int):
            inner = {m for g in found if part in g.model_fields for m in models(g.model_fields[part].annotation)}
            found = inner or found
    return sorted({key for model in found for key in model.model_fields})


def models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The groups that values of a type can be or hold."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from models(argument)
