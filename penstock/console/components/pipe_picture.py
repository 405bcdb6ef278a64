"""The pipe as an SVG picture, drawn from a balance and its rates; colors come from the page's CSS variables.

Start with ``draw``. Names come from senders and clients, so every text is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

from penstock.console.daemon_poll import Daemon
from penstock.console.wording import exact, rate, short
from penstock.counts import Counts, lost
from penstock.ledger.receipt import Losses, losses_of

WIDTH, ROW, GAP, TOP = 1120, 58, 14, 34
COLUMNS = {"listeners": (0, 270), "log": (425, 270), "tables": (850, 270)}
"""Left edge and width of each column."""
HEADS = {"listeners": "listeners", "log": "log buffer, then log", "tables": "tables"}
TALL_WIDTH, GROUP_GAP = 360, 74
"""Width of the picture for phones, and the space between its groups."""
RATE_WIDTH = 64
"""Space for the rate, at the right of a station's name."""
MAX_NAME_CHARS = 22
MAX_ROWS = 8
Stations = dict[str, "list[Box]"]


@dataclass(frozen=True, slots=True)
class Box:
    """A station: name, rate, a line of text, and a warning of ``kind``: ``lost`` or, for quarantine, a softer one."""

    name: str
    rate: float | None
    below: str
    leak: str = ""
    link: str = ""
    kind: str = "lost"


def draw(daemon: Daemon) -> str:
    """Return the SVG of the pipe: from left to right, and for phones from top to bottom; CSS shows one of them."""
    # Without a topic the pipes would end in the air.
    log = topics(daemon) or [Box("no topic yet", 0.0, "the first message creates one", link="/topics")]
    stations = {"listeners": listeners(daemon), "log": log, "tables": tables(daemon)}
    return f"<div>{_wide_picture(stations, daemon)}{_tall_picture(stations, daemon)}</div>"


def _wide_picture(stations: Stations, daemon: Daemon) -> str:
    rows = max(1, *(len(boxes) for boxes in stations.values()))
    parts = [_svg_start("wide-pipe", WIDTH, TOP + rows * (ROW + GAP))]
    for column, (x, width) in COLUMNS.items():
        parts.append(f'<text x="{x + width / 2}" y="18" class="head">{HEADS[column]}</text>')
        tops = _box_tops(len(stations[column]), rows)
        parts += [_box(box, x, y, width) for box, y in zip(stations[column], tops, strict=True)]
    parts += _flows(stations, rows, daemon)
    return "".join(parts) + "</svg>"


def _tall_picture(stations: Stations, daemon: Daemon) -> str:
    """Return the picture for phones: groups below each other, with the flow between them."""
    parts: list[str] = []
    y = 0.0
    pending_between = [*_pending_between(daemon).values(), None]
    for (column, boxes), pending in zip(stations.items(), pending_between, strict=True):
        parts.append(f'<text x="{TALL_WIDTH / 2}" y="{y + 18}" class="head">{HEADS[column]}</text>')
        tops = [y + TOP + number * (ROW + GAP) for number in range(len(boxes))]
        parts += [_box(box, 0, top, TALL_WIDTH) for box, top in zip(boxes, tops, strict=True)]
        y += TOP + len(boxes) * (ROW + GAP)
        if pending is not None:
            parts.append(_down(y - GAP, y - GAP + GROUP_GAP - 16, _sum(boxes)))
            middle = y + GROUP_GAP / 2 - 14
            pending_text = _pending_text(daemon, column, pending)
            parts.append(f'<text x="{TALL_WIDTH / 2 + 18}" y="{middle}" class="beside">{pending_text}</text>')
            y += GROUP_GAP - GAP
    return _svg_start("tall-pipe", TALL_WIDTH, y) + "".join(parts) + "</svg>"


def _svg_start(kind: str, width: float, height: float) -> str:
    label = "The pipe: listeners, log, tables"
    # A group, not an image: screen readers skip the links inside an image.
    return f'<svg viewBox="0 0 {width} {height:g}" class="pipe {kind}" role="group" aria-label="{label}">'


