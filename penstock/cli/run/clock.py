"""``penstock clock``: whether the log daemon believes the machine's clock, and telling it to."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from penstock.cli.common import ask_daemon
from penstock.cli.options import AsJson, Reached


def clock(
    where: Reached,
    accept: Annotated[bool, typer.Option("--accept", help="Say that the clock is right as it is.")] = False,
    as_json: AsJson = False,
) -> None:
    """Say whether the clock is believed; the exit status is 1 where it is not."""
    state = ask_daemon(where, "/clock", "POST" if accept else "GET")
    print(json.dumps(state, indent=2) if as_json else state["text"] or "the clock is right")
    sys.exit(0 if state["right"] else 1)
