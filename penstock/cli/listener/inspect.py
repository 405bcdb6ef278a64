"""``penstock inspect``: the contents of a log buffer file."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.table import Table

from penstock.cli.common import console, errors, fail
from penstock.cli.options import AsJson, Config, Override, load_settings
from penstock.handover.paths import buffer_file
from penstock.logbuffer.aeron import inspector
from penstock.logbuffer.errors import LogBufferError
from penstock.process.terminal import visible


def inspect(
    file: Annotated[Path, typer.Argument(help="Log buffer file, or name of a listener.")],
    limit: Annotated[int, typer.Argument(min=0, help="Number of bytes to print of each message.")] = inspector.NO_LIMIT,
    data_format: Annotated[Literal["hex", "ascii"], typer.Option("--format", help="Format of messages.")] = "hex",
    skip_default_header: Annotated[
        bool, typer.Option("--skip-default-header", help="Leave out the line of the default header.")
    ] = False,
    scan_over_zeroes: Annotated[
        bool, typer.Option("--scan-over-zeroes", help="Continue behind gaps of zeros.")
    ] = False,
    as_json: AsJson = False,
    batches: Annotated[bool, typer.Option("--batches", help="List Penstock's frames instead of Aeron's.")] = False,
    config: Config = None,
    override: Override = None,
) -> None:
    """Print a log buffer in the format of Aeron's LogInspector."""
    listener_file = buffer_file(load_settings(config, override).buffers, file.name)
    file = listener_file if not file.exists() and listener_file.exists() else file
    try:
        if batches:
            _show_batches(inspector.batches(file), as_json)
        elif as_json:
            print(json.dumps(inspector.as_json(file, 0 if limit == inspector.NO_LIMIT else limit), indent=2))
        else:
            options = inspector.Options(data_format, limit, skip_default_header, scan_over_zeroes)
            # The complaint goes to standard error: standard output is LogInspector's text to the byte.
            if problem := inspector.problem(file):
                text = f"penstock: the metadata of {file} are damaged: {problem}"
                errors.print(visible(text), style="yellow", soft_wrap=True, markup=False)
            for line in inspector.dump(file, options):
                print(line)
    except LogBufferError as error:
        fail(error)
    except BrokenPipeError:
        raise
    except FileNotFoundError:
        buffers = sorted(path.stem for path in listener_file.parent.glob("*.logbuffer"))
        names = f"; {listener_file.parent} has those of {', '.join(buffers)}" if buffers else ""
        fail(f"{file}: no such file, nor a listener of this name with a log buffer{names}")
    except OSError as error:
        fail(f"{file}: {error.strerror or error}")


def _show_batches(batches: list[inspector.Batch], as_json: bool) -> None:
    if as_json:
        print(json.dumps([asdict(batch) for batch in batches], indent=2))
        return
    table = Table("position", "bytes", "rows", "round", "counts")
    for batch in batches:
        counts = (batch.document or {}).get("counts", {})
        text = batch.problem or ", ".join(f"{name} {count}" for name, count in counts.items())
        rows = "" if batch.rows is None else str(batch.rows)
        table.add_row(str(batch.position), str(batch.frame_length), rows, str(batch.reserved_value >> 16), text)
    console.print(table)