def listeners(daemon: Daemon) -> list[Box]:
    """Return a box per listener, and per API that messages came through."""
    by_name = {listener["name"]: listener for listener in daemon.balance.get("listeners", ())}
    names = list(dict.fromkeys([*daemon.stat.get("listeners", {}), *by_name]))
    losses = losses_of(daemon.balance) if daemon.balance else {}
    # Listeners without statistics yet are in the balance, new ones without counts in the statistics.
    boxes = [_listener(daemon, name, by_name.get(name, {}).get("counts", {}), losses) for name in names]
    other_sources = {route["source"] for route in daemon.balance.get("routes", ())} - set(names)
    for source in sorted(other_sources):
        accepted = daemon.rate(f"route/{source}/log/accepted")
        boxes.append(Box(source, accepted, "through the API", _loss_text(losses.get(source, Counts()))))
    return _limit_rows(boxes, "/listeners")


def _loss_text(losses: Counts) -> str:
    return f"{exact(lost_messages)} lost" if (lost_messages := losses.total()) else ""


def _listener(daemon: Daemon, name: str, counts: dict[str, int], losses: Losses) -> Box:
    leak = _loss_text(losses.get(name, Counts()))
    accepted = daemon.rate(f"listener/{name}/accepted")
    if stopped_s := daemon.stopped_s(name):
        return Box(name, accepted, f"receiver stopped for {stopped_s:.0f} s", leak or "stopped", "/listeners", "aside")
    if daemon.not_started(name):
        return Box(name, accepted, "cannot start", leak or "cannot start", "/listeners", "aside")
    if silent := daemon.silent_forwarders(name):
        below = f"forwarder to {min(silent)} silent for {silent[min(silent)]:.0f} s"
        return Box(name, accepted, below, leak or "silent", "/listeners", "aside")
    return Box(name, accepted, f"{short(counts.get('accepted', 0))} accepted", leak, "/listeners")


def topics(daemon: Daemon) -> list[Box]:
    """Return a box per topic."""
    boxes = []
    for topic in daemon.existing_topics():
        below = f"{short(topic['logged'])} logged, {short(topic['pending'])} waiting"
        leak = _loss_text(lost(topic["fates"]))
        logged = daemon.rate(f"topic/{topic['topic']}/logged")
        boxes.append(Box(topic["topic"], logged, below, leak, f"/topic/{topic['topic']}"))
    return _limit_rows(boxes, "/topics")


def tables(daemon: Daemon) -> list[Box]:
    """Return a box per view of the table."""
    fates: dict[str, int] = {}
    for topic in daemon.balance.get("topics", ()):
        for name, count in topic["fates"].items():
            key = "quarantined" if name.startswith("quarantined.") else name
            fates[key] = fates.get(key, 0) + count
    names = {"landed.event": "events", "landed.syslog": "syslog", "landed.message": "messages"}
    below = {view: f"{short(fates.get(fate, 0))} rows" for fate, view in names.items()}
    if duplicates := fates.get("duplicate", 0):  # only events are deduplicated
        below["events"] += f", {short(duplicates)} dropped as duplicates"
    boxes = [Box(view, daemon.rate(f"fate/{fate}"), below[view], "", "/pipeline") for fate, view in names.items()]
    quarantined = fates.get("quarantined", 0)
    leak = "inspect" if quarantined else ""
    boxes.append(
        Box("quarantine", daemon.rate("fate/quarantined"), f"{short(quarantined)} rows", leak, "/quarantine", "aside")
    )
    return boxes


def _limit_rows(boxes: list[Box], link: str) -> list[Box]:
    if len(boxes) <= MAX_ROWS:
        return boxes
    # Limit: a picture of a thousand topics would be unreadable; the last box sums up the rest.
    hidden = boxes[MAX_ROWS - 1 :]
    return [*boxes[: MAX_ROWS - 1], Box(f"{len(hidden)} more", _sum(hidden), "", link=link)]


def _sum(boxes: list[Box]) -> float | None:
    rates = [box.rate for box in boxes if box.rate is not None]
    # A sum with an unknown term is unknown.
    return sum(rates) if len(rates) == len(boxes) else None


