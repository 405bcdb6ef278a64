"""Whether handlers can be made: ``python -m penstock.sinks.handler_check``, a list of them on standard input.

Prints a line for each key that is bad, and then ends with status 1.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from penstock.config.keys.handlers import forwarded_handler
from penstock.sinks.handler import BadSettings
from penstock.sinks.handler_factory import make


def bad(listener: str, given: Any) -> list[str]:
    """What is wrong with a handler's settings, a line each."""
    handler = forwarded_handler(given)
    try:
        made = make(listener, handler)
    except BadSettings as error:
        return [f"listener.{listener}.handlers.{handler.label}.{line}" for line in str(error).splitlines()]
    close = getattr(made, "close", None)
    if close:
        close()
    return []


def main() -> None:
    """Check the handlers that stand on standard input."""
    is_good = True
    for each in json.load(sys.stdin):
        for line in bad(each["listener"], each["handler"]):
            print(line, flush=True)  # at once: a further one may take long
            is_good = False
    sys.exit(0 if is_good else 1)


if __name__ == "__main__":
    main()
