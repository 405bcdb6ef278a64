"""Backup of a running instance under load, and its restore into an empty folder."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from penstock.config import Settings
from penstock.files.errors import UnknownFormat
from penstock.files.file_system import OS
from penstock.landing.table_paths import Layout
from penstock.process.kernel import has_stopped
from penstock.sql.quarantined import Selection, newest
from penstock.sql.tables import Tables
from penstock.testing.pipe import Pipe, wait_until
from penstock.upkeep.backup import MANIFEST, BackupError, make_backup, read_backup, restore_backup
from penstock.upkeep.quarantine.send_back import SendBack, count_sent_back
from tests.fuzzed import json_texts
from tests.small_disk import small_file_system
from tests.spark.spark_helpers import HandWritten
from tests.upkeep.quarantine.test_send_back import Log

CONFIGURATION = """
[[listener]]
name = "events-udp"
protocol = "udp"
port = 0
codec = "raw"
so_rcvbuf = "4MiB"
defrag.max_size = "64KiB"
[[listener.handlers]]
type = "log"
topic = "events"
[[listener.handlers]]
type = "discard"
[buffer]
term_length = "4MiB"
"""


@pytest.fixture(scope="module")
def pipe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipe]:
    pipe = Pipe(tmp_path_factory.mktemp("original"))
    pipe.configure(CONFIGURATION)
    pipe.start()
    yield pipe
    pipe.stop()


@pytest.fixture
def load(pipe: Pipe) -> Iterator[Callable[[], int]]:
    """Send datagrams during the test; the fixture stops the sender and returns the number of datagrams."""
    stopping, sent = threading.Event(), [0]

    def send() -> None:
        while not stopping.wait(0.005):
            pipe.datagrams(*[b"under load"] * 50)
            sent[0] += 50

    sender = threading.Thread(target=send)

    def stop() -> int:
        stopping.set()
        sender.join()
        return sent[0]

    sender.start()
    yield stop
    stop()


def command(pipe: Pipe, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "penstock.cli.main", "backup", *arguments, *pipe.options]


def run_backup(pipe: Pipe, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(pipe, *arguments), capture_output=True, text=True, check=False, timeout=120)


def books(balance: Any) -> dict[str, Any]:
    """Return what a listener's messages became, of which messages that wait become stored ones by themselves."""
    (listener,) = (entry for entry in balance["listeners"] if entry["name"] == "events-udp")
    return {**{name: listener["counts"].get(name, 0) for name in ("taken", "seen", "accepted", "kernel_dropped")}}


def test_restored_instance_has_the_balance_of_the_backup_under_load(
    pipe: Pipe, load: Callable[[], int], tmp_path: Path
) -> None:
    wait_until(lambda: pipe.counts("events-udp")["accepted"] > 500, what="messages arrive")
    copied = run_backup(pipe, str(tmp_path / "backup"))
    sent = load()
    assert copied.returncode == 0, copied.stderr
    assert "all processes stood still for 0." in copied.stdout
    used = subprocess.run(["du", "-s", "-B1", "--exclude=manifest.json", tmp_path / "backup"], capture_output=True)
    (shown_mb,) = re.findall(r" files, ([\d.,]+) MB on the disk", copied.stdout)
    assert float(shown_mb.replace(",", "")) == pytest.approx(int(used.stdout.split()[0]) / 1e6, abs=1)
    backup = read_backup(tmp_path / "backup")
    counts = books(backup.balance)
    assert 500 < counts["accepted"] < sent
    assert (counts["taken"], backup.balance["unaccounted"]) == (counts["accepted"], 0)
    assert (tmp_path / "backup" / "penstock.toml").stat().st_mode & 0o777 == 0o600
    assert not [name for name in backup.files if name.rpartition("/")[2] in ("token", "lock", "LOCK")]
    # The original instance has lost nothing by standing still.
    wait_until(lambda: pipe.counts("events-udp")["taken"] == sent, what="the original continues")
    assert pipe.settled()["unaccounted"] == 0

    (tmp_path / "restored").mkdir()
    restored = Pipe(tmp_path / "restored")
    restored.configure(CONFIGURATION)
    outcome = run_backup(pipe, str(tmp_path / "backup"), "--restore", str(restored.data_dir))
    assert outcome.returncode == 0, outcome.stderr
    file = tmp_path / "backup" / "penstock.toml"
    assert f"penstock up --config {file} -o data_dir={restored.data_dir}\n" in outcome.stdout
    restored.start()
    try:
        balance = restored.settled()
        assert (books(balance), balance["unaccounted"]) == (counts, 0)
        (route,) = (each for each in balance["routes"] if each["handler"] == "discard")
        # Messages that waited for the handler are delivered; no other fate changes.
        assert (route["delivered"], route["in_buffer"], route["unaccounted"]) == (counts["accepted"], 0, 0)
        restored.datagrams(*[b"new"] * 30)
        wait_until(lambda: restored.counts("events-udp")["accepted"] == counts["accepted"] + 30, what="it receives")
        (topic,) = (each for each in restored.settled()["topics"] if each["topic"] == "events")
        assert topic["end"] == counts["accepted"] + 30
    finally:
        restored.stop()


