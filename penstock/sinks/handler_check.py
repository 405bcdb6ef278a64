"""Checks handlers by creating them: ``python -m penstock.sinks.handler_check``, with a JSON list on standard input.

Prints a line for each bad key, and then ends with status 1.
"""

from __future__ import annotations

import json
import signal
import sys
from typing import Any

from penstock.config.keys.handlers import forwarded_handler
from penstock.sinks.handler import BadSettings
from penstock.sinks.handler_factory import make_handler


def find_bad_keys(listener: str, document: Any) -> list[str]:
    """Return a line for each bad key of a handler's settings."""
    handler = forwarded_handler(document)
    try:
        instance = make_handler(listener, handler)
    except BadSettings as error:
        return [f"listener.{listener}.handlers.{handler.label}.{line}" for line in str(error).splitlines()]
    close = getattr(instance, "close", None)
    if close:
        close()
    return []


def main() -> None:
    """Check the handlers on standard input."""
    # Ctrl-C ends the check without a traceback; it was blocked while the code was loaded.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    is_good = True
    for each in json.load(sys.stdin):
        for line in find_bad_keys(each["listener"], each["handler"]):
            print(line, flush=True)  # immediately: the next handler may take long, and the supervisor limits the time
            is_good = False
    sys.exit(0 if is_good else 1)


if __name__ == "__main__":
    main()
