"""``penstock explain``: how a payload would be decoded, classified and stored, and why."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.common import console, fail
from penstock.cli.options import AsJson, Configured
from penstock.process.terminal import visible

if TYPE_CHECKING:
    from penstock.upkeep.explain import Explanation


def explain(
    settings: Configured,
    payload: Annotated[str, typer.Argument(help="Payload; - for standard input.", show_default=False)] = "-",
    via: Annotated[
        str,
        typer.Option(
            "--via",
            metavar="NAME",
            help="Source: a listener's name, or udp, tcp, raw, syslog, gelf, forward, http, hec, loki, bulk, otlp, "
            "grpc, kafka.",
        ),
    ] = "udp",
    file: Annotated[
        Path | None, typer.Option("--file", help="File containing the payload.", show_default=False)
    ] = None,
    path: Annotated[str, typer.Option(help="Path of a request to an HTTP listener.", show_default=False)] = "",
    as_json: AsJson = False,
) -> None:
    """Show how a payload sent to a listener or protocol would be stored, and why. Nothing is sent or stored.

    Exits with status 1 if part of the payload is refused or quarantined, or if it yields no message.
    """
    from penstock.landing.typed.columns import configured_tables
    from penstock.sql.configured import rules_of
    from penstock.upkeep.explain import UnknownWay
    from penstock.upkeep.explain import explain as explain_payload

    content = file.read_bytes() if file else sys.stdin.buffer.read() if payload == "-" else payload.encode()
    typed = configured_tables(settings.pipeline)
    try:
        explanation = explain_payload(content, via, settings, rules_of(settings, typed), typed, path)
    except UnknownWay as error:
        fail(error, 2)
    if as_json:
        print(json.dumps(explanation.document(), indent=2))
    else:
        _print_explanation(explanation)
    is_refused = explanation.refused or any(message.kind == "quarantine" for message in explanation.messages)
    sys.exit(1 if is_refused or not explanation.messages else 0)


def _print_explanation(explanation: Explanation) -> None:
    lines = []
    for message in explanation.messages:
        lines.append(f"{message.kind}: {message.why}")
        lines.append(f"  topic {message.topic}, tables {', '.join(message.tables)}, codec {explanation.codec}")
        lines += [f"  {name} = {text}" for name, text in message.columns.items()]
    lines += [f"refused: {reason} ({count:,})" for reason, count in explanation.refused.items()]
    if not explanation.messages and not explanation.refused:
        lines.append("no message")
    if explanation.answer:
        lines.append(f"answer {explanation.answer}")
    for line in lines:
        console.print(visible(line), markup=False, highlight=False, soft_wrap=True)