def test_receipt_of_a_backup_says_what_was_sent_back(tmp_path: Path) -> None:
    settings = Settings.model_validate({"data_dir": str(tmp_path / "data")})
    layout = Layout.for_tables(settings.tables)
    settings.topics.mkdir(parents=True)
    bad = {"topic": "t", "kind": "quarantine", "reason": "bad_json", "payload": b"{"}
    HandWritten(layout).commit({"t": 2}, [bad | {"offset": 0}, bad | {"offset": 1}])
    SendBack(layout, Log()).run(newest(Tables(layout), Selection(), 1))
    backup = make_backup(settings, tmp_path / "backup", None)
    assert backup.balance["sent_back"] == {"t": {"quarantined.bad_json": 1}}
    assert read_backup(tmp_path / "backup").balance == backup.balance


def test_backup_is_complete_although_the_list_of_sent_rows_cannot_be_read(tmp_path: Path) -> None:
    settings = Settings.model_validate({"data_dir": str(tmp_path / "data")})
    settings.topics.mkdir(parents=True)
    sent_back = Layout.for_tables(settings.tables).sent_back
    sent_back.parent.mkdir(parents=True)
    text = b'{"v":2}'  # of a later version
    sent_back.write_bytes(b"%08x%s\n" % (crc32c(text), text))
    with pytest.raises(UnknownFormat):
        count_sent_back(Layout.for_tables(settings.tables))
    backup = make_backup(settings, tmp_path / "backup", None)
    assert (backup.balance["sent_back"], backup.balance["unaccounted"]) == ({}, 0)


@pytest.mark.survives("backup", "SIGKILL")
@pytest.mark.parametrize("moment", ["before the pause", "in the pause"])
def test_killed_backup_lets_everything_continue_and_is_repeated(
    moment: str, pipe: Pipe, load: Callable[[], int], tmp_path: Path
) -> None:
    pid = pipe.pid("log daemon")
    for number in range(20):
        folder = tmp_path / f"backup{number}"
        process = subprocess.Popen(command(pipe, str(folder)))
        if moment == "in the pause":
            while process.poll() is None and not has_stopped(pid):
                pass  # the pause takes milliseconds, so another backup may be needed
        else:
            wait_until(lambda folder=folder: any(folder.rglob("*.arrows")), what="files are copied")
        process.send_signal(signal.SIGKILL)
        if process.wait() == -signal.SIGKILL:
            break
    with pytest.raises(BackupError, match="is not a complete backup"):
        restore_backup(folder, tmp_path / "restored")
    before = pipe.counts("events-udp")["accepted"]
    wait_until(lambda: pipe.counts("events-udp")["accepted"] > before, what="messages arrive")
    repeated = run_backup(pipe, str(folder))
    assert repeated.returncode == 0, repeated.stderr
    load()
    assert read_backup(folder).balance["unaccounted"] == 0
    assert run_backup(pipe, str(folder)).returncode == 1  # it is complete


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with small_file_system(tmp_path / "small", "256k") as folder:
        yield folder


