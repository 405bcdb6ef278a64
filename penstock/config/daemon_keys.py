"""What says where the log daemon is and how to reach it, read without the tree of keys, which is slow to import."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.config.sources import Given, gather
from penstock.config.units import ConfigError, check_address

if TYPE_CHECKING:
    from penstock.config import Settings

TOKENS = "security.tokens"
ADDRESSES = ("log.grpc", "log.http")
PATHS = ("data_dir", "security.tls_cert", "security.tls_key", "security.client_ca")


@dataclass(frozen=True, slots=True)
class LogKeys:
    """The keys of ``[log]``."""

    grpc: str = "127.0.0.1:8845"
    http: str = "127.0.0.1:8844"


@dataclass(frozen=True, slots=True)
class SecurityKeys:
    """The keys of ``[security]``; of ``tokens`` only whether there are any."""

    tls_cert: Path | None = None
    tls_key: Path | None = None
    client_ca: Path | None = None
    tokens: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """Whether those that need each other are there."""
        if self.tls_cert is None:
            return self.tls_key is None and self.client_ca is None
        return self.tls_key is not None


@dataclass(frozen=True, slots=True)
class DaemonKeys:
    """The keys that say where the daemon is, with their defaults; ``whole`` gives all settings there are.

    ``unseen``: whether there are others in a file, which nobody has looked at.
    """

    data_dir: Path = Path("penstock-data")
    log: LogKeys = LogKeys()
    security: SecurityKeys = SecurityKeys()
    unseen: bool = False
    whole: Callable[[], Settings] = field(default=lambda: _loaded(), compare=False, repr=False)


def daemon_keys(
    file: Path | None = None, overrides: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> DaemonKeys:
    """The keys as ``load`` reads them. Raises ConfigError.

    What else stands in the file is not looked at: the daemon did, when it started.
    """
    whole = partial(_loaded, file, overrides, environment)
    try:
        given = gather(file, overrides, environment)
        found = _keys(given) if _only_these_besides_the_file(given) else None
    except ConfigError:
        raise
    except (ValueError, TypeError, AttributeError, RecursionError):
        found = None
    return replace(found or _keys_of(whole()), whole=whole)


def _loaded(*given: Any) -> Settings:
    from penstock.config.loader import load  # brings pydantic

    return load(*given)


def _keys_of(settings: Settings) -> DaemonKeys:
    log, security = settings.log, settings.security
    paths = (security.tls_cert, security.tls_key, security.client_ca)
    return DaemonKeys(settings.data_dir, LogKeys(log.grpc, log.http), SecurityKeys(*paths, security.tokens))


def _only_these_besides_the_file(given: Given) -> bool:
    names = {name for name, origin in given.origins.items() if origin != given.file}
    return all(name in (*ADDRESSES, *PATHS) or f"{name}.".startswith(f"{TOKENS}.") for name in names)


def _keys(given: Given) -> DaemonKeys | None:
    found: dict[str, dict[str, Any]] = {"": {}, "log": {}, "security": {}}
    for name in (*ADDRESSES, *PATHS, TOKENS):
        group, _, key = name.rpartition(".")
        node = given.tree.get(group, {}) if group else given.tree
        if key in node:
            found[group][key] = _value(name, node[key])
    security = SecurityKeys(**found["security"])
    if not security.is_whole:
        return None
    return DaemonKeys(log=LogKeys(**found["log"]), security=security, unseen=bool(given.file), **found[""])


def _value(name: str, value: Any) -> Any:
    """A value as the tree of keys would have it. Raises ValueError and TypeError where it has to say more."""
    if name == TOKENS:
        return dict(value)
    if not isinstance(value, str):
        raise TypeError(name)
    return check_address(value) if name in ADDRESSES else Path(value)
