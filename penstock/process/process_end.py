"""The end of a process that may have threads in native code: there the interpreter's own end is a crash."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, NoReturn


def end_process(status: int) -> NoReturn:
    """End it now, with what it has printed written out.

    The interpreter ends a thread that comes back from native code by unwinding it, and delta-rs or Arrow do not
    survive that: the process would end by SIGSEGV or SIGABRT instead of with its status.
    """
    flush_output()
    os._exit(status)


def ends(thread: threading.Thread, stop: threading.Event, patience: float) -> bool:
    """Have a thread end; whether it has, which is waited for so many seconds, and not again by another call."""
    if thread.is_alive() and not stop.is_set():
        stop.set()
        thread.join(patience)
    return not thread.is_alive()


def exit_status(main: Callable[[], object]) -> int:
    """The status with which ``sys.exit(main())`` would end the process; an exception is printed."""
    try:
        return _status(main())
    except SystemExit as end:
        return _status(end.code)
    except BaseException:  # noqa: BLE001 - as the interpreter does it
        traceback.print_exc()
        return 1


def _status(code: Any) -> int:
    if code is None or isinstance(code, int):
        return (code or 0) & 0xFF
    print(code, file=sys.stderr)
    return 1


def flush_output() -> None:
    """Write out what was printed, where somebody still reads it."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # it is None where it was closed at the start
            with contextlib.suppress(OSError):
                stream.flush()
