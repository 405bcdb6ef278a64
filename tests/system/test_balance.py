"""Each kind of loss, injected on purpose, is named and numbered by the balance, which closes."""

from __future__ import annotations

import signal
import socket
import struct
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from penstock.testing.pipe import Pipe, wait_until
from penstock.wire.plog.cutting import fragment

UDP, TCP = "events-udp", "events-tcp"
PAYLOAD = bytes(range(32, 127)) * 50
PARTS = fragment(PAYLOAD, 7, fragment_size=1000)


def spoiled(parts: list[bytes]) -> list[bytes]:
    return [part[:16] + struct.pack(">I", 1) + part[20:] for part in parts]


def oversize(message_id: int = 9) -> list[bytes]:
    return fragment(b"x" * 20_000, message_id, fragment_size=1400)


def evicting() -> list[bytes]:
    """Return first fragments of more messages than the table holds (16 KiB of 5 KiB each)."""
    return [fragment(b"y" * 5000, number, fragment_size=2000)[0] for number in range(100, 105)]


@dataclass(frozen=True)
class Loss:
    name: str
    datagrams: list[bytes]
    counts: dict[str, int]


LOSSES = [
    Loss("nothing is lost", [b"one", b"two"], {"taken": 2, "unboxed": 2, "seen": 2, "accepted": 2}),
    Loss("a fragmented message", PARTS, {"taken": 5, "fragment.used": 5, "seen": 1, "accepted": 1}),
    Loss("an empty datagram", [b""], {"taken": 1, "empty": 1}),
    Loss("an unknown version", [b"\x01abc"], {"taken": 1, "invalid.version": 1}),
    Loss("an unknown packet type", [b"\x00\x07abc"], {"taken": 1, "invalid.type": 1}),
    Loss("a torn header", [b"\x00\x01abc", b"\x00"], {"taken": 2, "invalid.header": 2}),
    Loss("an unknown command", [b"\x00\x00KLIL"], {"taken": 1, "invalid.unknown_command": 1}),
    Loss("a command", [b"\x00\x00ping"], {"taken": 1, "command": 1}),
    Loss("a bad checksum", spoiled(PARTS), {"taken": 5, "fragment.discarded": 5, "seen": 1, "bad_checksum": 1}),
    Loss("a missing fragment", PARTS[1:], {"taken": 4, "fragment.discarded": 4, "seen": 1, "incomplete.expired": 1}),
    Loss(
        "a fragment twice",
        [*PARTS[:1], *PARTS],
        {"taken": 6, "fragment.used": 5, "fragment.duplicate": 1, "seen": 1, "accepted": 1},
    ),
    Loss(
        "a fragment after its message",
        [*PARTS, PARTS[2]],
        {"taken": 6, "fragment.used": 5, "fragment.duplicate": 1, "seen": 1, "accepted": 1},
    ),
    Loss(
        "a fragment that says otherwise",
        [*PARTS[:1], *spoiled(PARTS[1:2]), *PARTS[1:]],
        {"taken": 6, "fragment.used": 5, "fragment.invalid": 1, "seen": 1, "accepted": 1},
    ),
    Loss(
        "a hole and a jump in the ids",
        [fragment(b"m", number)[0] for number in (*range(2), *range(3, 15), *range(200, 212))],
        {"taken": 26, "fragment.used": 26, "seen": 26, "accepted": 26, "hole": 1, "jump": 1},
    ),
    Loss("a message too large", oversize(), {"taken": 15, "fragment.discarded": 15, "seen": 1, "refused.oversize": 1}),
    Loss(
        "more unfinished messages than fit",
        evicting(),
        {"taken": 5, "fragment.discarded": 5, "seen": 5, "incomplete.evicted": 2, "incomplete.expired": 3},
    ),
]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A pipe shared by losses that need no pipe of their own."""
    folder = tmp_path_factory.mktemp("oracle")
    pipe = Pipe(folder)
    pipe.start()
    yield pipe
    pipe.stop()


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A pipe shared by losses of a listener with tight limits."""
    pipe = Pipe(
        tmp_path_factory.mktemp("narrow"),
        "listener.events-udp.commands_from=['10.0.0.0/8']",
        "listener.events-udp.so_rcvbuf=16KiB",
        "listener.syslog-udp.allow_from=['10.0.0.0/8']",
        "listener.syslog-tcp.allow_from=['10.0.0.0/8']",
        "topic.events.message_size_limit=1000",
    )
    pipe.start()
    yield pipe
    pipe.stop()


