"""Where values come from, and what stops the start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from penstock.config.complaints import complaints
from penstock.config.keys.tree import Settings
from penstock.config.sources import Given, gather
from penstock.config.units import ConfigError


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
        raise ConfigError("\n".join(complaints(given, error.errors()))) from None
