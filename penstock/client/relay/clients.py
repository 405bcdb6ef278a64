"""The clients of a relay: of this host's daemon, of the other Penstock, and the files of their tokens."""

from __future__ import annotations

from pathlib import Path

from penstock.client.log.client import Log
from penstock.client.log.types import Tls
from penstock.config import RelayConfig, Settings
from penstock.config.daemon_access import Access, read_token


def local_client(settings: Settings) -> Log:
    """Return a client of this host's daemon. Raises OSError, ConfigError and FileError."""
    access = Access(settings)
    roots, key, cert = access.certificates
    return Log(access.rpc_address, token=access.token, tls=Tls(roots, cert, key, access.peer) if roots else None)


def remote_client(config: RelayConfig, token_file: Path | None = None) -> Log:
    """Return a client of the other Penstock, with the token of the relay or another one.

    Raises OSError and FileError.
    """
    token_file = token_file or config.token_file
    token = read_token(token_file) if token_file else None
    tls = Tls(config.tls_ca, config.tls_cert, config.tls_key, config.tls_name) if config.uses_tls else None
    # The relay retries by itself, so that it can say for how long.
    return Log(config.to, token=token, tls=tls, retry_for=0, watched=True)


class Credentials:
    """The files of tokens and certificates, which are replaced while the relay runs."""

    def __init__(self, config: RelayConfig, settings: Settings) -> None:
        security = settings.security
        own = (config.token_file, config.host_token_file, config.tls_ca, config.tls_cert, config.tls_key)
        self._paths = [path for path in (*own, security.tls_cert, security.tls_key) if path]
        self._stamps = self._read_stamps()

    def have_changed(self) -> bool:
        """Report whether a file has changed since the last call."""
        # Order: before the files are read, so that a change in between is noticed by the next call.
        previous, self._stamps = self._stamps, self._read_stamps()
        return previous != self._stamps

    def _read_stamps(self) -> list[int]:
        return [_modified_ns(path) for path in self._paths]


def _modified_ns(path: Path) -> int:
    """Return the time of a file's last change; 0 without a file, or in a folder that may not be read."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