@pytest.mark.survives("backup", "full disk")
def test_backup_on_a_full_disk_lets_everything_continue_and_is_repeated(
    pipe: Pipe, small_disk: Path, tmp_path: Path
) -> None:
    folder = small_disk / "backup"
    pipe.datagrams(*[bytes(1000)] * 500, pause=0.0002)
    pipe.settled()
    failed = run_backup(pipe, str(folder))
    assert (failed.returncode, "No space left on device" in failed.stderr) == (1, True), failed.stderr
    assert "Traceback" not in failed.stderr
    with pytest.raises(BackupError, match="is not a complete backup"):
        restore_backup(folder, tmp_path / "restored")
    before = pipe.counts("events-udp")["accepted"]
    pipe.datagrams(b"continues")
    wait_until(lambda: pipe.counts("events-udp")["accepted"] == before + 1, what="a message arrives")
    subprocess.run(["mount", "-o", "remount,size=256m", small_disk], check=True)
    repeated = run_backup(pipe, str(folder))
    assert repeated.returncode == 0, repeated.stderr
    assert books(read_backup(folder).balance)["accepted"] == before + 1


@pytest.mark.survives("backup", "damaged bytes")
def test_damaged_backup_and_used_folder_are_refused(pipe: Pipe, tmp_path: Path) -> None:
    folder, target = tmp_path / "backup", tmp_path / "restored"
    assert run_backup(pipe, str(folder)).returncode == 0
    assert "inside of data_dir" in run_backup(pipe, str(pipe.data_dir / "backup")).stderr
    target.mkdir()
    (target / "file").touch()
    with pytest.raises(BackupError, match="is not empty"):
        restore_backup(folder, target)
    (target / "file").unlink()
    segment = next(folder.rglob("*.arrows"))
    intact = segment.read_bytes()
    segment.write_bytes(intact[:-1] + b"\xff")
    with pytest.raises(BackupError, match=r"arrows is damaged; nothing is restored"):
        restore_backup(folder, target)
    assert not any(target.iterdir())
    segment.unlink()
    with pytest.raises(BackupError, match="is missing"):
        restore_backup(folder, target)
    segment.write_bytes(intact)
    restore_backup(folder, target)
    assert (target / segment.relative_to(folder / "data")).read_bytes() == intact
    document = json.loads((folder / MANIFEST).read_text())
    shutil.rmtree(target)
    document["files"]["data/../../outside"] = [0, 0]
    (folder / MANIFEST).write_text(json.dumps(document))
    with pytest.raises(BackupError, match="not in the backup"):
        restore_backup(folder, target)
    assert not target.exists()


def write_backup(folder: Path, names: Iterable[str] = ("data/a", "data/b/c", "tables/d")) -> None:
    """Write a backup of small files."""
    folder.mkdir()
    files = {}
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
        files[name] = [len(name), crc32c(name.encode())]
    manifest = {"version": "1", "made_at": 0, "pause_s": 0, "balance": {}, "files": files, "left_out": []}
    (folder / MANIFEST).write_text(json.dumps(manifest))


