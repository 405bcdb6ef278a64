"""A terminal session as a moving picture: commands are run for real, and their lines come when they came."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

COLUMNS, ROWS = 100, 40
TYPING = 0.03
"""Seconds for each letter of a command."""
READING = 1.2
"""Seconds from the end of a command to the next one."""
WAITING = 2.0
"""Seconds after which nobody likes to watch a command: a longer wait is shown as this."""
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
    """A line of the session: when it came (seconds from the beginning), its text with escape sequences."""

    at: float
    text: str
    typed: bool = False


def recorded(commands: Sequence[str], environment: Mapping[str, str], meant: Callable[[str], str] = str) -> list[Line]:
    """The session of ``commands``, each run by bash as ``meant`` has it. Raises CalledProcessError."""
    lines: list[Line] = []
    now = 0.5
    for command in commands:
        lines.append(Line(now, command, typed=True))
        now += TYPING * len(command)
        said = _run(meant(command), {**environment, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS)})
        lines += [Line(now + min(at, WAITING), text) for at, text in said]
        now = max(now, lines[-1].at) + READING
    return lines


def _run(command: str, environment: Mapping[str, str]) -> list[tuple[float, str]]:
    """What a command says on a terminal: seconds since its start, and line."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    began = time.monotonic()
    process = subprocess.Popen(
        ["bash", "-c", command], env=dict(environment), stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    lines, rest = [], b""
    while chunk := _read(ours):
        *whole, rest = (rest + chunk).split(b"\n")
        lines += [(time.monotonic() - began, one.decode(errors="replace")) for one in whole]
    os.close(ours)
    if process.wait():
        raise subprocess.CalledProcessError(process.returncode, command, "\n".join(text for _, text in lines))
    shown = [(at, text.rstrip("\r").rpartition("\r")[2]) for at, text in lines]
    return [(at, text) for at, text in shown if plain(text)]


def _read(descriptor: int) -> bytes:
    """What comes next, empty at the end."""
    select.select([descriptor], [], [])
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:  # the other side is closed
        return b""


def plain(text: str) -> str:
    """Without escape sequences."""
    return ESCAPE.sub("", text).rstrip()


def drawn(lines: Sequence[Line], title: str) -> str:
    """The session as SVG, which shows each line when it came and stays as it is at the end."""
    height = TOP + LINE * len(lines) + 10
    shown = [_shown(line, TOP + LINE * place) for place, line in enumerate(lines)]
    frame = FRAME.format(
        width=WIDTH, height=height, inner=WIDTH - 8, middle=WIDTH / 2, style=STYLE, title=escape(title)
    )
    return "\n".join([frame, *shown, "</svg>", ""])


def _shown(line: Line, y: int) -> str:
    typed = f'<tspan class="g">$</tspan> <tspan class="typed">{escape(line.text)}</tspan>'
    place = f'class="line" x="{LEFT}" y="{y}" xml:space="preserve" style="animation-delay: {line.at:.2f}s"'
    return f"<text {place}>{typed if line.typed else _spans(line.text)}</text>"


def _spans(text: str) -> str:
    """A line's pieces, each with the classes of its colours."""
    pieces, classes, end = [], "", 0
    for found in ESCAPE.finditer(text):
        pieces.append((classes, text[end : found.start()]))
        end = found.end()
        if found[2] == "m":
            codes = [int(code or 0) for code in found[1].split(";")]
            classes = " ".join(COLOURS[code] for code in codes if code in COLOURS)
    pieces.append((classes, text[end:].rstrip()))
    return "".join(_span(classes, escape(piece)) for classes, piece in pieces if piece)


def _span(classes: str, text: str) -> str:
    return f'<tspan class="{classes}">{text}</tspan>' if classes else text
