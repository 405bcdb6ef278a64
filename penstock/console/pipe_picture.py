"""The pipe as a picture: SVG, drawn from a balance and its rates. Colours come from the page's variables."""

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
TALL, BETWEEN = 360, 74
"""Width of the picture for a phone, and the room between two of its groups."""
MOST_ROWS = 8
Stations = dict[str, "list[Box]"]


@dataclass(frozen=True, slots=True)
class Box:
    """One station: its name, the line below it, what is to be said of it and how bad that is: ``lost`` or ``aside``."""

    name: str
    rate: float | None
    below: str
    leak: str = ""
    link: str = ""
    kind: str = "lost"


def draw(daemon: Daemon) -> str:
    """The SVG of the pipe now: from left to right, and for a phone from top to bottom; the page shows one of them."""
    stations = {"listeners": listeners(daemon), "log": topics(daemon), "tables": tables(daemon)}
    return f"<div>{_wide(stations, daemon)}{_tall(stations, daemon)}</div>"


def _wide(stations: Stations, daemon: Daemon) -> str:
    rows = max(1, *(len(boxes) for boxes in stations.values()))
    parts = [_opened("wide-pipe", WIDTH, TOP + rows * (ROW + GAP))]
    for column, (x, width) in COLUMNS.items():
        parts.append(f'<text x="{x + width / 2}" y="18" class="head">{HEADS[column]}</text>')
        places = _places(len(stations[column]), rows)
        parts += [_box(box, x, y, width) for box, y in zip(stations[column], places, strict=True)]
    parts += _flows(stations, rows, daemon)
    return "".join(parts) + "</svg>"


def _tall(stations: Stations, daemon: Daemon) -> str:
    """Each group below the one before, with the flow between them."""
    parts: list[str] = []
    y = 0.0
    waiting = [*_waiting(daemon).values(), None]
    for (column, boxes), waits in zip(stations.items(), waiting, strict=True):
        parts.append(f'<text x="{TALL / 2}" y="{y + 18}" class="head">{HEADS[column]}</text>')
        tops = [y + TOP + number * (ROW + GAP) for number in range(len(boxes))]
        parts += [_box(box, 0, top, TALL) for box, top in zip(boxes, tops, strict=True)]
        y += TOP + len(boxes) * (ROW + GAP)
        if waits is not None:
            parts.append(_down(y - GAP, y - GAP + BETWEEN - 16, _sum(boxes)))
            parts.append(f'<text x="{TALL / 2 + 18}" y="{y + BETWEEN / 2 - 14}" class="beside">{_waits(waits)}</text>')
            y += BETWEEN - GAP
    return _opened("tall-pipe", TALL, y) + "".join(parts) + "</svg>"


def _opened(kind: str, width: float, height: float) -> str:
    said = "The pipe: listeners, log, tables"
    return f'<svg viewBox="0 0 {width} {height:g}" class="pipe {kind}" role="img" aria-label="{said}">'


def listeners(daemon: Daemon) -> list[Box]:
    """A box for each listener, and for each interface that messages came by."""
    by_name = {one["name"]: one for one in daemon.balance.get("listeners", ())}
    names = list(dict.fromkeys([*daemon.stat.get("listeners", {}), *by_name]))
    losses = losses_of(daemon.balance) if daemon.balance else {}
    boxes = [_listener(daemon, name, by_name.get(name, {}).get("counts", {}), losses) for name in names]
    others = {route["source"] for route in daemon.balance.get("routes", ())} - set(names)
    for source in sorted(others):
        accepted = daemon.rate(f"route/{source}/log/accepted")
        boxes.append(Box(source, accepted, "through the API", _leak(losses.get(source, Counts()))))
    return _few(boxes)


def _leak(losses: Counts) -> str:
    return f"{exact(gone)} lost" if (gone := losses.total()) else ""


def _listener(daemon: Daemon, name: str, counts: dict[str, int], losses: Losses) -> Box:
    leak = _leak(losses.get(name, Counts()))
    accepted = daemon.rate(f"listener/{name}/accepted")
    return Box(name, accepted, f"{short(counts.get('accepted', 0))} accepted", leak, "/listeners")


def topics(daemon: Daemon) -> list[Box]:
    """A box for each topic."""
    boxes = []
    for topic in daemon.topics_there():
        below = f"{short(topic['logged'])} logged, {short(topic['pending'])} waiting"
        leak = _leak(lost(topic["fates"]))
        logged = daemon.rate(f"topic/{topic['topic']}/logged")
        boxes.append(Box(topic["topic"], logged, below, leak, f"/topic/{topic['topic']}"))
    return _few(boxes)


