"""The daemon that a command on the log uses, from its options, and how errors of the log are shown."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

from penstock.cli.common import CONFIG_HINT, TOKEN_HINT, errors, fail, name_instance_elsewhere
from penstock.cli.options import Ca, Config, OptionsOf, Override, Rpc, TokenFile, load_settings
from penstock.client import ClientError, Log, NoSuchTopic, NotAllowed, Tls, Unavailable
from penstock.client.log.connection import RETRY_FOR
from penstock.config import ConfigError, Settings
from penstock.config.daemon_access import Access, read_token
from penstock.config.nearest_name import nearest
from penstock.files.errors import DamagedFile

MAX_LISTED_TOPICS = 20
"""An error lists the topics that exist if there are no more than this."""


@dataclass(frozen=True, slots=True)
class DaemonOptions:
    """The address, token and TLS settings that a command uses to reach the daemon."""

    settings: Settings
    rpc: str
    token: str | None
    tls: Tls | None
    token_hint: str = TOKEN_HINT

    @classmethod
    def from_options(
        cls,
        config: Config = None,
        override: Override = None,
        rpc: Rpc = None,
        token_file: TokenFile = None,
        ca: Ca = None,
    ) -> DaemonOptions:
        """Return the daemon for a command's options, or end the command with the reason in one line."""
        settings = load_settings(config, override)
        access = Access(settings)
        try:
            token = access.token if token_file is None else read_token(token_file)
            return cls(settings, rpc or access.rpc_address, token, _tls_settings(access, ca))
        except (OSError, ConfigError, DamagedFile) as error:
            fail(error, 2)

    @classmethod
    def from_configuration(cls, config: Config, override: Override) -> DaemonOptions:
        """Return the daemon of the configuration, for a command without options for another daemon."""
        return replace(cls.from_options(config, override), token_hint=CONFIG_HINT)

    def client(self, retry_for: float = RETRY_FOR, *, watched: bool = False) -> Log:
        """Return a client, whether the daemon runs or not."""
        return Log(
            self.rpc, retry_for=retry_for, token=self.token, tls=self.tls, on_retry=_report_retry, watched=watched
        )

    @contextlib.contextmanager
    def connect(self, retry_for: float = RETRY_FOR) -> Iterator[Log]:
        """Return a client of a daemon that answers; errors end the command with one line."""
        with errors_in_one_line(self.token_hint), self.client(retry_for) as log:
            try:
                log.check()
            except Unavailable as error:
                # Slow to import.
                from penstock.supervise.instances import describe_instances

                fail(f"{error}: {describe_instances()}", 2)
            if self.rpc == Access(self.settings).rpc_address:
                name_instance_elsewhere(self.settings.data_dir, self.rpc)
            try:
                yield log
            except NoSuchTopic as error:
                fail(f"{error}{_suggest_topic(error, log)}")


Daemon = Annotated[DaemonOptions, OptionsOf(DaemonOptions.from_options)]
"""The daemon of a command with the options --config, -o, --rpc, --token-file and --ca."""


def _suggest_topic(error: NoSuchTopic, log: Log) -> str:
    name = str(error).rpartition(": ")[2]
    try:
        names = log.topics()
    except ClientError:
        return ""
    # Limit: difflib compares each name, a few microseconds each; a list of all would fill the screen.
    similar = get_close_matches(name, names, 1)
    if not similar and len(names) > MAX_LISTED_TOPICS:
        return "; `penstock topics` lists all"
    return nearest(name, names)


def _tls_settings(access: Access, ca: Path | None) -> Tls | None:
    roots, key, cert = access.certificates
    if roots is None:
        return Tls(ca.read_bytes()) if ca else None
    settings = Tls(roots, cert, key, access.peer)
    return replace(settings, ca=ca.read_bytes(), name="") if ca else settings


def _report_retry(error: ClientError) -> None:
    errors.print(f"penstock: {error}; trying again", soft_wrap=True, markup=False)


@contextlib.contextmanager
def errors_in_one_line(token_hint: str = TOKEN_HINT) -> Iterator[None]:
    """End the command without a traceback on an error of the log or on Ctrl-C."""
    try:
        yield
    except NotAllowed as error:
        fail(f"{error}; {token_hint}")
    except ClientError as error:
        fail(error)
    except KeyboardInterrupt:
        sys.exit(130)