def grown(pipe: Pipe, before: Counter[str], listener: str = UDP) -> dict[str, int]:
    """Return the counts that changed, and by how much."""
    after = pipe.counts(listener)
    after.subtract(before)
    return {name: count for name, count in after.items() if count}


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_each_error_of_a_sender_is_named(shared: Pipe, loss: Loss) -> None:
    before = shared.counts(UDP)
    shared.datagrams(*loss.datagrams)
    wait_until(lambda: grown(shared, before) == loss.counts, what=f"{loss.counts}")
    assert shared.settled()["unaccounted"] == 0


def test_overlong_line_is_named(shared: Pipe) -> None:
    before = shared.counts(TCP)
    shared.lines(b"good\n" + b"x" * 40_000 + b"\n" + b"last without newline")
    shared.settled()
    expected = {"lines": 3, "line.message": 2, "line.overlong": 1, "seen": 2, "accepted": 2}
    expected["skipped_bytes"] = 40_000
    assert grown(shared, before, TCP) == expected
    assert shared.balance()["unaccounted"] == 0


def test_lines_that_are_not_messages_are_named(shared: Pipe) -> None:
    before = shared.counts(TCP)
    shared.lines(b"one\n\0\0PING\n\0reserved\n\0\0KLIL\n")
    wait_until(lambda: shared.counts(TCP)["lines"] == before["lines"] + 4)
    expected = {"lines": 4, "line.message": 1, "line.command": 3, "seen": 1, "accepted": 1}
    assert grown(shared, before, TCP) == expected
    assert shared.settled()["unaccounted"] == 0


def test_commands_from_other_networks_are_refused_by_name(narrow: Pipe) -> None:
    before = narrow.counts(UDP)
    narrow.datagrams(b"\x00\x00STAT")
    wait_until(lambda: grown(narrow, before) == {"taken": 1, "invalid.command_refused": 1})
    line = "receiver events-udp: commands from addresses outside commands_from: 1\n"
    wait_until(lambda: line in narrow.output.read_text())
    assert narrow.settled()["unaccounted"] == 0


def test_messages_from_other_networks_are_refused_by_name(narrow: Pipe) -> None:
    narrow.datagrams(b"<13>one", b"<13>two", listener="syslog-udp")
    wait_until(lambda: narrow.counts("syslog-udp") == {"taken": 2, "invalid.network": 2})
    narrow.lines(b"<13>three\n", "syslog-tcp")
    wait_until(lambda: narrow.counts("syslog-tcp") == {"connection_closed.network": 1})
    assert narrow.settled()["unaccounted"] == 0


def test_datagrams_dropped_by_the_kernel_are_counted(narrow: Pipe) -> None:
    before = narrow.counts(UDP)
    with narrow.paused(f"receiver {UDP}"):
        narrow.datagrams(*[b"x" * 1000] * 200)

    def counted() -> int:
        growth = Counter(grown(narrow, before))
        return growth["taken"] + growth["kernel_dropped"]

    wait_until(lambda: counted() == 200)
    assert grown(narrow, before)["kernel_dropped"] > 100
    assert narrow.settled()["unaccounted"] == 0


def test_message_refused_by_the_topic_has_failed(narrow: Pipe) -> None:
    before = narrow.counts(UDP)
    narrow.datagrams(b"small", *PARTS)
    wait_until(lambda: grown(narrow, before).get("accepted") == 2)
    assert narrow.settled()["unaccounted"] == 0
    assert grown(narrow, before)["handler_failed.log"] == 1


@pytest.mark.survives("datagrams", "peer away")
def test_network_loss_is_known_if_every_sender_counts(shared: Pipe) -> None:
    received = shared.counts("syslog-udp")["taken"]
    post = {
        "tier": "client",
        "listener": "syslog-udp",
        "sender": "me",
        "version": 1,
        "counts": {"datagrams": received + 3},
    }
    shared.datagrams(b"<13>one", listener="syslog-udp")
    assert shared.post("/ledger", post) == {"new": True}
    wait_until(lambda: shared.counts("syslog-udp")["taken"] == received + 1)
    (listener,) = (entry for entry in shared.balance()["listeners"] if entry["name"] == "syslog-udp")
    assert listener["network_lost"] == 2
    assert shared.settled()["unaccounted"] == 0