def tables(daemon: Daemon) -> list[Box]:
    """A box for each view of the table."""
    fates: dict[str, int] = {}
    for topic in daemon.balance.get("topics", ()):
        for name, count in topic["fates"].items():
            key = "quarantined" if name.startswith("quarantined.") else name
            fates[key] = fates.get(key, 0) + count
    names = {"landed.event": "events", "landed.syslog": "syslog", "landed.message": "messages"}
    below = {view: f"{short(fates.get(fate, 0))} rows" for fate, view in names.items()}
    if duplicates := fates.get("duplicate", 0):  # only events are compared
        below["events"] += f", {short(duplicates)} dropped as duplicates"
    boxes = [Box(view, daemon.rate(f"fate/{fate}"), below[view], "", "/pipeline") for fate, view in names.items()]
    quarantined = fates.get("quarantined", 0)
    leak = "look at them" if quarantined else ""
    boxes.append(
        Box("quarantine", daemon.rate("fate/quarantined"), f"{short(quarantined)} rows", leak, "/quarantine", "aside")
    )
    return boxes


def _few(boxes: list[Box]) -> list[Box]:
    if len(boxes) <= MOST_ROWS:
        return boxes
    rest = boxes[MOST_ROWS - 1 :]
    return [*boxes[: MOST_ROWS - 1], Box(f"{len(rest)} more", _sum(rest), "")]


def _sum(boxes: list[Box]) -> float | None:
    rates = [box.rate for box in boxes if box.rate is not None]
    return sum(rates) if len(rates) == len(boxes) else None


def _box(box: Box, x: float, y: float, width: float) -> str:
    kind = f"box {box.kind}" if box.leak else "box"
    inner = (
        f'<rect x="{x + 1}" y="{y}" width="{width - 2}" height="{ROW}" rx="8" class="{kind}"/>'
        f'<text x="{x + 14}" y="{y + 24}" class="name">{escape(box.name)}</text>'
        f'<text x="{x + width - 14}" y="{y + 24}" class="rate">{rate(box.rate)}</text>'
        f'<text x="{x + 14}" y="{y + 44}" class="below">{escape(box.below)}</text>'
        f'<text x="{x + width - 14}" y="{y + 44}" class="leak {box.kind}">{escape(box.leak)}</text>'
    )
    return f'<a href="{escape(box.link)}">{inner}</a>' if box.link else inner


def _places(count: int, rows: int) -> list[float]:
    """The tops of ``count`` boxes, in the middle of ``rows``."""
    start = TOP + (rows - count) * (ROW + GAP) / 2
    return [start + number * (ROW + GAP) for number in range(count)]


def _waiting(daemon: Daemon) -> dict[tuple[str, str], int]:
    """Messages between two groups."""
    return {
        ("listeners", "log"): sum(route.get("in_buffer", 0) for route in daemon.balance.get("routes", ())),
        ("log", "tables"): sum(topic["pending"] for topic in daemon.balance.get("topics", ())),
    }


def _waits(pending: int) -> str:
    return f"{short(pending)} waiting" if pending else "nothing pending"


def _flows(stations: Stations, rows: int, daemon: Daemon) -> Iterable[str]:
    """The pipes between the columns, as thick as what flows in them."""
    middle = TOP + rows * (ROW + GAP) / 2 - GAP / 2
    for (left, right), pending in _waiting(daemon).items():
        x1, x2 = COLUMNS[left][0] + COLUMNS[left][1], COLUMNS[right][0]
        for boxes, edge, hub in ((stations[left], x1, x1 + 44), (stations[right], x2, x2 - 44)):
            for box, y in zip(boxes, _places(len(boxes), rows), strict=True):
                yield _pipe(edge, y + ROW / 2, hub, middle, box.rate)
        yield _pipe(x1 + 44, middle, x2 - 44, middle, _sum(stations[left]))
        yield f'<text x="{(x1 + x2) / 2}" y="{middle - 12}" class="head">{_waits(pending)}</text>'


def _pipe(x1: float, y1: float, x2: float, y2: float, rate: float | None) -> str:
    bend = (x1 + x2) / 2
    return f'<path d="M{x1},{y1} C{bend},{y1} {bend},{y2} {x2},{y2}" {_stroke(rate)}/>'


def _down(y1: float, y2: float, rate: float | None) -> str:
    return f'<path d="M{TALL / 2},{y1} V{y2}" {_stroke(rate)}/>'


def _stroke(rate: float | None) -> str:
    """As thick as what flows."""
    rate = rate or 0.0
    width = 2 if rate <= 0 else min(3 + len(str(int(rate))) * 1.5, 12)
    return f'class="{"flow live" if rate > 0 else "flow"}" stroke-width="{width:g}"'
