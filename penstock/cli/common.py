"""What all commands share: the two consoles, how an error is shown, and a question to the daemon."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from rich.console import Console

from penstock.config import DEFAULT_FILE, ConfigError
from penstock.config.daemon_keys import DaemonKeys
from penstock.errors import PenstockError
from penstock.process.terminal import visible

if TYPE_CHECKING:
    from penstock.config import Settings

console = Console(highlight=False)
errors = Console(stderr=True, highlight=False)


def fail(message: object, status: int = 1) -> NoReturn:
    """Show one error line (or several) and end."""
    if isinstance(message, OSError) and message.strerror:
        message = f"{message.filename}: {message.strerror}" if message.filename else message.strerror
    for line in str(message).splitlines():
        errors.print(f"penstock: {visible(line)}", style="red", soft_wrap=True, markup=False)
    sys.exit(status)


def file_of(config: Path | None) -> Path | None:
    """The configuration file in force: to be read again, it has to be there again."""
    return config or next((path for path in [Path(DEFAULT_FILE)] if path.exists()), None)


def ask_daemon(where: Settings | DaemonKeys, path: str, method: str = "GET", **parameters: str) -> Any:
    """The JSON answer of the running daemon, or the end with one line that says why not."""
    return document_of(*answer_of(where, path, method, **parameters))


def document_of(status: int, body: bytes) -> Any:
    """The JSON of an answer, or the end with the error that it tells of."""
    if status >= 400:
        fail(f"the log daemon answers {status}: {body.decode(errors='replace').strip()}", 2)
    return json.loads(body)


def answer_of(where: Settings | DaemonKeys, path: str, method: str = "GET", **parameters: str) -> tuple[int, bytes]:
    """Status and body of the running daemon's answer, or the end with one line where there is none."""
    from penstock.config.daemon_access import Access

    access = Access(where)
    try:
        access.headers  # noqa: B018 - reads the token
    except OSError as error:
        fail(f"the token of this data directory cannot be read: {error}", 2)
    except PenstockError as error:
        fail(error, 2)
    try:
        return access.request(path, method, parameters)
    except PenstockError as error:
        fail(error, 2)
    except OSError as error:
        _fail_unreached(where, error)


def _fail_unreached(where: Settings | DaemonKeys, error: OSError) -> NoReturn:
    """Say that nobody answers, or what is wrong with a configuration that may have led astray."""
    if isinstance(where, DaemonKeys) and where.has_unchecked_keys:
        try:
            where.load_all()
        except ConfigError as wrong:
            fail(wrong, 2)
    why = error.strerror or error
    fail(f"no log daemon answers at {where.log.http} ({why}); is `penstock serve` or `penstock up` running?", 2)
