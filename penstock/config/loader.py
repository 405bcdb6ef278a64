"""Loading and validation of the settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from penstock.config.complaints import complaints
from penstock.config.keys.tree import Settings
from penstock.config.sources import RawSettings, gather
from penstock.config.units import ConfigError


def load(
    file: Path | None = None, overrides: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> Settings:
    """Return the settings of ``file`` (default: ./penstock.toml, if it exists), the environment and ``overrides``.

    Raises ConfigError with a line for every unknown or bad key.
    """
    try:
        return check(gather(file, overrides, environment))
    except RecursionError:
        raise ConfigError("the configuration is nested too deeply") from None


def notices(
    settings: Settings,
    file: Path | None = None,
    overrides: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> list[str]:
    """Return what a start says about its ``settings``: keys without effect, and the default listeners."""
    raw = gather(file, overrides, environment)
    lines = []
    if raw.ignored:
        lines.append(f"without effect: {', '.join(f'{key} ({reason})' for key, reason in raw.ignored.items())}")
    if raw.has_default_listeners:
        names = ", ".join(f"{listener.name} ({listener.host}:{listener.port})" for listener in settings.listener)
        source = raw.file or "the configuration"
        lines.append(f"{source} has no [[listener]]: the default listeners are used: {names}")
    return lines


def check(raw: RawSettings) -> Settings:
    """Validate the raw settings. Raises ConfigError with a line for every unknown or bad key."""
    try:
        return Settings.model_validate(raw.tree)
    except ValidationError as error:
        raise ConfigError("\n".join(complaints(raw, error.errors()))) from None
