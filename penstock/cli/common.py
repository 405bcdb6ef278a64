"""Output and errors of all commands, and requests to the running daemon.

``console`` and ``errors`` are made at first use: they import rich, which takes a third of the time of a short command.
"""

from __future__ import annotations

import contextlib
import functools
import json
import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from penstock.config import DEFAULT_FILE, ConfigError
from penstock.config.daemon_keys import DaemonKeys
from penstock.errors import PenstockError
from penstock.process.terminal import visible

if TYPE_CHECKING:
    from rich.console import Console

    from penstock.config import Settings

    console: Console
    errors: Console
    """The console of standard error."""

TOKEN_HINT = "give a token that may do this with --token-file FILE"  # noqa: S105 - a text
"""Next step after a missing or refused token, in a command with --token-file."""
CONFIG_HINT = "give the configuration of that daemon with --config FILE: its data directory has a token"
"""Next step in a command without --token-file."""


def __getattr__(name: str) -> Console:
    if name not in ("console", "errors"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rich.console import Console

    console = globals()[name] = Console(stderr=name == "errors", highlight=False)
    return console


def fail(message: object, status: int = 1) -> NoReturn:
    """Print each line of ``message`` as an error and exit."""
    if isinstance(message, OSError) and message.strerror:
        message = f"{message.filename}: {message.strerror}" if message.filename else message.strerror
    for line in str(message).splitlines():
        text = f"penstock: {visible(line)}"
        if sys.stderr.isatty():
            __getattr__("errors").print(text, style="red", soft_wrap=True, markup=False)
        else:
            print(text, file=sys.stderr)
    sys.exit(status)


def active_config_file(config: Path | None) -> Path | None:
    """Return the configuration file in use: ``config``, or the default file if it exists.

    A reload reads this file. A default file that appears later is not read: the start did not use it.
    """
    return config or next((path for path in [Path(DEFAULT_FILE)] if path.exists()), None)


def query_daemon(
    keys: Settings | DaemonKeys,
    path: str,
    method: str = "GET",
    document: Mapping[str, Any] | None = None,
    /,
    **parameters: str,
) -> Any:
    """Return the JSON answer of the running daemon, or end the command with the reason in one line."""
    return parse_answer(*request_daemon(keys, path, method, document, **parameters))


@functools.lru_cache
def name_instance_elsewhere(data_dir: Path, address: str) -> None:
    """Say on standard error, once, if the instance at ``address`` has another data directory than ``data_dir``."""
    from penstock.supervise.instances import instance_elsewhere

    instance = None
    # What this user may not see decides nothing: the request has been carried out.
    with contextlib.suppress(OSError):
        instance = instance_elsewhere(data_dir, address)
    if instance:
        print(
            f"penstock: no penstock runs on {data_dir.absolute()} (data_dir): {address} is that of process "
            f"{instance.pid} on {instance.data_dir}",
            file=sys.stderr,
        )


def parse_answer(status: int, body: bytes, hint: str = CONFIG_HINT) -> Any:
    """Return the JSON of an answer, or end the command if ``status`` is an error; ``hint`` is for a refused token."""
    if status >= 400:
        next_step = f"; {hint}" if status == HTTPStatus.UNAUTHORIZED else ""
        fail(f"the log daemon answers {status}: {_error_text(body)}{next_step}", 2)
    return json.loads(body)


def _error_text(body: bytes) -> str:
    """Return the reason in an answer's JSON, or the answer itself."""
    text = body.decode(errors="replace").strip()
    with contextlib.suppress(ValueError, TypeError, KeyError):
        return str(json.loads(text)["error"])
    return text


def request_daemon(
    keys: Settings | DaemonKeys,
    path: str,
    method: str = "GET",
    document: Mapping[str, Any] | None = None,
    /,
    **parameters: str,
) -> tuple[int, bytes]:
    """Return status and body of the running daemon's answer, or end the command with the reason in one line."""
    from penstock.config.daemon_access import Access

    access = Access(keys)
    try:
        access.headers  # noqa: B018 - reads the token
    except OSError as error:
        fail(f"the token of this data directory cannot be read: {error}", 2)
    except PenstockError as error:
        fail(error, 2)
    try:
        response = access.request(path, method, parameters, document=document)
    except PenstockError as error:
        fail(error, 2)
    except OSError as error:
        _fail_unreached(keys, error)
    name_instance_elsewhere(keys.data_dir, keys.log.http)
    return response


def terminal_width() -> int:
    """Return the columns of the terminal, 80 without one."""
    return shutil.get_terminal_size().columns


def aligned_lines(rows: Sequence[Sequence[str]], texts: Collection[int] = (0,)) -> list[str]:
    """Return a line for each row: ``texts`` are the columns that are aligned to the left, the last one without padding.

    Fast path: a table of rich takes half a second for a thousand rows.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    pads = [str.ljust if column in texts else str.rjust for column in range(len(widths))]
    return [
        "  ".join(pad(cell, width) for pad, cell, width in zip(pads, row, widths, strict=True)).rstrip() for row in rows
    ]


def _fail_unreached(keys: Settings | DaemonKeys, error: OSError) -> NoReturn:
    # A mistyped key may have caused the wrong address: the whole configuration is checked only now, as it is slow.
    if isinstance(keys, DaemonKeys) and keys.has_unchecked_keys:
        try:
            keys.load_all()
        except ConfigError as config_error:
            fail(config_error, 2)
    reason = error.strerror or error
    from penstock.supervise.instances import describe_instances

    fail(f"no log daemon answers at {keys.log.http} ({reason}): {describe_instances(keys.log.http)}", 2)
