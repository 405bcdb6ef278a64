"""TLS and tokens: keys of the servers and of listeners, and the TLS contexts built from them.

Read ``servers`` with ``contexts``, ``senders``, and ``renewed_tls``, which takes renewed certificates. Imports
``config.keys.console``, ``config.keys.secrets``, ``config.keys.values``, ``config.units`` and ``errors``.
"""

__all__ = ["servers", "contexts", "senders", "renewed_tls"]  # noqa: RUF022 reading order
