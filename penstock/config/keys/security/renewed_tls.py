"""TLS of servers and clients that run for long: certificates and authorities are taken again once their files change.

Files that do not work together, as in the middle of a renewal, change nothing but a line in the log.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.config.keys.security.contexts import Unusable
from penstock.config.units import ConfigError

if TYPE_CHECKING:
    import grpc

Pem = tuple[bytes, bytes, bytes | None]
"""Private key, certificate chain, and the authorities of clients (None: clients show no certificate)."""
_LOGGER = logging.getLogger(__name__)


class ChangedFiles:
    """Tells whether files were written or replaced since it was asked last."""

    def __init__(self, paths: Sequence[Path | None]) -> None:
        self._paths = [path for path in paths if path is not None]
        self._stamps = self._read_stamps()

    def have_changed(self) -> bool:
        """Return whether one of them has; a file that goes missing has changed."""
        before, self._stamps = self._stamps, self._read_stamps()
        return self._stamps != before

    def _read_stamps(self) -> list[tuple[int, int] | None]:
        return [_stamp(path) for path in self._paths]


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino


class RenewedContext(ssl.SSLContext):
    """A context made of files, which is made again for the next connection once they have changed.

    A new context, not new files in the old one: OpenSSL only ever adds trusted authorities to a context, so one
    that was removed would stay trusted.
    """

    def __new__(cls, make: Callable[[], ssl.SSLContext], paths: Sequence[Path | None]) -> RenewedContext:
        return super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)

    def __init__(self, make: Callable[[], ssl.SSLContext], paths: Sequence[Path | None]) -> None:
        """Make the first context. Raises what ``make`` raises."""
        self._make, self._files = make, ChangedFiles(paths)
        self._current = make()
        self.check_hostname, self.verify_mode = False, self._current.verify_mode

    def current(self) -> ssl.SSLContext:
        """Return the context of the present files, or of the last ones that could be used."""
        if self._files.have_changed():
            try:
                self._current = self._make()
            except (Unusable, ConfigError, OSError) as error:
                _LOGGER.error("%s; the files of before are used on", error)
        return self._current

    def wrap_bio(self, *arguments: Any, **named: Any) -> ssl.SSLObject:
        """Wrap with the current context; asyncio calls this for each connection."""
        return self.current().wrap_bio(*arguments, **named)

    def wrap_socket(self, *arguments: Any, **named: Any) -> ssl.SSLSocket:
        """Wrap with the current context."""
        return self.current().wrap_socket(*arguments, **named)


def renewed_server_credentials(load: Callable[[], Pem], paths: Sequence[Path | None]) -> grpc.ServerCredentials:
    """Return gRPC's credentials of what ``load`` returns, which is called again once ``paths`` have changed.

    Raises what ``load`` raises.
    """
    import grpc  # here, because most processes that read the configuration do without it

    def configuration(pem: Pem) -> grpc.ServerCertificateConfiguration:
        key, chain, authorities = pem
        return grpc.ssl_server_certificate_configuration([(key, chain)], authorities)

    def fetch() -> Any:
        # gRPC calls this before each handshake; None changes nothing.
        if not files.have_changed():
            return None
        try:
            return configuration(load())
        except (Unusable, ConfigError, OSError) as error:
            _LOGGER.error("%s; the files of before are used on", error)
            return None

    files, first = ChangedFiles(paths), load()
    return grpc.dynamic_ssl_server_credentials(configuration(first), fetch, first[2] is not None)
