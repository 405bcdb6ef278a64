"""The end of a process whose threads may be in native code, where the interpreter's own end crashes."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

INTERRUPTED = 130
"""Exit status of a process that Ctrl-C ended, as shells report it."""


def end_process(status: int) -> NoReturn:
    """End the process now, after flushing its output.

    Workaround: at its end the interpreter unwinds threads that return from native code. delta-rs 1.6 and Arrow 26 do
    not survive this, so that the process would end by SIGSEGV or SIGABRT instead of with its status.
    """
    flush_output()
    os._exit(status)


def stop_thread(thread: threading.Thread, stop: threading.Event, timeout: float) -> bool:
    """Set ``stop``, wait up to ``timeout`` seconds for the thread, and report whether it ended; a second call does not
    wait.
    """
    if thread.is_alive() and not stop.is_set():
        stop.set()
        # Only the first call waits: a thread in native code may never return, and shutdown has one deadline for all.
        thread.join(timeout)
    return not thread.is_alive()


def exit_status(main: Callable[[], object]) -> int:
    """Return the status with which ``sys.exit(main())`` would end the process; an exception is printed.

    Not that of Ctrl-C, which a terminal sends to all processes: one that has no handler yet has begun nothing.
    """
    try:
        return _exit_code(main())
    except SystemExit as end:
        return _exit_code(end.code)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BaseException:  # noqa: BLE001 - as the interpreter does
        traceback.print_exc()
        return 1


def _exit_code(code: Any) -> int:
    if code is None or isinstance(code, int):
        return (code or 0) & 0xFF
    print(code, file=sys.stderr)
    return 1


def flush_output() -> None:
    """Flush standard output and error, unless they are closed."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # None when the process was started without it
            # A pipe without a reader or a full disk must not change the exit status.
            with contextlib.suppress(OSError):
                stream.flush()
