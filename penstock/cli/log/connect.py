"""How the commands on the log reach the daemon."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from penstock.cli.common import errors, fail
from penstock.cli.options import Ca, Config, MadeOf, Override, Rpc, TokenFile, settings_of
from penstock.client import ClientError, Log, Tls, Unavailable
from penstock.client.log.connection import RETRY_FOR
from penstock.config import ConfigError, Settings
from penstock.config.daemon_access import Access, read_token
from penstock.files.errors import DamagedFile

NOT_RUNNING = "is `penstock serve` or `penstock up` running?"


@dataclass(frozen=True, slots=True)
class Where:
    """The daemon that a command was told to use."""

    settings: Settings
    rpc: str
    token: str | None
    tls: Tls | None

    @classmethod
    def of(
        cls,
        config: Config = None,
        override: Override = None,
        rpc: Rpc = None,
        token_file: TokenFile = None,
        ca: Ca = None,
    ) -> Where:
        """From the options of a command; ends it with one line when they are of no use."""
        settings = settings_of(config, override)
        access = Access(settings)
        try:
            token = access.token if token_file is None else read_token(token_file)
            return cls(settings, rpc or access.rpc_address, token, _tls(access, ca))
        except (OSError, ConfigError, DamagedFile) as error:
            fail(error, 2)

    def log(self, retry_for: float = RETRY_FOR) -> Log:
        """A client, whether the daemon runs or not."""
        return Log(self.rpc, retry_for=retry_for, token=self.token, tls=self.tls, on_retry=_say_so)

    @contextlib.contextmanager
    def opened(self, retry_for: float = RETRY_FOR) -> Iterator[Log]:
        """A client of a daemon that answers; errors end the command with one line."""
        with one_line(), self.log(retry_for) as log:
            try:
                log.check()
            except Unavailable as error:
                fail(f"{error}; {NOT_RUNNING}", 2)
            yield log


Daemon = Annotated[Where, MadeOf(Where.of)]
"""The daemon that a command uses: it has the options --config, -o, --rpc, --token-file and --ca."""


def _tls(access: Access, ca: Path | None) -> Tls | None:
    roots, key, cert = access.certificates
    if roots is None:
        return Tls(ca.read_bytes()) if ca else None
    own = Tls(roots, cert, key, access.peer)
    return replace(own, ca=ca.read_bytes(), name="") if ca else own


def _say_so(error: ClientError) -> None:
    errors.print(f"penstock: {error}; trying again", soft_wrap=True, markup=False)


@contextlib.contextmanager
def one_line() -> Iterator[None]:
    """Errors of the log, and Ctrl-C, end the command without a traceback."""
    try:
        yield
    except ClientError as error:
        fail(error)
    except KeyboardInterrupt:
        sys.exit(130)
