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
    lines = [line for each in json.load(sys.stdin) for line in bad(each["listener"], each["handler"])]
    print("\n".join(lines))
    sys.exit(1 if lines else 0)


if __name__ == "__main__":
    main()