def _box(box: Box, x: float, y: float, width: float) -> str:
    kind = f"box {box.kind}" if box.leak else "box"
    inner = (
        f'<rect x="{x + 1}" y="{y}" width="{width - 2}" height="{ROW}" rx="8" class="{kind}"/>'
        f"{_name(box.name, x + 14, y, width - 14 - RATE_WIDTH)}"
        f'<text x="{x + width - 14}" y="{y + 24}" class="rate">{rate(box.rate)}</text>'
        f'<text x="{x + 14}" y="{y + 44}" class="below">{escape(box.below)}</text>'
        f'<text x="{x + width - 14}" y="{y + 44}" class="leak {box.kind}">{escape(box.leak)}</text>'
    )
    return f'<a href="{escape(box.link)}">{inner}</a>' if box.link else inner


def _name(name: str, x: float, y: float, width: float) -> str:
    """Return the name of a station, cut to ``width``; the whole name shows under the pointer."""
    shown = name if len(name) <= MAX_NAME_CHARS else f"{name[: MAX_NAME_CHARS - 1]}…"
    # An inner picture clips wide characters, whatever the font.
    inner = f'<text x="0" y="24" class="name">{escape(shown)}</text><title>{escape(name)}</title>'
    return f'<svg x="{x}" y="{y}" width="{width}" height="{ROW}">{inner}</svg>'


def _box_tops(count: int, rows: int) -> list[float]:
    """Return the tops of ``count`` boxes, centered in ``rows``."""
    start = TOP + (rows - count) * (ROW + GAP) / 2
    return [start + number * (ROW + GAP) for number in range(count)]


def _pending_between(daemon: Daemon) -> dict[tuple[str, str], int]:
    """Return the messages that wait between two columns."""
    return {
        ("listeners", "log"): sum(route.get("in_buffer", 0) for route in daemon.balance.get("routes", ())),
        ("log", "tables"): sum(topic["pending"] for topic in daemon.balance.get("topics", ())),
    }


def _pending_text(daemon: Daemon, left: str, pending: int) -> str:
    if left == "listeners" and daemon.stopped_receivers:
        return "messages wait in the kernel"  # how many is unknown
    return f"{short(pending)} waiting" if pending else "nothing pending"


def _flows(stations: Stations, rows: int, daemon: Daemon) -> Iterable[str]:
    """Yield the pipes between the columns; a pipe's width shows its rate."""
    middle = TOP + rows * (ROW + GAP) / 2 - GAP / 2
    for (left, right), pending in _pending_between(daemon).items():
        x1, x2 = COLUMNS[left][0] + COLUMNS[left][1], COLUMNS[right][0]
        for boxes, edge, hub in ((stations[left], x1, x1 + 44), (stations[right], x2, x2 - 44)):
            for box, y in zip(boxes, _box_tops(len(boxes), rows), strict=True):
                yield _pipe(edge, y + ROW / 2, hub, middle, box.rate)
        yield _pipe(x1 + 44, middle, x2 - 44, middle, _sum(stations[left]))
        pending_text = _pending_text(daemon, left, pending)
        yield f'<text x="{(x1 + x2) / 2}" y="{middle - 12}" class="head pending">{pending_text}</text>'


def _pipe(x1: float, y1: float, x2: float, y2: float, rate: float | None) -> str:
    bend = (x1 + x2) / 2
    return f'<path d="M{x1},{y1} C{bend},{y1} {bend},{y2} {x2},{y2}" {_stroke(rate)}/>'


def _down(y1: float, y2: float, rate: float | None) -> str:
    return f'<path d="M{TALL_WIDTH / 2},{y1} V{y2}" {_stroke(rate)}/>'


def _stroke(rate: float | None) -> str:
    rate = rate or 0.0
    # By the number of digits: rates differ by orders of magnitude.
    width = 2 if rate <= 0 else min(3 + len(str(int(rate))) * 1.5, 12)
    return f'class="{"flow live" if rate > 0 else "flow"}" stroke-width="{width:g}"'
