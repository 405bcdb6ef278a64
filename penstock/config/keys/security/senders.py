"""Keys of listeners with TLS (RFC 5425), and the contexts built from them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field, model_validator

from penstock.config.keys.values import Section
from penstock.config.units import ConfigError

if TYPE_CHECKING:
    import ssl


class SenderTlsConfig(Section):
    """TLS of a listener's senders, with the same names as ``[security]``."""

    tls_cert: Path | None = Field(
        None, description="File of the certificate chain (PEM); senders must use TLS; needs tls_key (not udp)."
    )
    tls_key: Path | None = Field(None, description="File of the private key of tls_cert (PEM).")
    client_ca: Path | None = Field(
        None, description="File of the authorities that must have signed the senders' certificates (PEM)."
    )
    client_names: tuple[str, ...] = Field(
        (), description="Accepted names in senders' certificates, also *.example.com; empty = all; needs client_ca."
    )

    @model_validator(mode="after")
    def _tls_complete(self) -> SenderTlsConfig:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key need each other")
        if self.client_ca is not None and self.tls_cert is None:
            raise ValueError("client_ca needs tls_cert and tls_key")
        if self.client_names and self.client_ca is None:
            raise ValueError("client_names needs client_ca: names are only trusted if an authority signed them")
        return self

    def tls_context(self) -> ssl.SSLContext | None:
        """Return the context of the listener's sockets; None without TLS. Raises Unusable."""
        if self.tls_cert is None or self.tls_key is None:
            return None
        from penstock.config.keys.security.contexts import (
            sender_context,  # here, because other processes do not need OpenSSL's memory
        )

        return sender_context(self.tls_cert, self.tls_key, self.client_ca)

    def check_tls(self, name: str) -> None:
        """Check the files of listener ``name``. Raises ConfigError."""
        if self.tls_cert is None:
            return
        from penstock.config.keys.security.contexts import Unusable

        try:
            self.tls_context()
        except Unusable as error:
            raise ConfigError(f"listener.{name}.{error}") from None
