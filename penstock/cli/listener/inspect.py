"""``penstock inspect``: what is in a log buffer file."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.table import Table

from penstock.cli.common import console, fail
from penstock.cli.options import AsJson, Config, Override, settings_of
from penstock.handover.paths import buffer_file
from penstock.logbuffer.aeron import inspector
from penstock.logbuffer.errors import LogBufferError


def inspect(
    file: Annotated[Path, typer.Argument(help="A log buffer file, or a listener's name.")],
    limit: Annotated[int, typer.Argument(min=0, help="Bytes shown of each message.")] = inspector.NO_LIMIT,
    data_format: Annotated[Literal["hex", "ascii"], typer.Option("--format", help="How messages are shown.")] = "hex",
    skip_default_header: Annotated[bool, typer.Option("--skip-default-header", help="Leave that line out.")] = False,
    scan_over_zeroes: Annotated[bool, typer.Option("--scan-over-zeroes", help="Go on behind gaps of zeros.")] = False,
    as_json: AsJson = False,
    batches: Annotated[bool, typer.Option("--batches", help="List Penstock's own frames.")] = False,
    config: Config = None,
    override: Override = None,
) -> None:
    """Print a log buffer as Aeron's LogInspector does."""
    of_listener = buffer_file(settings_of(config, override).buffers, file.name)
    file = of_listener if not file.exists() and of_listener.exists() else file
    try:
        if batches:
            _show_batches(inspector.batches(file), as_json)
        elif as_json:
            print(json.dumps(inspector.as_json(file, 0 if limit == inspector.NO_LIMIT else limit), indent=2))
        else:
            options = inspector.Options(data_format, limit, skip_default_header, scan_over_zeroes)
            for line in inspector.dump(file, options):
                print(line)
    except LogBufferError as error:
        fail(error)
    except BrokenPipeError:
        raise
    except OSError as error:
        fail(f"{file}: {error.strerror or error}")


def _show_batches(batches: list[inspector.Batch], as_json: bool) -> None:
    if as_json:
        print(json.dumps([asdict(batch) for batch in batches], indent=2))
        return
    table = Table("position", "bytes", "rows", "round", "counts")
    for batch in batches:
        counts = (batch.document or {}).get("counts", {})
        said = batch.problem or ", ".join(f"{name} {count}" for name, count in counts.items())
        rows = "" if batch.rows is None else str(batch.rows)
        table.add_row(str(batch.position), str(batch.frame_length), rows, str(batch.reserved_value >> 16), said)
    console.print(table)