@pytest.mark.survives("datagrams", "SIGKILL")
def test_messages_open_in_a_killed_receiver_are_incomplete_by_crash(pipe: Pipe) -> None:
    pipe.datagrams(*PARTS[:3])
    wait_until(lambda: pipe.counts(UDP)["open"] == 1)
    pipe.kill(f"receiver {UDP}")
    wait_until(lambda: pipe.counts(UDP)["incomplete.crash"] == 1)
    assert pipe.counts(UDP)["fragment.discarded"] == 3
    assert pipe.settled()["unaccounted"] == 0


@pytest.mark.survives("datagrams", "SIGKILL")
def test_datagrams_queued_for_a_killed_receiver_are_not_lost(pipe: Pipe) -> None:
    pipe.datagrams(b"before")
    wait_until(lambda: pipe.counts(UDP)["accepted"] == 1)
    pid = pipe.pid(f"receiver {UDP}")
    pipe.signal(f"receiver {UDP}", signal.SIGSTOP)
    pipe.datagrams(*(b"queued %d" % i for i in range(100)))
    pipe.signal(f"receiver {UDP}", signal.SIGKILL)
    wait_until(lambda: pipe.endpoints()["pids"][f"receiver {UDP}"] not in (None, pid))
    wait_until(lambda: pipe.counts(UDP)["accepted"] == 101)
    assert pipe.settled()["unaccounted"] == 0


def test_messages_missed_by_a_lagging_log_are_policy_drops(pipe: Pipe) -> None:
    pipe.lines(b"before\n")
    wait_until(lambda: pipe.counts(TCP)["accepted"] == 1)
    pipe.settled()
    with pipe.paused("log daemon"), socket.create_connection(pipe.address(TCP), timeout=60) as sock:
        sock.sendall(b"".join(b"%06d" % number + b"x" * 1000 + b"\n" for number in range(6000)))
        sock.shutdown(socket.SHUT_WR)
        assert sock.recv(1) == b"", "the receiver has read all lines"
    wait_until(lambda: pipe.counts(TCP)["accepted"] == 6001, 60)
    balance = pipe.settled(60)
    counts = pipe.counts(TCP)
    assert counts["seen"] == counts["accepted"] == 6001
    assert counts["policy_drop.log"] > 1000
    (route,) = (route for route in balance["routes"] if route["source"] == TCP)
    assert route["delivered"] == counts["accepted"] - counts["policy_drop.log"]
    assert balance["unaccounted"] == 0


def logged(pipe: Pipe, topic: str = "events") -> int:
    return sum(int(entry["logged"]) for entry in pipe.balance()["topics"] if entry["topic"] == topic)


@pytest.mark.survives("log", "SIGKILL")
def test_killed_log_daemon_neither_loses_nor_repeats_messages(shared: Pipe) -> None:
    accepted, logged_before = shared.counts(UDP)["accepted"], logged(shared)
    shared.datagrams(*[b"before"] * 50)
    shared.signal("log daemon", signal.SIGSTOP)  # so that some wait for it
    shared.datagrams(*[b"meanwhile"] * 50)
    shared.kill("log daemon")
    shared.datagrams(*[b"after"] * 50)
    wait_until(lambda: shared.counts(UDP)["accepted"] == accepted + 150, 60)
    wait_until(lambda: logged(shared) == logged_before + 150, 60)
    assert shared.settled(60)["unaccounted"] == 0


@pytest.mark.survives("log", "flood")
def test_messages_are_pending_until_a_full_log_has_space(pipes: Callable[..., Pipe]) -> None:
    pipe = pipes("log.max_bytes=192KiB")
    pipe.datagrams(*[b"x" * 1000] * 100, pause=0.001)
    wait_until(lambda: pipe.counts(UDP)["accepted"] == 100, 60)
    pipe.datagrams(*[b"x" * 1000] * 200, pause=0.001)
    wait_until(lambda: pipe.counts(UDP)["accepted"] == 300 and "log.max_bytes" in pipe.output.read_text(), 60)
    balance = pipe.balance()
    assert (balance["unaccounted"], balance["pending"] > 0) == (0, True)
    request_api(pipe, "PATCH", "/topics/events", {"stale_after": 0})

    def room() -> bool:
        request_api(pipe, "POST", "/cleanup")
        return logged(pipe) == 300

    wait_until(room, 60)
    assert pipe.settled(60)["unaccounted"] == 0
    assert pipe.counts(UDP)["accepted"] == 300


