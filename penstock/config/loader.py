"""Loading and validation of the settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from penstock.config.complaints import complaints
from penstock.config.keys.secrets import MASK, masked
from penstock.config.keys.tree import Settings
from penstock.config.sources import RawSettings, gather_settings
from penstock.config.units import ConfigError
from penstock.files.secret_files import unsafe_access


def load(
    file: Path | None = None, overrides: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> Settings:
    """Return the settings of ``file`` (default: ./penstock.toml, if it exists), the environment and ``overrides``.

    Raises ConfigError with a line for every unknown or bad key.
    """
    try:
        return validate(gather_settings(file, overrides, environment))
    except RecursionError:
        raise ConfigError("the configuration is nested too deeply") from None


def notices(
    settings: Settings,
    file: Path | None = None,
    overrides: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> list[str]:
    """Return the warnings of a start about its ``settings``: keys without effect, default listeners, a readable
    file with secrets.
    """
    raw = gather_settings(file, overrides, environment)
    lines = []
    if raw.ignored:
        lines.append(f"without effect: {', '.join(f'{key} ({reason})' for key, reason in raw.ignored.items())}")
    if raw.has_default_listeners:
        names = ", ".join(f"{listener.name} ({listener.host}:{listener.port})" for listener in settings.listener)
        source = raw.file or "the configuration"
        lines.append(f"{source} has no [[listener]]: the default listeners are used: {names}")
    if raw.file and (reason := _unsafe_secrets(Path(raw.file))):
        lines.append(f"{raw.file} holds secrets and {reason}")
    return lines


def _unsafe_secrets(file: Path) -> str:
    """Return why others can read the secrets in a configuration file; empty if they cannot, or if it has none.

    It does not stop the start, unlike an unsafe file that holds only a secret: a configuration is meant to be read.
    """
    try:
        settings_of_file = validate(gather_settings(file, (), {}))
    except ConfigError:
        return ""  # the file alone is incomplete: the environment or options complete it
    # A secret is printed as MASK, so MASK shows that the file has one.
    return unsafe_access(file.stat(), file) if MASK in str(masked(settings_of_file)) else ""


def validate(raw: RawSettings) -> Settings:
    """Validate the raw settings. Raises ConfigError with a line for every unknown or bad key."""
    try:
        return Settings.model_validate(raw.tree)
    except ValidationError as error:
        raise ConfigError("\n".join(complaints(raw, error.errors()))) from None
