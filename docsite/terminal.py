"""A terminal session as an animated SVG: commands run for real, and lines appear with their record_session timing."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from xml.sax.saxutils import escape

COLUMNS, ROWS = 100, 40
TYPING_S = 0.03
"""Time per typed letter of a command."""
READING_S = 1.2
"""Pause between the end of a command and the next one."""
MAX_WAIT_S = 2.0
"""Longest pause that is shown while a command runs."""
LINE, LEFT, TOP, WIDTH = 19, 16, 44, 880
ESCAPE = re.compile(r"\x1b\[([0-9;]*)([A-Za-z])|\x1b\][^\x07]*\x07|\x1b[()=>].?")
COLOURS = {1: "b", 2: "d", 31: "r", 32: "g", 33: "y", 34: "u", 36: "c", 91: "r", 92: "g", 93: "y", 94: "u", 96: "c"}
STYLE = """text { font: 13.5px ui-monospace, "DejaVu Sans Mono", Menlo, monospace; fill: #d6dee6; white-space: pre; }
  .b { font-weight: 700; } .d { fill: #8795a1; } .r { fill: #ff8a80; } .g { fill: #8fd9a8; } .y { fill: #f2cf7c; }
  .u { fill: #8ab8ff; } .c { fill: #7fd6e0; } .typed { fill: #ffffff; } .bar { fill: #2a333c; } .dot { fill: #55636f; }
  .line { opacity: 0; animation: come 1ms linear forwards; } @keyframes come { to { opacity: 1; } }
  @media (prefers-reduced-motion: reduce) { .line { animation: none; opacity: 1; } }"""


FRAME = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{title}">
<style>
  {style}
</style>
<rect width="{width}" height="{height}" rx="8" fill="#151b21"/>
<path class="bar" d="M0 28V8a8 8 0 0 1 8-8H{inner}a8 8 0 0 1 8 8V28z"/>
<g class="dot"><circle cx="22" cy="14" r="5"/><circle cx="40" cy="14" r="5"/><circle cx="58" cy="14" r="5"/></g>
<text class="d" x="{middle}" y="19" text-anchor="middle">{title}</text>"""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the session: seconds since its start, the text with escape sequences, and whether a user typed it."""

    time_s: float
    text: str
    typed: bool = False


def record_session(
    commands: Sequence[str], environment: Mapping[str, str], translate: Callable[[str], str] = str
) -> list[Line]:
    """Run ``commands`` in bash and return the session; ``translate`` changes what runs, not what is shown. Raises
    CalledProcessError.
    """
    lines: list[Line] = []
    now = 0.5
    for command in commands:
        lines.append(Line(now, command, typed=True))
        now += TYPING_S * len(command)
        output = _run_in_terminal(translate(command), environment)
        lines += [Line(now + min(second, MAX_WAIT_S), text) for second, text in output]
        now = max(now, lines[-1].time_s) + READING_S
    return lines


def _run_in_terminal(command: str, environment: Mapping[str, str]) -> list[tuple[float, str]]:
    """Run a command on a terminal; return seconds since its start and text of each line."""
    master_end, terminal_end = pty.openpty()
    fcntl.ioctl(terminal_end, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    terminal_environment = {**environment, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS)}
    began = time.monotonic()
    process = subprocess.Popen(
        ["bash", "-c", command], env=terminal_environment, stdin=terminal_end, stdout=terminal_end, stderr=terminal_end
    )
    os.close(terminal_end)
    lines, rest = [], b""
    while chunk := _read(master_end):
        *complete_lines, rest = (rest + chunk).split(b"\n")
        lines += [(time.monotonic() - began, line.decode(errors="replace")) for line in complete_lines]
    os.close(master_end)
    if process.wait():
        raise subprocess.CalledProcessError(process.returncode, command, "\n".join(text for _, text in lines))
    visible_lines = [(second, text.rstrip("\r").rpartition("\r")[2]) for second, text in lines]
    return [(second, text) for second, text in visible_lines if plain(text)]


def _read(descriptor: int) -> bytes:
    """Return the next bytes of the terminal, empty at its end."""
    wait([descriptor])
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:  # the other side is closed
        return b""


def plain(text: str) -> str:
    """Return a text without escape sequences."""
    return ESCAPE.sub("", text).rstrip()


def draw_session(lines: Sequence[Line], title: str) -> str:
    """Return the session as SVG; each line appears at its time and stays."""
    height = TOP + LINE * len(lines) + 10
    elements = [_line_element(line, TOP + LINE * row) for row, line in enumerate(lines)]
    frame = FRAME.format(
        width=WIDTH, height=height, inner=WIDTH - 8, middle=WIDTH / 2, style=STYLE, title=escape(title)
    )
    return "\n".join([frame, *elements, "</svg>", ""])


def _line_element(line: Line, y: int) -> str:
    typed = f'<tspan class="g">$</tspan> <tspan class="typed">{escape(line.text)}</tspan>'
    attributes = f'class="line" x="{LEFT}" y="{y}" xml:space="preserve" style="animation-delay: {line.time_s:.2f}s"'
    return f"<text {attributes}>{typed if line.typed else _spans(line.text)}</text>"


def _spans(text: str) -> str:
    """Return the parts of a line, each with the classes of its colors."""
    pieces, classes, end = [], "", 0
    for sequence in ESCAPE.finditer(text):
        pieces.append((classes, text[end : sequence.start()]))
        end = sequence.end()
        if sequence[2] == "m":
            codes = [int(code or 0) for code in sequence[1].split(";")]
            classes = " ".join(COLOURS[code] for code in codes if code in COLOURS)
    pieces.append((classes, text[end:].rstrip()))
    return "".join(_span(classes, escape(piece)) for classes, piece in pieces if piece)


def _span(classes: str, text: str) -> str:
    return f'<tspan class="{classes}">{text}</tspan>' if classes else text
