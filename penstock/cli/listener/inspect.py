"""``penstock inspect``: what log buffers hold, and the contents of a log buffer file."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.table import Table

from penstock.cli.common import aligned_lines, console, errors, fail
from penstock.cli.options import AsJson, Config, Override, load_settings, load_settings_with_data
from penstock.handover.buffer import newest_frame_metadata
from penstock.handover.paths import buffer_file, handlers_in, listeners_in, position_file
from penstock.handover.positions.position import UNKNOWN, ReaderPosition
from penstock.logbuffer import Subscription
from penstock.logbuffer.aeron import inspector
from penstock.logbuffer.errors import LogBufferError
from penstock.process.terminal import visible

NEXT_COMMANDS = """
positions are bytes since the buffer was made; a reader that is {length} MiB behind
misses messages, or makes TCP senders wait
list frames:  penstock inspect {listener} --batches
print bytes:  penstock inspect {listener} --dump"""


@dataclass(frozen=True, slots=True)
class ReaderSummary:
    """A reader of a log buffer; ``behind`` counts messages, None if it cannot be known."""

    name: str
    position: int
    behind_bytes: int
    behind: int | None


@dataclass(frozen=True, slots=True)
class BufferSummary:
    """A listener's log buffer: ``messages`` written since it was made, as the stream's bytes up to ``end``.

    ``newest_at`` is when the newest message was received (microseconds since the epoch), None before the first one.
    """

    listener: str
    messages: int
    newest_at: int | None
    end: int
    term_length: int
    readers: tuple[ReaderSummary, ...]


def inspect(
    file: Annotated[
        Path | None,
        typer.Argument(help="Log buffer file, or name of a listener.", show_default="the buffers of all listeners"),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Argument(min=0, help="Number of bytes to print of each message; implies --dump.", show_default="all"),
    ] = None,
    dump: Annotated[
        bool, typer.Option("--dump", help="Print the bytes as Aeron's LogInspector does; the default for a file.")
    ] = False,
    data_format: Annotated[
        Literal["hex", "ascii"] | None,
        typer.Option("--format", help="Format of messages; implies --dump.", show_default="hex"),
    ] = None,
    skip_default_header: Annotated[
        bool, typer.Option("--skip-default-header", help="Leave out the line of the default header; implies --dump.")
    ] = False,
    scan_over_zeroes: Annotated[
        bool, typer.Option("--scan-over-zeroes", help="Continue after gaps of zeros; implies --dump.")
    ] = False,
    as_json: AsJson = False,
    batches: Annotated[bool, typer.Option("--batches", help="List Penstock's frames with their counts.")] = False,
    config: Config = None,
    override: Override = None,
) -> None:
    """Print what log buffers hold and how far their readers are behind; or one buffer, frame by frame."""
    is_dump = dump or skip_default_header or scan_over_zeroes or (limit, data_format) != (None, None)
    if file is None:
        if batches or is_dump:
            fail("name the listener or the file: penstock inspect LISTENER --batches", 2)
        folder = load_settings_with_data(config, override).buffers
        _show_summaries(folder, listeners_in(folder), as_json)
        return
    listener_file = buffer_file(load_settings(config, override).buffers, file.name)
    is_name = file.name == str(file)
    if is_name and not file.exists() and listener_file.exists():
        if not (batches or is_dump):
            _show_summaries(listener_file.parent, [listener_file.stem], as_json)
            return
        file = listener_file
    try:
        if batches:
            _show_batches(inspector.batches(file), as_json)
        elif as_json:
            print(json.dumps(inspector.as_json(file, limit or 0), indent=2))
        else:
            shown_bytes = inspector.NO_LIMIT if limit is None else limit
            options = inspector.Options(data_format or "hex", shown_bytes, skip_default_header, scan_over_zeroes)
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


def _show_summaries(folder: Path, listeners: Sequence[str], as_json: bool) -> None:
    if not listeners:
        fail(f"{folder} has no log buffer: they are made at the start of `penstock up` or `penstock serve`")
    summaries, complaints = [], {}
    for listener in listeners:
        # One damaged file hides no other listener.
        try:
            summaries.append(summarize(folder, listener))
        except LogBufferError as error:
            complaints[listener] = str(error)
        except OSError as error:
            complaints[listener] = f"{buffer_file(folder, listener)}: {error.strerror or error}"
    if as_json:
        unreadable = [{"listener": listener, "error": text} for listener, text in complaints.items()]
        print(json.dumps([*map(asdict, summaries), *unreadable], indent=2))
    elif summaries:
        _print_summaries(summaries)
    if complaints:
        fail("\n".join(complaints.values()))


def _print_summaries(summaries: Sequence[BufferSummary]) -> None:
    rows = [["listener", "messages", "newest (UTC)", "written to", "reader", "read to", "behind"]]
    for summary in summaries:
        first = [summary.listener, f"{summary.messages:,}", _clock(summary.newest_at), f"{summary.end:,}"]
        for reader in summary.readers:
            rows.append([*first, reader.name, f"{reader.position:,}", _behind_text(reader)])
            first = ["", "", "", ""]
    print(*aligned_lines(rows, texts={0, 2, 4, 6}), sep="\n")
    busiest = max(summaries, key=lambda summary: summary.messages)
    print(NEXT_COMMANDS.format(listener=busiest.listener, length=f"{busiest.term_length / (1 << 20):g}"))


def summarize(folder: Path, listener: str) -> BufferSummary:
    """Return what a listener's log buffer holds. Raises LogBufferError or OSError."""
    # Order: the readers' positions before the end, so that a running receiver cannot make them pass it.
    positions = {}
    for name in handlers_in(folder, listener):
        # A missing position would be made here, at another place than its reader makes it.
        if not (path := position_file(folder, listener, name)).exists():
            continue
        with ReaderPosition(path) as position:
            positions[name] = position.position, position.reached_mark
    newest = newest_frame_metadata(folder, listener)
    total = newest.total if newest else 0
    with Subscription(buffer_file(folder, listener), in_order=True) as frames:
        end, term_length = frames.end, frames.term_length
    readers = tuple(
        ReaderSummary(name, reached, max(0, end - reached), None if mark == UNKNOWN else max(0, total - mark))
        for name, (reached, mark) in positions.items()
    )
    return BufferSummary(listener, total, newest.origin.last if newest else None, end, term_length, readers)


def _behind_text(reader: ReaderSummary) -> str:
    if not reader.behind_bytes:
        return "nothing"
    messages = "" if reader.behind is None else f"{reader.behind:,} messages, "
    return f"{messages}{reader.behind_bytes:,} bytes"


def _clock(micros: int | None) -> str:
    return "none" if micros is None else time.strftime("%m-%d %H:%M:%S", time.gmtime(micros / 1e6))


def _show_batches(batches: list[inspector.Batch], as_json: bool) -> None:
    if as_json:
        print(json.dumps([asdict(batch) for batch in batches], indent=2))
        return
    table = Table("position", "bytes", "rows", "round", "counts", box=None)
    for batch in batches:
        counts = (batch.document or {}).get("counts", {})
        text = batch.problem or ", ".join(f"{name} {count}" for name, count in counts.items())
        rows = "" if batch.rows is None else str(batch.rows)
        table.add_row(str(batch.position), str(batch.frame_length), rows, str(batch.reserved_value >> 16), text)
    console.print(table)