def files_below(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.survives("backup", "power cut")
def test_restored_tables_are_on_the_disk_before_the_data_directory_appears(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, target, tables = tmp_path / "backup", tmp_path / "data" / "new", tmp_path / "elsewhere" / "tables"
    write_backup(folder)
    for place in (target, tables):
        place.parent.mkdir()
    synced: list[tuple[Path, bool, bool]] = []
    monkeypatch.setattr(OS, "sync_directory", lambda path: synced.append((path, tables.exists(), target.exists())))
    restore_backup(folder, target, tables)
    # The first one is the draft of the data, without which a repetition would take the tables for those of others.
    steps = [(target.parent, False, False), (tables.parent, True, False), (target.parent, True, True)]
    assert synced == steps
    assert files_below(target) == {"a": "data/a", "b/c": "data/b/c"}
    assert files_below(tables) == {"d": "tables/d"}
    # A repetition may follow a kill before the last one.
    restore_backup(folder, target, tables)
    assert synced == [*steps, steps[-1]]


def test_restore_of_an_empty_backup_makes_the_data_directory(tmp_path: Path) -> None:
    folder = tmp_path / "backup"
    write_backup(folder, ())
    restore_backup(folder, tmp_path / "data")
    assert (tmp_path / "data").is_dir()


KILLED_RESTORES = """
import itertools, os, shutil, sys
from pathlib import Path
from penstock.upkeep import backup
folder, has_tables = Path(sys.argv[1]), bool(sys.argv[2])
changes = [(Path, "rename"), (Path, "mkdir"), (Path, "unlink"), (shutil, "rmtree")]
changes += [(backup.OS, "sync_directory"), (backup, "_copy_file")]

def kill_before(step):
    steps = itertools.count()
    def counted(function):
        return lambda *words, **options: function(*words, **options) if next(steps) != step else os.kill(os.getpid(), 9)
    for owner, name in changes:
        setattr(owner, name, counted(getattr(owner, name)))

def restore(attempt, killed_before):
    if not (pid := os.fork()):
        kill_before(killed_before)
        tables = folder.with_name(f"tables{attempt}") if has_tables else None
        backup.restore_backup(folder, folder.with_name(f"data{attempt}"), tables)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

for attempt in itertools.count():
    # The repetition is killed too, in the middle.
    statuses = [restore(attempt, step) for step in (attempt, attempt // 2, None)]
    print(*statuses)
    if not statuses[0]:
        break
"""


@pytest.mark.survives("backup", "SIGKILL")
@pytest.mark.parametrize("elsewhere", ["", "elsewhere"], ids=["all in one folder", "tables elsewhere"])
def test_restore_that_is_killed_at_any_step_is_repeated(elsewhere: str, tmp_path: Path) -> None:
    folder = tmp_path / "backup"
    write_backup(folder)
    # One process forks all attempts: where tests run, there are threads.
    command = [sys.executable, "-c", KILLED_RESTORES, folder, elsewhere]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    statuses = [line.split() for line in process.stdout.splitlines()]
    assert [status for *_, status in statuses] == ["0"] * len(statuses), process.stderr
    assert [status for status, *_ in statuses] == ["-9"] * (len(statuses) - 1) + ["0"]
    assert len(statuses) > 8
    inside = {} if elsewhere else {"tables/d": "tables/d"}
    for attempt in range(len(statuses)):
        assert files_below(tmp_path / f"data{attempt}") == {"a": "data/a", "b/c": "data/b/c"} | inside
        assert files_below(tmp_path / f"tables{attempt}") == ({"d": "tables/d"} if elsewhere else {})
    assert not [*tmp_path.glob("*.restoring")]


@pytest.mark.survives("backup", "foreign writer")
@pytest.mark.parametrize("part", ["data", "tables"])
def test_folder_with_other_files_than_those_of_a_restore_is_refused(part: str, tmp_path: Path) -> None:
    folder, places = tmp_path / "backup", {"data": tmp_path / "data", "tables": tmp_path / "tables"}
    write_backup(folder)
    restore_backup(folder, places["data"], places["tables"])
    restore_backup(folder, places["data"], places["tables"])
    (places[part] / "new").touch()
    with pytest.raises(BackupError, match="is not empty"):
        restore_backup(folder, places["data"], places["tables"])
    # Tables that no interrupted attempt has restored may be in use, although they are those of the backup.
    (places[part] / "new").unlink()
    with pytest.raises(BackupError, match="tables is not empty"):
        restore_backup(folder, tmp_path / "other", places["tables"])


@pytest.mark.survives("backup", "other format")
@given(json_texts("version", "made_at", "pause_s", "balance", "files", "left_out") | st.binary())
def test_any_manifest_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.mktemp("backup")
    (folder / MANIFEST).write_bytes(data)
    try:
        restore_backup(folder, folder / "restored")
    except BackupError:
        assert not (folder / "restored").exists()
