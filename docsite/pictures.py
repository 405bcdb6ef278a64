"""Pictures of the documentation: ``python -m docsite.pictures [session|console]`` records a real run."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from docsite.terminal import Line, draw_session, record_session
from penstock.ledger.receipt import receipt
from penstock.testing.pipe import Pipe, install_command, wait_until

IMAGES = Path(__file__).parents[1] / "docs" / "images"
TITLE = "penstock: send, lose, find again"
EVENT = '{"type": "order", "uuid": "o-1", "timestamp": 1767225600000}'
SESSION = (
    f"echo '{EVENT}' | penstock send",
    "seq 20000 | penstock send --listener events-tcp",
    "printf '\\x00\\x01\\xff' > /dev/udp/127.0.0.1/23456   # a header that nobody understands",
    "sleep 1; penstock balance",
    'penstock sql "select count(*) as messages from topics.events"',
    "penstock trace events:0",
    "penstock events",
)
SENT_BEFORE = (0, 1, 20_001, 20_002)
"""Messages sent before each of the first commands; a busy machine needs longer for them than a reader for a line."""
PAGES = {"console": ("/", 760), "trace": ("/find?q=o-1", 420)}
"""The console's pages by name of their picture: path and height."""
WIDTH = 1180
MIN_LANDED_EVENTS = 4000
"""Events that land before the pictures are taken."""
SETTLE_MS = 8000
"""Time until a page shows all of its data."""


def with_ports_of(pipe: Pipe, command: str) -> str:
    """Return a command of the documentation with this pipe's ports instead of the default ones."""
    command = command.replace("127.0.0.1:8844", pipe.http).replace("127.0.0.1:8845", pipe.grpc)
    command = command.replace("/dev/udp/127.0.0.1/23456", f"/dev/udp/127.0.0.1/{pipe.address('events-udp')[1]}")
    return command.replace("--port 5514", f"--port {pipe.address('syslog-tcp')[1]}")


def session(pipe: Pipe) -> list[Line]:
    """Record the session of the home page on a pipe."""

    def prepare(command: str) -> str:
        messages = SENT_BEFORE[min(SESSION.index(command), len(SENT_BEFORE) - 1)]
        wait_until(lambda: _is_known(pipe, messages), what=f"the balance has {messages} messages")
        return with_ports_of(pipe, command)

    return record_session(SESSION, pipe.environment(), prepare)


def _is_known(pipe: Pipe, messages: int) -> bool:
    """Return whether the daemon shows this number of messages, and each loss among the events."""
    summary, events = receipt(pipe.balance()), pipe.get("/events")["events"]
    named = sum(sum(event["lost"].values()) for event in events)
    return (summary.sent, summary.parts["on_the_way"], named) == (messages, 0, summary.lost)


@contextmanager
def running_pipe(folder: Path) -> Iterator[Pipe]:
    """Run a pipe during the block."""
    install_command(folder)
    pipe = Pipe(folder)
    pipe.start()
    try:
        yield pipe
    finally:
        pipe.stop()


@contextmanager
def landing(pipe: Pipe) -> Iterator[None]:
    """Run a pipeline and senders during the block, so that pages show rows and rates."""
    command = [sys.executable, "-m", "penstock.cli.main", "pipeline", "run", *pipe.options]
    with pipe.output.open("ab") as output:
        pipeline = subprocess.Popen(command, stdout=output, stderr=output)
    stop = threading.Event()
    thread = threading.Thread(target=_trickle, args=[pipe, stop])
    thread.start()
    try:
        wait_until(lambda: pipe.fates("events")["landed.event"] > MIN_LANDED_EVENTS, 180, "events land")
        yield
    finally:
        stop.set()
        thread.join()
        pipeline.terminate()
        pipeline.wait(60)


def _trickle(pipe: Pipe, stop: threading.Event) -> None:
    """Send some hundred events per second; a few are invalid, and a few are repeated."""
    number = 0
    while not stop.wait(0.02):
        number += 1
        order = b'{"type": "order", "uuid": "u%d", "timestamp": 1767225600000, "data": {"price": %d}}'
        pipe.datagrams(*(order % (20 * number + each, each) for each in range(20)))
        if number % 20 == 0:
            pipe.datagrams(order % (20 * number, 0), b'{"type": "order", "uuid": 7}', b"just a line")


def screenshots(pipe: Pipe, folder: Path) -> Iterator[Path]:
    """Yield screenshots of the console's pages in both themes, of a pipe with traffic."""
    from tests.system.browser import browser
    from tests.system.console_process import opened, running_console

    with running_console(pipe) as console, landing(pipe), browser() as chromium:
        for name, (path, height) in PAGES.items():
            for dark in (False, True):
                page, _ = opened(chromium, console, path, width=WIDTH, dark=dark)
                page.set_viewport_size({"width": WIDTH, "height": height})
                page.wait_for_timeout(SETTLE_MS)
                path_of_picture = folder / f"{name}-{'dark' if dark else 'light'}.png"
                page.screenshot(path=path_of_picture)
                yield path_of_picture


def main() -> None:
    """Create the pictures of the named parts, by default all."""
    parts = sys.argv[1:] or ["session", "console"]
    with tempfile.TemporaryDirectory() as folder, running_pipe(Path(folder)) as pipe:
        recording = draw_session(session(pipe), TITLE)
        if "session" in parts:
            (IMAGES / "session.svg").write_text(recording)
        for path in screenshots(pipe, IMAGES) if "console" in parts else ():
            print(f"{path}: {path.stat().st_size:,} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
