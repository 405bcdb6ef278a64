"""What all commands share: the two consoles, how an error is shown, and a question to the daemon."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console

from penstock.config import DEFAULT_FILE, Settings
from penstock.process.terminal import visible

console = Console(highlight=False)
errors = Console(stderr=True, highlight=False)


def fail(message: object, status: int = 1) -> NoReturn:
    """Show one error line (or several) and end."""
    for line in str(message).splitlines():
        errors.print(f"penstock: {visible(line)}", style="red", soft_wrap=True, markup=False)
    sys.exit(status)


def file_of(config: Path | None) -> Path | None:
    """The configuration file in force: to be read again, it has to be there again."""
    return config or next((path for path in [Path(DEFAULT_FILE)] if path.exists()), None)


def ask_daemon(settings: Settings, path: str, method: str = "GET", **parameters: str) -> Any:
    """The JSON answer of the running daemon, or the end with one line that says why not."""
    import httpx  # slow to import: only commands that ask need it

    from penstock.config.daemon_access import Access

    try:
        with Access(settings).client() as client:
            answer = client.request(method, path, params=parameters)
    except OSError as error:
        fail(f"the token of this data directory cannot be read: {error}", 2)
    except httpx.TransportError as error:
        fail(
            f"no log daemon answers at {settings.log.http} ({error}); is `penstock serve` or `penstock up` running?", 2
        )
    if answer.is_error:
        fail(f"the log daemon answers {answer.status_code}: {answer.text.strip()}", 2)
    return answer.json()