def test_messages_by_http_are_accepted_and_logged(shared: Pipe) -> None:
    def route() -> dict[str, Any]:
        return next((each for each in shared.balance()["routes"] if each["source"] == "http"), {"accepted": 0})

    before = route()["accepted"]
    shared.post("/topic/by-http/logs", {"logs": [{"raw_bytes": "b25l"}, {"raw_bytes": "dHdv"}]})
    wait_until(lambda: route()["accepted"] == before + 2)
    assert (route()["delivered"], route()["unaccounted"]) == (before + 2, 0)
    assert logged(shared, "by-http") == 2


def flip(pipe: Pipe, text: bytes) -> None:
    (segment,) = (pipe.data_dir / "topics" / "events").glob("*.arrows")
    position = segment.read_bytes().index(text)
    with segment.open("r+b") as file:
        file.seek(position)
        file.write(bytes([text[0] ^ 0xFF]))


@pytest.mark.survives("log", "damaged bytes")
def test_flipped_byte_in_a_segment_becomes_a_gap_with_its_count(pipe: Pipe) -> None:
    for number in range(5):
        pipe.datagrams(*(b"%d flip me %d" % (number, i) for i in range(10)))
        wait_until(lambda number=number: logged(pipe) == 10 * number + 10)
    pipe.settled()
    pipe.stop()
    flip(pipe, b"2 flip me 5")  # while nobody looks
    pipe.start()
    assert pipe.settled()["unaccounted"] == 0
    lost = pipe.fates("events")["gap.corrupt"]
    assert 1 <= lost <= 10
    assert len(pipe.get("/topic/events/logs?max_messages=100")["logs"]) == 50 - lost
    flip(pipe, b"4 flip me 5")  # while the daemon runs
    (gap,) = pipe.post("/topic/events/verify?begin=0&end=50")["gaps"]
    assert len(pipe.get("/topic/events/logs?max_messages=100")["logs"]) == 50 - lost - (gap["end"] - gap["begin"])
    assert pipe.settled()["unaccounted"] == 0


def test_unreadable_frame_is_counted_as_corrupt(pipe: Pipe) -> None:
    pipe.datagrams(b"first")
    pipe.settled()
    marker = uuid.uuid4().hex.encode()
    with pipe.paused("log daemon"):
        pipe.datagrams(marker)
        buffer = pipe.data_dir / "buffers" / f"{UDP}.logbuffer"
        wait_until(lambda: marker in buffer.read_bytes())
        data = buffer.read_bytes()
        frame = data.rindex(b"\xff\xff\xff\xff", 0, data.index(marker))
        with buffer.open("r+b") as file:
            file.seek(frame)
            file.write(b"\0\0\0\0")
        pipe.datagrams(b"last")
        time.sleep(0.2)
    wait_until(lambda: pipe.counts(UDP)["corrupt"] == 1)
    assert pipe.settled()["unaccounted"] == 0


def landed(pipe: Pipe, begin: int, through: int) -> None:
    """Post offsets [begin, through) of the topic ``events`` as landed, like a pipeline."""
    counts = [{"source": UDP, "bucket": 0, "counts": {"landed.message": through - begin}}]
    post = {"tier": "landed", "topic": "events", "version": through, "through": through, "counts": counts}
    assert pipe.post("/ledger", post) == {"new": True}


def request_api(pipe: Pipe, method: str, path: str, document: Any = None) -> Any:
    answer = httpx.request(method, f"http://{pipe.http}{path}", json=document, timeout=30)
    return answer.raise_for_status().json()


def closed_also_after_a_restart(pipe: Pipe, fates: dict[str, int]) -> None:
    before = pipe.settled()
    assert before["unaccounted"] == 0
    assert pipe.fates("events") == fates
    pipe.stop()
    pipe.start()
    assert (pipe.data_dir / "topics" / "LEDGER").exists()
    assert "reads all batches" not in pipe.output.read_text()
    assert pipe.settled() == before


