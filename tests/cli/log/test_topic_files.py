"""``penstock log`` on the files of a data directory that no daemon has open."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.log.topic_files import log as group
from penstock.cli.options import Commands
from penstock.client import Log as Client
from penstock.counts import Origin
from penstock.files.change_log import ChangeLog
from penstock.log import Log, TopicReader, TopicSettings
from penstock.records import body
from tests.server.running import Running

app = Commands()
app.add_typer(group, name="log")
NOBODY = "127.0.0.1:1"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two topics, five batches of a hundred entries each."""
    log = Log(tmp_path / "topics")
    for name in ("good", "bad"):
        topic = log.topic(name, create=True)
        for _ in range(5):
            topic.append(body([b"%d" % n for n in range(100)]), Origin("x", 0, 0, 0)).result(20)
    log.close()
    return tmp_path


def flip(data: Path) -> None:
    """Flip one bit in the middle of the topic ``bad``."""
    (segment,) = (data / "topics" / "bad").glob("*.arrows")
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    segment.write_bytes(content)


def run(data: Path, *arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["log", *arguments, "-o", f"data_dir={data}", "--rpc", NOBODY])
    assert result.exit_code == code, (result.output, result.exception)
    return result.stdout if code < 2 else result.stderr


def test_verify_of_good_files_reports_good(data: Path) -> None:
    assert run(data, "verify") == "bad: good\ngood: good\n"
    assert run(data, "verify", "good") == "good: good\n"


def test_flipped_bit_is_found_once_and_becomes_a_gap(data: Path) -> None:
    flip(data)
    assert run(data, "verify", code=1) == "bad: 100 entries cannot be read: offsets 200 to 300\ngood: good\n"
    assert run(data, "verify") == "bad: good\ngood: good\n"
    assert list((data / "topics" / "bad" / "quarantine").iterdir())


def test_verify_prints_json(data: Path) -> None:
    flip(data)
    reports = json.loads(run(data, "verify", "bad", "nope", "--json", code=1))
    assert reports["bad"] == {"gaps": [{"begin": 200, "end": 300, "reason": "corrupt"}], "error": None}
    assert reports["nope"] == {"gaps": [], "error": "there is no topic 'nope'"}


@pytest.mark.parametrize("damage", ["missing", "cut", "wrong"])
def test_verify_rebuilds_a_damaged_index(data: Path, damage: str) -> None:
    run(data, "verify")
    (index,) = (data / "topics" / "good").glob("*.index")
    right = index.read_bytes()
    wrong = bytearray(right)
    wrong[-40] ^= 0xFF
    {
        "missing": index.unlink,
        "cut": lambda: index.write_bytes(right[:-13]),
        "wrong": lambda: index.write_bytes(wrong),
    }[damage]()
    assert run(data, "verify", "good") == "good: good\n"
    assert index.read_bytes() == right


def test_compact_rewrites_closed_segments(data: Path) -> None:
    log = Log(data / "topics", TopicSettings(segment_size_limit=20_000))
    topic = log.topic("small", create=True)
    for number in range(100):
        topic.append(body([b"%d" % number]), Origin("x", 0, 0, 0)).result(20)
    log.close()
    sizes = json.loads(run(data, "compact", "small", "--json"))["small"]
    assert 0 < sizes["after"] < sizes["before"] / 2
    assert [change["what"] for change in ChangeLog(data).newest()] == ["compact topic small"]
    assert run(data, "verify", "small") == "small: good\n"
    batches = list(TopicReader(data / "topics" / "small").read(0))
    assert [value for batch in batches for value in batch.batch.column("payload").to_pylist()] == [
        b"%d" % number for number in range(100)
    ]


def test_compact_prints_sizes(data: Path) -> None:
    assert run(data, "compact", "good") == "good: nothing to rewrite\n"
    assert json.loads(run(data, "compact", "good", "--json")) == {"good": {"before": 0, "after": 0}}


def test_topic_files_commands_work_through_the_daemon(tmp_path: Path) -> None:
    running = Running(tmp_path / "topics")
    try:
        with Client(running.bound.grpc) as client:
            for payload in (b"0", b"1" * 1000, b"2"):
                client.append("t", [payload])
        topic = running.log.topic("_own", create=True, internal=True)
        topic.append(body([b"x"]), Origin("x", 0, 0, 0)).result(20)

        def through(*arguments: str, code: int = 0) -> str:
            extra = ["log", *arguments, "-o", f"data_dir={tmp_path}", "--rpc", running.bound.grpc]
            result = CliRunner().invoke(app, extra)
            assert result.exit_code == code, result.output
            return result.stdout

        assert through("verify") == "_own: good\nt: good\n"
        (segment,) = (tmp_path / "topics" / "t").glob("*.arrows")
        segment.write_bytes(segment.read_bytes().replace(b"1" * 1000, b"1" * 999 + b"!"))
        assert through("verify", code=1) == "_own: good\nt: 1 entries cannot be read: offsets 1 to 2\n"
        assert through("verify", "nope", code=1) == "nope: cannot be checked: Topic does not exist: nope\n"
        assert through("compact", "t") == "t: nothing to rewrite\n"
    finally:
        running.stop()


def test_unusable_log_is_one_error_line(data: Path) -> None:
    assert run(data / "elsewhere", "verify", code=2) == (
        f"penstock: no log daemon answers at {NOBODY}, and {data}/elsewhere/topics does not exist\n"
    )
    log = Log(data / "topics")
    try:
        error = run(data, "verify", code=2)
    finally:
        log.close()
    assert error == (f"penstock: no log daemon answers at {NOBODY}, but another process has {data}/topics open\n")
