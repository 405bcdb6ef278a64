"""The keys that locate the log daemon, read without the tree of settings, which is slow to import."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.config.sources import ENVIRONMENT_PREFIX, RawSettings, gather_settings
from penstock.config.syntax.tables_url import TablesPlace, check_place, is_url
from penstock.config.units import ConfigError, check_address

if TYPE_CHECKING:
    from penstock.config import Settings

TOKENS, TABLES = "security.tokens", "pipeline.tables"
ADDRESSES = ("log.grpc", "log.http")
OTHER_GROUPS = (
    *("alarms", "buffer", "console", "export", "listener", "otel"),
    *("pipeline", "relay", "shutdown_time", "sql", "topic", "transactions"),
)
"""Groups whose variables are not validated here: a command would spend four times as long on it as on its request."""
PATHS = ("data_dir", "security.tls_cert", "security.tls_key", "security.client_ca")


@dataclass(frozen=True, slots=True)
class LogKeys:
    """The keys of ``[log]``."""

    grpc: str = "127.0.0.1:8845"
    http: str = "127.0.0.1:8844"


@dataclass(frozen=True, slots=True)
class SecurityKeys:
    """The keys of ``[security]``; ``tokens`` only shows whether there are any."""

    tls_cert: Path | None = None
    tls_key: Path | None = None
    client_ca: Path | None = None
    tokens: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether each key is there that another one needs."""
        if self.tls_cert is None:
            return self.tls_key is None and self.client_ca is None
        return self.tls_key is not None


@dataclass(frozen=True, slots=True)
class DaemonKeys:
    """The keys that locate the daemon, with their defaults; ``load_all`` loads all settings.

    ``tables``: the key ``pipeline.tables``. ``has_unchecked_keys``: the file or variables may have other keys, which
    were not validated.
    """

    data_dir: Path = Path("penstock-data")
    log: LogKeys = LogKeys()
    security: SecurityKeys = SecurityKeys()
    tables: str = ""
    has_unchecked_keys: bool = False
    load_all: Callable[[], Settings] = field(default=lambda: _load(), compare=False, repr=False)

    @property
    def tables_place(self) -> TablesPlace:
        """The folder of the tables, or their URL."""
        if is_url(self.tables):  # has options, which are checked
            return self.load_all().tables
        return Path(self.tables) if self.tables else self.data_dir / "tables"


def daemon_keys(
    file: Path | None = None, overrides: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> DaemonKeys:
    """Return the keys as ``load`` reads them. Raises ConfigError.

    Other keys of the file, and variables of groups without these keys, are not validated: the daemon did so when it
    started.
    """
    load_all = partial(_load, file, overrides, environment)
    try:
        raw = gather_settings(file, overrides, environment)
        # Options about other keys, and variables of unknown groups, need full validation, so that a typo is an error.
        keys = None if _needs_all_keys(raw) else _extract(raw)
    except ConfigError:
        raise
    # Any doubt falls back to the full tree, which raises the error with the right words.
    except (ValueError, TypeError, AttributeError, RecursionError):
        keys = None
    return replace(keys or _from_settings(load_all()), load_all=load_all)


def _load(*arguments: Any) -> Settings:
    from penstock.config.loader import load  # here, because pydantic is slow to import

    return load(*arguments)


def _from_settings(settings: Settings) -> DaemonKeys:
    log, security = settings.log, settings.security
    paths = (security.tls_cert, security.tls_key, security.client_ca)
    return DaemonKeys(
        settings.data_dir,
        LogKeys(log.grpc, log.http),
        SecurityKeys(*paths, security.tokens),
        settings.pipeline.tables,
    )


def _needs_all_keys(raw: RawSettings) -> bool:
    """Report whether options or variables have keys that only the tree of settings can validate."""
    for name, origin in raw.origins.items():
        is_daemon_key = name in (*ADDRESSES, *PATHS, TABLES) or f"{name}.".startswith(f"{TOKENS}.")
        if origin != raw.file and not is_daemon_key and not _is_of_other_group(name, origin):
            return True
    return False


def _is_of_other_group(name: str, origin: str) -> bool:
    return origin.startswith(ENVIRONMENT_PREFIX) and name.partition(".")[0] in OTHER_GROUPS


def _extract(raw: RawSettings) -> DaemonKeys | None:
    groups: dict[str, dict[str, Any]] = {"": {}, "log": {}, "security": {}, "pipeline": {}}
    for name in (*ADDRESSES, *PATHS, TOKENS, TABLES):
        group, _, key = name.rpartition(".")
        node = raw.tree.get(group, {}) if group else raw.tree
        if key in node:
            groups[group][key] = _convert(name, node[key])
    security = SecurityKeys(**groups["security"])
    if not security.is_complete:
        return None
    return DaemonKeys(
        log=LogKeys(**groups["log"]),
        security=security,
        has_unchecked_keys=bool(raw.file) or any(_is_of_other_group(*origin) for origin in raw.origins.items()),
        **groups["pipeline"],
        **groups[""],
    )


def _convert(name: str, value: Any) -> Any:
    """Convert a key as the tree of settings would. Raises ValueError and TypeError for bad input."""
    if name == TOKENS:
        return dict(value)
    if not isinstance(value, str):
        raise TypeError(name)
    if name == "data_dir" and not value:
        raise ValueError(name)
    if name == TABLES:
        return check_place(value)
    return check_address(value) if name in ADDRESSES else Path(value)
