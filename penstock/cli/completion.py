"""Shell completion: names of topics and keys, read from files without a request to the daemon."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from penstock.config import ConfigError

if TYPE_CHECKING:
    from penstock.config import Settings

VARIABLE = "_PENSTOCK_COMPLETE"
"""Variable that the shell's function sets (`penstock --install-completion`)."""
WORDS = ("_TYPER_COMPLETE_ARGS", "COMP_WORDS")
"""Variables with the typed line: of zsh and fish, of bash."""


def typed_words(environment: Mapping[str, str] = os.environ) -> list[str] | None:
    """Return the words after ``penstock`` of a line to complete; None if the shell completes nothing."""
    if VARIABLE not in environment:
        return None
    line = next((environment[name] for name in WORDS if name in environment), "")
    return line.split()[1:]


def topic_names(context: typer.Context, incomplete: str) -> list[str]:
    """Return the topics in the data directory that begin with ``incomplete``."""
    # Imports Arrow.
    from penstock.log import topic_state

    settings = _settings(context.params)
    if settings is None or not settings.topics.is_dir():
        return []
    folders = (path for path in settings.topics.iterdir() if path.is_dir() and not topic_state.is_deleted(path))
    return sorted(path.name for path in folders if path.name.startswith(incomplete) and path.name[0] != "_")


def key_names(context: typer.Context, incomplete: str) -> list[str]:
    """Return the configuration keys that begin with ``incomplete``."""
    # Imports pydantic, as below.
    from penstock.config.explain import keys_of

    settings = _settings(context.params)
    return [key.name for key in keys_of(settings) if key.name.startswith(incomplete)] if settings else []


def _settings(options: Mapping[str, Any]) -> Settings | None:
    """Return the configuration for the options typed so far; None if it is invalid."""
    from penstock.config import load

    config, overrides = options.get("config"), options.get("override") or ()
    try:
        return load(Path(config) if config else None, list(overrides))
    except ConfigError:
        return None
