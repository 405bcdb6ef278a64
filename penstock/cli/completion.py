"""What the shell offers where one presses Tab: names of topics and keys, as the files have them; nobody is asked."""

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
"""Set by the shell's function (`penstock --install-completion`)."""
WORDS = ("_TYPER_COMPLETE_ARGS", "COMP_WORDS")
"""What has been typed so far: as zsh and fish have it, as bash does."""


def typed_words(environment: Mapping[str, str] = os.environ) -> list[str] | None:
    """The words after ``penstock`` of a line that is to be completed; None where none is."""
    if VARIABLE not in environment:
        return None
    line = next((environment[name] for name in WORDS if name in environment), "")
    return line.split()[1:]


def topic_names(context: typer.Context, incomplete: str) -> list[str]:
    """The topics in the data directory."""
    from penstock.log import topic_state  # brings Arrow

    settings = _settings(context.params)
    if settings is None or not settings.topics.is_dir():
        return []
    folders = (path for path in settings.topics.iterdir() if path.is_dir() and not topic_state.is_deleted(path))
    return sorted(path.name for path in folders if path.name.startswith(incomplete) and path.name[0] != "_")


def key_names(context: typer.Context, incomplete: str) -> list[str]:
    """The keys of the configuration."""
    from penstock.config.explain import keys_of  # brings pydantic, as below

    settings = _settings(context.params)
    return [key.name for key in keys_of(settings) if key.name.startswith(incomplete)] if settings else []


def _settings(given: Mapping[str, Any]) -> Settings | None:
    """As the options typed so far say; None where they cannot be."""
    from penstock.config import load

    config, overrides = given.get("config"), given.get("override") or ()
    try:
        return load(Path(config) if config else None, list(overrides))
    except ConfigError:
        return None
