"""Errors of object stores and full disks, in one line each, and retries while tables cannot be written.

Invariant: a store that cannot be reached, or a full disk, raises TablesAway, and the caller waits; a refusal raises
TablesRefused, because a retry would be refused again.
"""

from __future__ import annotations

import errno
import logging
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from penstock.errors import PenstockError
from penstock.files.disk_space import is_disk_full

CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "GOOGLE_SERVICE_ACCOUNT",
    "abfss": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}
"""Names of the credentials, by the URL's scheme."""
CREDENTIALS_LOCATION = "in pipeline.storage_options or the environment"
EXPLANATIONS_BY_CODE = {
    "InvalidAccessKeyId": f"AWS_ACCESS_KEY_ID {CREDENTIALS_LOCATION} is unknown to the store",
    "SignatureDoesNotMatch": f"AWS_SECRET_ACCESS_KEY {CREDENTIALS_LOCATION} is wrong",
    "InvalidToken": f"AWS_SESSION_TOKEN {CREDENTIALS_LOCATION} is wrong",
    "ExpiredToken": f"AWS_SESSION_TOKEN {CREDENTIALS_LOCATION} has expired",
    "RequestTimeTooSkewed": "the clocks of this machine and of the store differ by more than 15 minutes",
    "NoSuchBucket": "pipeline.tables names a bucket that does not exist",
}
"""Explanations by S3's error code."""
EXPLANATIONS = {
    "169.254.169.254": f"no credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY belong {CREDENTIALS_LOCATION}",
    "URL scheme is not allowed": 'an endpoint without TLS needs storage_options.AWS_ALLOW_HTTP = "true"',
}
FIRST_PAUSE_S, MAX_PAUSE_S = 0.5, 10.0
"""Pauses between retries: doubled after each, to spare a store that restarts."""
_STORE_ERROR = re.compile(r"Generic \w+ error|Error performing|error sending request")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_NO_PERMISSION = re.compile(r"\b40[13] \w+|Permission ?Denied|Unauthenticated", re.IGNORECASE)
# delta-rs colours its errors and draws arrows to causes.
_DECORATION = re.compile(r"\x1b\[[0-9;]*m|↳")
_LOGGER = logging.getLogger(__name__)
T = TypeVar("T")


class StoreError(PenstockError, OSError):
    """A failed request to an object store.

    ``errno`` is set: OSError without it means a file that is not Parquet.
    """

    def __init__(self, number: int, text: str) -> None:
        super().__init__(number, text)

    def __str__(self) -> str:
        return str(self.strerror)


class TablesAway(StoreError):
    """The object store cannot be reached now: the caller tries again later."""

    def __init__(self, text: str) -> None:
        super().__init__(errno.EHOSTUNREACH, text)


class TablesFull(TablesAway):
    """The disk of the tables, or of temporary files, is full; the text names the folder."""

    def __init__(self, folder: object) -> None:
        super().__init__(f"no space left on device in {folder}")
        self.errno = errno.ENOSPC


class TablesRefused(StoreError):
    """The object store refuses, and would refuse again; the text names the key to check."""

    def __init__(self, text: str) -> None:
        super().__init__(errno.EACCES, text)


@contextmanager
def translate_full_disk(folder: object) -> Iterator[None]:
    """Raise TablesFull for an error that means that the disk of ``folder`` is full; other errors pass."""
    try:
        yield
    except TablesAway:
        raise
    except Exception as error:
        # Not every text counts: an error of another kind may quote a message that complains about a disk. Workaround:
        # delta-rs 1.6 says that its errors are of the module ``_internal``.
        if not isinstance(error, OSError) and not type(error).__module__.startswith(("deltalake", "_internal")):
            raise
        if not is_disk_full(error):
            raise
        raise TablesFull(folder) from None


@contextmanager
def translate_store_errors(url: str) -> Iterator[None]:
    """Raise TablesAway or TablesRefused for errors of a store; other errors pass."""
    try:
        yield
    except (PenstockError, FileNotFoundError):
        raise
    except Exception as error:
        # Workaround: delta-rs 1.6.6 has no class for errors of a store; only their text shows them.
        if not _STORE_ERROR.search(str(error)):
            raise
        raise interpret_error(str(error), url) from None


def interpret_error(text: str, url: str) -> TablesAway | TablesRefused:
    """Return the error that a text of delta-rs means."""
    code = _CODE.search(text)
    if code and code[1] in EXPLANATIONS_BY_CODE:
        return TablesRefused(f"{url} is refused: {EXPLANATIONS_BY_CODE[code[1]]}")
    for part, meaning in EXPLANATIONS.items():
        if part in text:
            return TablesRefused(f"{url}: {meaning}")
    if _NO_PERMISSION.search(text):
        keys = CREDENTIALS.get(url.partition("://")[0], "the credentials")
        return TablesRefused(
            f"{url} is refused{f' ({code[1]})' if code else ''}: look at {keys} {CREDENTIALS_LOCATION}"
        )
    lines = [line.strip() for line in _DECORATION.sub("", text).splitlines() if line.strip()]
    return TablesAway(f"{url} cannot be reached: {(code[1] if code else lines[-1])[:200]}")


def retry_while_away(
    call: Callable[[], T], stop: threading.Event, report: Callable[[TablesAway], None] = lambda _: None
) -> T:
    """Call a function until the tables can be written; ``report`` failures. Raises TablesAway only after ``stop``."""
    pause, is_logged = FIRST_PAUSE_S, False
    while True:
        try:
            answer = call()
        except TablesAway as error:
            if not is_logged:
                _LOGGER.warning("landing waits, and nothing is lost: %s", error)
            is_logged = True
            report(error)
            if stop.wait(pause):
                raise
            pause = min(pause * 2, MAX_PAUSE_S)
        else:
            if is_logged:
                _LOGGER.info("the tables can be written again: landing continues")
            return answer
