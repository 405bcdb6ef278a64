"""The failure for which nothing lands, left by the pipeline in a mapped page for the log daemon and for commands.

Crash: the page outlives the pipeline's process, so that a pipeline that fails at each start shows since when. It has
its blocks from the first start on, so that it can also be written on a full disk.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from penstock.handover.state_page import StatePage

FAILURE_TEXT, PAGE_TEXTS = 0, 1
MAX_CAUSE = 300
"""Limit for the characters of a cause."""
WORKER_CAUSE = "Python worker failed to connect back"
DEFAULT_ADVICE = "see the pipeline's output: pipeline.log in data_dir, or the terminal of penstock pipeline run"
FREE_SPACE = "free space (penstock cleanup): the pipeline continues by itself"
RESTARTED_TOPIC = 'see "Topics that begin again" in the documentation of tables'
ADVICE = (
    ("o space left on device", FREE_SPACE),
    ("quota exceeded", FREE_SPACE),
    (WORKER_CAUSE, "check the load of the machine, and pipeline.spark.pyspark.python"),
    ("a Python worker ended", "check pipeline.spark.pyspark.python: Spark starts it for each task"),
    ("Permission denied", "let the user of the pipeline write there (chown, chmod)"),
    ("begins again", RESTARTED_TOPIC),
    ("was deleted and created again", RESTARTED_TOPIC),
    ("its end was cut", RESTARTED_TOPIC),
    ("Kafka at ", "check Kafka, and the right to describe its topics: the pipeline retries"),
    ("is planned again", "nothing to do: the pipeline starts again, and repeats the batch"),
    ("cannot be reached", "check the network and the address: the pipeline retries until the store answers"),
)
"""Next steps by a part of the cause."""
_WRAPPERS = ("Py4JJavaError", "SparkException", "PythonException", "StreamingQueryException", "Py4JError")
"""Errors of Spark that quote another one."""
_PYTHON_ERROR = re.compile(r"^(?:[\w.]+\.)?([A-Z]\w*): (\S.*)$", re.MULTILINE)
_WORKER_OUTPUT = re.compile(r"Error from python worker:\s*\n\s*(\S.*)")
_SPARK_ERROR = re.compile(r"(?:Caused by: |^: ?|: )(?:org|java)\.[\w.$]+: (\S.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class LandingFailure:
    """A failure that has happened ``times`` times; times in milliseconds since the epoch."""

    cause: str
    advice: str
    since: int
    newest: int
    times: int = 1

    def document(self) -> dict[str, Any]:
        """Return the failure as a JSON-ready mapping, with ``text``: one line without the next step."""
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since / 1000))
        times = f"{self.times:,} time{'' if self.times == 1 else 's'}"
        return asdict(self) | {"text": f"landing fails since {since}, {times}: {self.cause}"}


def read_landing_failure(page: Path) -> LandingFailure | None:
    """Return the failure that a pipeline left in its page; None if there is none, or no page that can be read."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        if page.exists():
            opened = StatePage(page, PAGE_TEXTS)
            try:
                document = opened.read(FAILURE_TEXT)
            finally:
                opened.close()
            return LandingFailure(**document) if document else None
    return None


class FailurePage:
    """The pipeline's side: it records failed attempts, and removes the failure once a batch commits. Thread-safe.

    Owned by the holder of the landing lock. Without space for the page failures stay in the log only.
    """

    def __init__(self, path: Path, micros: Callable[[], int] = lambda: time.time_ns() // 1000) -> None:
        self._micros, self._lock = micros, threading.Lock()
        self._page: StatePage | None = None
        self._failure = read_landing_failure(path)
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._page = StatePage(path, PAGE_TEXTS)

    @property
    def failure(self) -> LandingFailure | None:
        """The failure that lasts; None if the newest attempt did not fail."""
        return self._failure

    def record(self, error: BaseException | str) -> None:
        """Record a failed attempt."""
        cause, now = main_cause(str(error) or type(error).__name__), self._micros() // 1000
        with self._lock:
            earlier = self._failure or LandingFailure("", "", now, now, 0)
            advice = next_step(cause)
            self._write(replace(earlier, cause=cause, advice=advice, newest=now, times=earlier.times + 1))

    def clear(self) -> None:
        """Remove the failure: a batch was committed, or nothing waits."""
        with self._lock:
            if self._failure is not None:
                self._write(None)

    def _write(self, failure: LandingFailure | None) -> None:
        self._failure = failure
        if self._page is not None:
            self._page.write(FAILURE_TEXT, asdict(failure) if failure else {})

    def close(self) -> None:
        with self._lock:
            if self._page is not None:
                self._page.close()
            self._page = None


def main_cause(text: str) -> str:
    """Return the innermost cause of a text of Spark, Python or Java in one line."""
    if WORKER_CAUSE in text:
        return WORKER_CAUSE
    if output := _WORKER_OUTPUT.search(text):
        return _shorten(f"a Python worker ended: {output[1]}")
    for error in _PYTHON_ERROR.finditer(text):
        if error[1] not in _WRAPPERS and "Traceback" not in error[2]:
            # The text of an error of the system needs no name of a class.
            return _shorten(error[2] if error[2].startswith("[Errno") else f"{error[1]}: {error[2]}")
    if spark_error := _SPARK_ERROR.search(text):
        return _shorten(spark_error[1])
    return _shorten(next((line for line in text.splitlines() if line.strip()), "no reason"))


def next_step(cause: str) -> str:
    """Return what to do about a cause."""
    return next((advice for part, advice in ADVICE if part in cause), DEFAULT_ADVICE)


def _shorten(line: str) -> str:
    line = re.sub(r"\[Errno \d+\] ", "", line.strip())
    return line if len(line) <= MAX_CAUSE else f"{line[:MAX_CAUSE]}..."
