"""``penstock inspect`` over recorded files: LogInspector's text, JSON, and our own batches."""

from __future__ import annotations

import json
import lzma
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock import records
from penstock.cli.listener.inspect import inspect as command
from penstock.cli.options import Commands
from penstock.config import ListenerConfig
from penstock.counts import Counts
from penstock.handover.paths import buffer_file, position_file
from penstock.logbuffer import Parameters, Publication, Subscription, mtu_for
from tests.ingest.ingest_life import live

GOLDEN = Path(__file__).parents[2] / "logbuffer" / "golden"
OPTIONS = {
    "hex": [],
    "hex16": ["16"],
    "ascii": ["--format", "ascii"],
    "usascii20_skiphdr": ["20", "--format", "ascii", "--skip-default-header"],
    "hex8_scanzero": ["8", "--scan-over-zeroes"],
}
TEXTS = sorted(path.name.removesuffix(".xz") for path in GOLDEN.glob("*.txt.xz"))


def unpacked(name: str) -> bytes:
    return lzma.decompress((GOLDEN / f"{name}.xz").read_bytes())


def inspect(*arguments: object) -> tuple[int, str, str]:
    """Exit status, standard output and standard error."""
    app = Commands()
    app.command("inspect")(command)
    result = CliRunner().invoke(app, [*map(str, arguments)])
    return result.exit_code, result.stdout_bytes.decode(), result.stderr


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    path = tmp_path / "2.logbuffer"
    path.write_bytes(unpacked("excl_sizes__01_maxlen.logbuffer"))
    return path


@pytest.mark.parametrize("text", TEXTS)
def test_inspect_prints_the_recorded_text(text: str, tmp_path: Path) -> None:
    path = tmp_path / "2.logbuffer"
    name, kind, _ = text.split(".")
    path.write_bytes(unpacked(f"{name}.logbuffer"))
    status, printed, _ = inspect(path, *OPTIONS[kind])
    assert status == 0
    ours, theirs = printed.split("\n"), unpacked(text).decode().split("\n")
    assert ours[1].endswith(f" Inspection dump for {path}")
    del ours[1], theirs[1]
    assert ours == theirs


def test_recordings_cover_every_option() -> None:
    assert {text.split(".")[1] for text in TEXTS} == set(OPTIONS)


def test_inspect_prints_the_same_as_json(recorded: Path) -> None:
    status, printed, _ = inspect(recorded, "--json")
    document = json.loads(printed)
    assert (status, document["path"], document["metadata"]["mtu_length"]) == (0, str(recorded), 1408)
    assert document["default_header"]["session_id"] == 404496857
    assert [len(term["frames"]) for term in document["terms"]] == [20, 0, 0]
    assert "data" not in document["terms"][0]["frames"][1]
    _, printed, _ = inspect(recorded, 8, "--json")
    assert len(json.loads(printed)["terms"][0]["frames"][2]["data"]) <= 16


def ours(path: Path) -> None:
    with Publication.create(path, Parameters(65536, mtu_for(8000), 1, 1, 0)) as publication:
        publication.consumed(0)
        for rows in (1, 3):
            document = {"v": 1, "counts": {"accepted": rows}}
            publication.offer(records.encode(records.body([b"x"] * rows), document), rows << 16)
        publication.offer(b"not ours")


def test_batches_lists_penstocks_frames(tmp_path: Path) -> None:
    ours(tmp_path / "log")
    status, printed, _ = inspect(tmp_path / "log", "--batches", "--json")
    batches = json.loads(printed)
    assert status == 0
    assert [(batch["rows"], batch["reserved_value"]) for batch in batches] == [(1, 1 << 16), (3, 3 << 16), (None, 0)]
    assert batches[1]["position"] == (batches[0]["frame_length"] + 31) // 32 * 32
    assert batches[1]["document"]["counts"] == {"accepted": 3}
    assert batches[2]["problem"]
    status, printed, _ = inspect(tmp_path / "log", "--batches")
    assert status == 0
    for word in ("position", "bytes", "rows", "accepted 3", str(batches[1]["frame_length"])):
        assert word in printed


@pytest.fixture
def listeners(tmp_path: Path) -> Path:
    """The data directory of two listeners: of three messages, the reader of ``events`` has read the first."""
    buffers = tmp_path / "buffers"
    buffers.mkdir()
    live(buffers, ListenerConfig(name="quiet", protocol="tcp", port=1))
    life = live(buffers, ListenerConfig(name="events", protocol="udp", port=1))
    for payloads in ([b"one"], [b"two", b"three"]):
        counts = Counts({"seen": len(payloads), "accepted": len(payloads)})
        life.publisher.publish(records.body(payloads), counts, 0)
    with Subscription(buffer_file(buffers, "events")) as frames:
        (first,) = frames.poll(limit_frames=1)
    life.position.mark, life.position.position = 1, first.end
    return tmp_path


def test_summary_says_how_far_readers_are_behind(listeners: Path) -> None:
    status, printed, _ = inspect("-o", f"data_dir={listeners}", "--json")
    events, quiet = json.loads(printed)
    end, (reader,) = events["end"], events["readers"]
    assert (status, events["listener"], events["messages"], reader["name"]) == (0, "events", 3, "log")
    assert (reader["behind"], reader["behind_bytes"]) == (2, end - reader["position"])
    assert 0 < reader["position"] < end
    assert (quiet["messages"], quiet["newest_at"], quiet["end"]) == (0, None, 0)
    status, printed, _ = inspect("-o", f"data_dir={listeners}")
    first, second, third, *rest = printed.splitlines()
    assert first.split() == [
        "listener",
        "messages",
        "newest",
        "(UTC)",
        "written",
        "to",
        "reader",
        "read",
        "to",
        "behind",
    ]
    assert second.startswith("events ")
    assert second.endswith(f"2 messages, {end - reader['position']:,} bytes")
    assert re.split(" {2,}", third) == ["quiet", "0", "none", "0", "log", "0", "nothing"]
    assert rest[-1] == "print bytes:  penstock inspect events --dump"