def test_rows_that_expire_before_landing_are_expired_unread(pipe: Pipe) -> None:
    pipe.datagrams(*(b"%d" % number for number in range(10)))
    wait_until(lambda: pipe.counts(UDP)["accepted"] == 10)
    pipe.settled()
    landed(pipe, 0, 4)
    request_api(pipe, "PATCH", "/topics/events", {"stale_after": 0, "retention_policy": "keep"})
    request_api(pipe, "POST", "/cleanup")
    assert pipe.fates("events") == {"landed.message": 4}
    request_api(pipe, "PATCH", "/topics/events", {"retention_policy": "expire"})
    swept = request_api(pipe, "POST", "/cleanup")["swept"]
    assert [(gap["topic"], gap["begin"], gap["end"], gap["reason"]) for gap in swept] == [
        ("events", "0", "4", "expired_read"),
        ("events", "4", "10", "expired_unread"),
    ]
    closed_also_after_a_restart(pipe, {"landed.message": 4, "gap.expired_unread": 6})


def test_rows_of_a_deleted_topic_are_deleted_and_its_offsets_continue(pipe: Pipe) -> None:
    pipe.datagrams(*(b"%d" % number for number in range(10)))
    wait_until(lambda: pipe.counts(UDP)["accepted"] == 10)
    pipe.settled()
    landed(pipe, 0, 4)
    request_api(pipe, "DELETE", "/topics/events")
    assert "events" not in str(pipe.get("/topics"))
    closed_also_after_a_restart(pipe, {"landed.message": 4, "gap.deleted": 6})
    pipe.datagrams(b"again")
    wait_until(lambda: pipe.counts(UDP)["accepted"] == 11)
    (entry,) = wait_until(lambda: pipe.get("/topic/events/logs?max_messages=5").get("logs"))
    assert entry["offset"] == "10"


EVENT = b'{"type": "a", "uuid": "%d", "timestamp": 1, "data": {}}'
FATES = {
    "landed.event": [EVENT % 1, EVENT % 2],
    "landed.message": [b"yipee!"],
    "duplicate": [EVENT % 1, EVENT % 1],
    "quarantined.bad_json": [b'{"type": "a", "uuid": ', EVENT % 3 + b" trailing", b"{\xff}"],
    "quarantined.missing_type": [b'{"uuid": "4", "timestamp": 1}'],
    "quarantined.missing_uuid": [b'{"type": "a", "timestamp": 1}'],
    "quarantined.bad_type": [b'{"type": 7, "uuid": "5", "timestamp": 1}'],
    "quarantined.bad_uuid": [b'{"type": "a", "uuid": 6, "timestamp": 1}'],
    "quarantined.bad_timestamp": [b'{"type": "a", "uuid": "7", "timestamp": "1"}'],
    "quarantined.type_not_allowed": [b'{"type": "b", "uuid": "8", "timestamp": 1}'],
}


@pytest.mark.spark
@pytest.mark.timeout(200)
def test_each_fate_of_the_landing_is_named(pipes: Callable[..., Pipe]) -> None:
    pipe = pipes("pipeline.event_types=['a']")
    pipe.datagrams(*(payload for payloads in FATES.values() for payload in payloads))
    pipe.datagrams(b"<13>Jan  1 00:00:00 host app: line", listener="syslog-udp")
    sent = sum(map(len, FATES.values()))
    wait_until(lambda: pipe.counts(UDP)["accepted"] == sent and pipe.counts("syslog-udp")["accepted"] == 1)
    pipe.settled()
    command = [sys.executable, "-m", "penstock.cli.main", "pipeline", "run", "--once", *pipe.options]
    subprocess.run(command, check=True, timeout=150, capture_output=True)
    assert pipe.settled()["unaccounted"] == 0
    assert pipe.fates("events") == {name: len(payloads) for name, payloads in FATES.items()}
    assert pipe.fates("syslog") == {"landed.syslog": 1}
    (events,) = (topic for topic in pipe.balance()["topics"] if topic["topic"] == "events")
    assert {fate: sums["rows"] for fate, sums in events["uuids"].items()} == {"landed.event": 2, "duplicate": 2}