def test_listener_is_summarized_and_dumped_on_request(listeners: Path) -> None:
    data_dir = ["-o", f"data_dir={listeners}"]
    printed = inspect("events", *data_dir)[1]
    assert printed.splitlines()[1].startswith("events ")
    assert "quiet" not in printed
    for options in (["--dump"], ["3"], ["--format", "hex"], ["--skip-default-header"], ["--scan-over-zeroes"]):
        assert "Inspection dump for" in inspect("events", *options, *data_dir)[1].split("\n")[1]
    assert "metadata" in json.loads(inspect("events", "--dump", "--json", *data_dir)[1])


def test_file_of_a_listener_is_dumped_as_by_loginspector_without_options(listeners: Path) -> None:
    file = listeners / "buffers" / "events.logbuffer"
    assert inspect(file)[1] == inspect(file, "--dump")[1]
    assert "Inspection dump for" in inspect(file)[1]


def test_damaged_file_of_one_listener_hides_no_other(listeners: Path) -> None:
    position = position_file(listeners / "buffers", "events", "log")
    position.write_bytes(b"short")
    status, printed, complaint = inspect("-o", f"data_dir={listeners}", "--json")
    quiet, events = json.loads(printed)
    assert (status, quiet["listener"], events["listener"]) == (1, "quiet", "events")
    assert events["error"] in complaint.replace("\n", "")
    assert [line[:5] for line in inspect("-o", f"data_dir={listeners}")[1].splitlines()[1:2]] == ["quiet"]
    position.unlink()
    assert inspect("events", "-o", f"data_dir={listeners}")[0] == 0
    assert not position.exists(), "inspecting makes no position"


def test_name_in_another_folder_is_no_listener_of_the_data_directory(listeners: Path) -> None:
    assert inspect(listeners / "elsewhere" / "events", "-o", f"data_dir={listeners}")[0] != 0


def test_summary_without_buffers_names_the_next_step(tmp_path: Path) -> None:
    status, _, complaint = inspect("-o", f"data_dir={tmp_path}")
    assert (status, complaint) == (
        1,
        f"penstock: {tmp_path}/buffers has no log buffer: they are made at the start of `penstock up` or "
        "`penstock serve`\n",
    )
    status, _, complaint = inspect("-o", f"data_dir={tmp_path}/none")
    assert status == 2
    assert f"no data directory at {tmp_path}/none" in complaint
    assert inspect("--batches", "-o", f"data_dir={tmp_path}")[0] == 2


@pytest.mark.parametrize("options", [[], ["--json"], ["--batches"], ["--batches", "--json"]])
@pytest.mark.parametrize("content", [b"", b"some text\n" * 30_000, bytes(3 * 65536 + 4096)])
def test_other_file_is_one_error_line(content: bytes, options: list[str], tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    status, printed, complaint = inspect(path, *options)
    assert (status, printed) == (1, "")
    assert complaint.startswith(f"penstock: {path} is not a log buffer: ")
    assert complaint.count("\n") == 1


def test_missing_file_is_one_error_line(tmp_path: Path) -> None:
    status, _, complaint = inspect(tmp_path / "none", "-o", f"data_dir={tmp_path}")
    missing = f"penstock: {tmp_path}/none: no such file, nor a listener of this name with a log buffer"
    assert (status, complaint) == (1, f"{missing}\n")
    (tmp_path / "buffers").mkdir()
    (tmp_path / "buffers" / "web.logbuffer").touch()
    _, _, complaint = inspect(tmp_path / "none", "-o", f"data_dir={tmp_path}")
    assert complaint == f"{missing}; {tmp_path}/buffers has those of web\n"


@pytest.mark.parametrize("arguments", [["--format", "octal"], ["-3"], ["many"]])
def test_inspect_rejects_invalid_options(recorded: Path, arguments: list[str]) -> None:
    assert inspect(recorded, *arguments)[0] == 2


def test_inspect_is_a_command(recorded: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "penstock.cli.main", "inspect"]
    process = subprocess.run([*command, str(recorded), "16"], capture_output=True, timeout=60)
    theirs = unpacked("excl_sizes__01_maxlen.hex16.txt").split(b"\n")
    assert (process.returncode, process.stdout.split(b"\n")[2:]) == (0, theirs[2:])
    (tmp_path / "no").write_text("no log buffer")
    process = subprocess.run([*command, str(tmp_path / "no")], capture_output=True, timeout=60)
    assert (process.returncode, process.stdout, process.stderr.count(b"\n")) == (1, b"", 1)


def test_inspect_does_not_change_the_file(recorded: Path) -> None:
    before = recorded.read_bytes()
    for options in ([], ["--json"], ["--batches"]):
        inspect(recorded, *options)
    assert recorded.read_bytes() == before


def test_inspect_shows_a_file_with_damaged_metadata_and_names_the_damage(recorded: Path) -> None:
    _, sound, _ = inspect(recorded)
    with recorded.open("r+b") as file:
        file.seek(-4096 + 0x110, 2)
        file.write(bytes(4))
    status, printed, complaint = inspect(recorded)
    assert (status, printed.replace("MTU length: 0\n", "")) == (0, re.sub("MTU length: [0-9]+\n", "", sound))
    assert "MTU 0 is not a multiple of 32" in complaint
    assert json.loads(inspect(recorded, "--json")[1])["problem"].startswith("MTU 0 is")
