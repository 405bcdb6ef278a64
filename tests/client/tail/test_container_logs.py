"""Log files of containers: entries of both formats, their pieces joined, through rotations and kills."""

from __future__ import annotations

import gzip
import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.client.tail.container_logs import complete_bytes, describe_path, read_entries
from penstock.client.tail.file_content import MAX_LINE_BYTES
from tests.client.tail.following import Following, Killed

AT = "2026-11-26T22:20:01.123456789Z"
CONTAINER = "ab" * 32
Write = Callable[[str, str, bool], bytes]


def cri(text: str, stream: str = "stdout", is_partial: bool = False) -> bytes:
    """Return a line as containerd, CRI-O and Podman write it."""
    return f"{AT} {stream} {'P' if is_partial else 'F'} {text}\n".encode()


def docker(text: str, stream: str = "stdout", is_partial: bool = False) -> bytes:
    """Return a line as Docker's json-file driver writes it."""
    return json.dumps(
        {"log": text + "\n" * (not is_partial), "stream": stream, "time": AT}, separators=(",", ":")
    ).encode() + (b"\n")


def entries_of(*lines: bytes) -> list[tuple[bytes, str | None, str | None]]:
    entries = read_entries(pa.array([line.removesuffix(b"\n") for line in lines], pa.binary()))
    columns = (entries.texts.to_pylist(), entries.streams.to_pylist(), entries.times.to_pylist())
    return list(zip(*columns, strict=True))


@pytest.mark.parametrize("write", [cri, docker])
def test_entry_has_its_text_stream_and_time(write: Write) -> None:
    lines = [write("one", "stdout", False), write("", "stderr", False), write('two "três" \\n {', "stderr", False)]
    assert entries_of(*lines) == [
        (b"one", "stdout", AT),
        (b"", "stderr", AT),
        ('two "três" \\n {'.encode(), "stderr", AT),
    ]


@pytest.mark.parametrize("write", [cri, docker])
def test_pieces_of_two_streams_that_alternate_are_joined(write: Write) -> None:
    lines = [
        write("a" * 16384, "stdout", True),
        write("error ", "stderr", True),
        write("b" * 10, "stdout", True),
        write("whole", "stderr", False),
        write("c", "stdout", False),
        write("next", "stdout", False),
    ]
    assert [(text, stream) for text, stream, _ in entries_of(*lines)] == [
        (b"error whole", "stderr"),
        (b"a" * 16384 + b"b" * 10 + b"c", "stdout"),
        (b"next", "stdout"),
    ]


def test_both_formats_and_other_lines_of_one_file_stay_in_order() -> None:
    broken = [b'{"log":"cut', b"plain text", b'{"log":7,"stream":"stdout","time":"x"}', b'{"a":1},{"b":2}', b"[]", b""]
    lines = [docker("one", "stdout", False), *broken, cri("two"), f"{AT} stdin F x".encode()]
    assert entries_of(*lines) == [
        (b"one", "stdout", AT),
        *((line, None, None) for line in broken),
        (b"two", "stdout", AT),
        (f"{AT} stdin F x".encode(), None, None),
    ]


def test_tags_after_the_first_and_missing_texts_are_understood() -> None:
    assert entries_of(f"{AT} stdout P:x a".encode(), f"{AT} stdout F:y".encode()) == [(b"a", "stdout", AT)]


@pytest.mark.parametrize("write", [cri, docker])
def test_bytes_are_complete_where_no_entry_waits(write: Write) -> None:
    whole, piece, other = write("a P b", "stdout", False), write("a", "stdout", True), write("x", "stderr", False)
    assert complete_bytes(whole * 2) == len(whole) * 2
    assert complete_bytes(whole + piece) == len(whole)
    assert complete_bytes(whole + piece + other) == len(whole)
    assert complete_bytes(piece + other + whole) == len(piece + other + whole)
    assert complete_bytes(piece) == 0


def test_docker_piece_that_ends_like_a_newline_is_a_piece() -> None:
    assert complete_bytes(docker("back\\n", "stdout", True)) == 0


@pytest.mark.parametrize(
    ("path", "annotations"),
    [
        (
            "/var/log/pods/shop_web-7d4f_0a1b-2c/nginx/3.log",
            {"namespace": "shop", "pod": "web-7d4f", "pod_uid": "0a1b-2c", "container_name": "nginx"},
        ),
        (
            "/var/log/pods/kube-system_etcd-node_77/etcd/0.log.20261126-222001",
            {"namespace": "kube-system", "pod": "etcd-node", "pod_uid": "77", "container_name": "etcd"},
        ),
        (
            f"/var/lib/docker/containers/{CONTAINER}/{CONTAINER}-json.log.1",
            {"container_id": CONTAINER},
        ),
        (
            f"/var/lib/containers/storage/overlay-containers/{CONTAINER}/userdata/ctr.log",
            {"container_id": CONTAINER},
        ),
        ("/var/log/app.log", {}),
    ],
)
def test_path_says_which_container_it_is(path: str, annotations: dict[str, str]) -> None:
    assert describe_path(path) == annotations


@pytest.mark.parametrize("config", [b'{"Name":"/web"}', b"{", b"[]", b'{"Name":["web"]}'])
def test_name_of_a_docker_container_is_read_if_it_can_be(config: bytes, tmp_path: Path) -> None:
    folder = tmp_path / "containers" / CONTAINER
    folder.mkdir(parents=True)
    (folder / "config.v2.json").write_bytes(config)
    name = describe_path(str(folder / f"{CONTAINER}-json.log")).get("container_name")
    assert (name == "web") == (config == b'{"Name":"/web"}')


def test_names_that_are_no_utf8_are_annotations_with_replaced_characters(tmp_path: Path) -> None:
    here = Following(tmp_path, "*/*/*/*.log", containers=True)
    names = ["pods/a_b\udcff_c/web/0.log", f"x/containers/{CONTAINER}/{CONTAINER}-json.log"]
    for name in names:
        here.path(name).parent.mkdir(parents=True)
        here.write(cri("text"), name)
    here.path(names[1]).with_name("config.v2.json").write_bytes(rb'{"Name":"/web\ud800"}')
    assert here.run() == [b"text", b"text"]
    annotations = [dict(row["annotations"]) for row in here.topic.rows]
    assert {"b?", None} == {each.get("pod") for each in annotations}
    assert {"web", "web?"} == {each["container_name"] for each in annotations}


@pytest.mark.parametrize("write", [cri, docker])
def test_tailer_appends_joined_entries_with_annotations_of_path_and_line(write: Write, tmp_path: Path) -> None:
    here = Following(tmp_path, "pods/*/*/*.log*", containers=True, annotations={"node": "n1"})
    name = "pods/shop_web_77/nginx/0.log"
    here.path(name).parent.mkdir(parents=True)
    here.write(write("first", "stderr", False) + write("sec", "stdout", True), name)
    assert here.run() == [b"first"]
    here.write(write("ond", "stdout", False)[:20], name)
    assert here.run() == [b"first"]
    here.write(write("ond", "stdout", False)[20:], name)
    assert here.run() == [b"first", b"second"]
    assert dict(here.topic.rows[1]["annotations"]) == {
        "node": "n1",
        "file": str(here.path(name)),
        "namespace": "shop",
        "pod": "web",
        "pod_uid": "77",
        "container_name": "nginx",
        "stream": "stdout",
        "time": AT,
    }


def test_entry_larger_than_a_read_is_cut_after_a_piece(tmp_path: Path) -> None:
    here = Following(tmp_path, containers=True)
    piece = "x" * 16384
    pieces = MAX_LINE_BYTES // len(piece) + 10
    here.write(b"".join(cri(piece, "stdout", True) for _ in range(pieces)) + cri("end"))
    assert b"".join(here.run()) == piece.encode() * pieces + b"end"
    assert len(here.topic.lines) == 2


def test_piece_at_the_end_of_a_rotated_file_is_appended(tmp_path: Path) -> None:
    here = Following(tmp_path, "a.log*", containers=True)
    here.write(cri("one") + cri("begun", "stdout", True))
    assert here.run() == [b"one"]
    here.path().rename(here.path("a.log.1"))
    here.write(cri("two"))
    assert here.run() == [b"one", b"two"]
    here.clock.advance(60)
    assert here.run() == [b"one", b"two", b"begun"]


@pytest.mark.parametrize("write", [cri, docker])
def test_last_line_without_a_newline_is_appended_once_after_five_seconds(write: Write, tmp_path: Path) -> None:
    here = Following(tmp_path, containers=True)
    here.write(write("started", "stdout", False) + write("panic: x", "stderr", True))
    assert here.run() == [b"started"]
    here.clock.advance(4.9)
    assert here.run() == [b"started"]
    here.clock.advance(0.1)
    here.topic.dies = "after"
    with pytest.raises(Killed):
        here.run()
    here.kill()
    here.topic.dies = ""
    here.write(write("next run", "stderr", False))
    assert here.run() == [b"started", b"panic: x", b"next run"]


@pytest.mark.parametrize("write", [cri, docker])
def test_closed_stream_delays_lines_of_the_other_one_by_five_seconds_once(write: Write, tmp_path: Path) -> None:
    here = Following(tmp_path, containers=True)
    here.write(write("begun", "stdout", True))
    for number in range(5):
        here.write(write(f"error {number}", "stderr", False))
        assert here.run() == []
        here.clock.advance(1)
    errors = [f"error {number}".encode() for number in range(5)]
    assert here.run() == [b"begun", *errors]
    here.write(write("error 5", "stderr", False))
    assert here.run() == [b"begun", *errors, b"error 5"]


def test_piece_waits_anew_for_its_next_one_after_lines_were_complete(tmp_path: Path) -> None:
    here = Following(tmp_path, containers=True)
    here.write(cri("a", "stdout", True))
    assert here.run() == []
    here.clock.advance(4)
    here.write(cri("b") + cri("c", "stdout", True))
    assert here.run() == [b"ab"]
    here.clock.advance(4)
    assert here.run() == [b"ab"]
    here.write(cri("d"))
    assert here.run() == [b"ab", b"cd"]


class Container:
    """A runtime that writes numbered entries of both streams in pieces, and rotates their file."""

    def __init__(self, here: Following, write: Write) -> None:
        self.here, self.write, self.number, self.texts = here, write, 0, list[bytes]()

    def log(self) -> None:
        """Write an entry of each stream, the one of stderr between the pieces of the one of stdout."""
        self.number += 1
        out, err = f"out {self.number} P ", f"err {self.number}"
        pieces = [(out, "stdout", True), (err, "stderr", False), ("more ", "stdout", True), ("end", "stdout", False)]
        for piece in pieces:
            self.here.write(self.write(*piece))
        self.texts += [err.encode(), f"{out}more end".encode()]

    def look_between_pieces(self) -> None:
        """Write a piece, let the tailer read, and write the rest."""
        self.number += 1
        content = self.write(f"slow {self.number} ", "stdout", True) + self.write("done", "stdout", False)
        self.here.write(content[: len(content) // 2])
        self.here.run()
        self.here.write(content[len(content) // 2 :])
        self.texts.append(f"slow {self.number} done".encode())

    def end_without_newline(self) -> None:
        """Write the rest of a stream that ends without a newline, and wait until no more may come."""
        self.number += 1
        self.here.write(self.write(f"rest {self.number}", "stderr", True))
        self.texts.append(f"rest {self.number}".encode())
        # A new file that may be a copy waits, too.
        for _ in range(2):
            self.here.run()
            self.here.clock.advance(5)
        self.here.run()

    def rotate(self) -> None:
        """Rename the file as kubelet and Docker do; an older one is compressed after it was read."""
        if not self.here.path().exists():
            return
        self.here.run()
        rotated = sorted(self.here.folder.glob("a.log.0*[0-9]"))
        for path in rotated:
            path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
        self.here.path().rename(self.here.path(f"a.log.{self.number:04d}{len(rotated)}"))

    def copytruncate(self) -> None:
        """Cut the file with a copy, as logrotate does, after all was read."""
        if self.here.path().exists():
            self.log()
            self.here.run()
            self.here.kill()
            shutil.copyfile(self.here.path(), self.here.path(f"a.log.9{self.number}"))
            self.here.path().write_bytes(b"")

    def kill_before(self) -> None:
        self._kill("before")

    def kill_after(self) -> None:
        self._kill("after")

    def _kill(self, moment: str) -> None:
        self.here.topic.dies = moment
        try:
            self.here.run()
        except Killed:
            self.here.kill()
        self.here.topic.dies = ""

    def restart(self) -> None:
        self.here.kill()


ACTS: list[Callable[[Container], Any]] = [
    Container.log,
    Container.look_between_pieces,
    Container.end_without_newline,
    Container.rotate,
    Container.copytruncate,
    Container.kill_before,
    Container.kill_after,
    Container.restart,
]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (b'{"log":"a}', b'{\\n","stream":"stdout","time":"%b"}' % AT.encode()),  # a text over two lines
        (b'{"x":[{}', b'{}],"log":"a\\n","stream":"stdout","time":"%b"}' % AT.encode()),  # a list over two lines
    ],
)
def test_two_documents_in_a_line_do_not_make_up_for_one_over_two_lines(first: bytes, second: bytes) -> None:
    single = docker("b").removesuffix(b"\n")
    lines = [first, second, single + b" , " + single, single]
    assert entries_of(*lines) == [*((line, None, None) for line in lines[:3]), (b"b", "stdout", AT)]


@settings(max_examples=60)
@given(st.sampled_from([cri, docker]), st.lists(st.sampled_from(ACTS), max_size=12))
def test_each_entry_is_appended_once_in_any_order_of_events(write: Write, acts: list[Callable[..., Any]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        here = Following(Path(name), "a.log*", containers=True)
        container = Container(here, write)
        for act in acts:
            act(container)
        container.log()
        here.run()
        here.clock.advance(5)
        here.run()
        assert sorted(here.topic.lines) == sorted(container.texts)
        here.kill()


@pytest.mark.parametrize("time", [b"2026-11-26T\xff", b"2026-11-26T\xc3\xa9", b"2026-11-26T\x00", b"2026-11-26T1\t2"])
def test_line_with_bytes_in_its_time_that_no_time_has_is_unchanged(time: bytes) -> None:
    line = time + b" stdout F text"
    assert entries_of(line, cri("next")) == [(line, None, None), (b"next", "stdout", AT)]


NO_NEWLINE = st.binary(max_size=30).map(lambda data: data.replace(b"\n", b""))
ENTRIES = st.sampled_from([cri("a P"), cri("b", "stderr", True), docker("c", "stdout", True), docker("d")])


@st.composite
def lines_with_foreign_bytes(draw: st.DrawFn) -> bytes:
    """Return an entry's line, of which some bytes are replaced by others."""
    line, other = draw(ENTRIES)[:-1], draw(NO_NEWLINE)
    begin, end = sorted((draw(st.integers(0, len(line))), draw(st.integers(0, len(line)))))
    return line[:begin] + other + line[end if draw(st.booleans()) else begin :]


@settings(max_examples=200)
@given(st.lists(st.one_of(NO_NEWLINE, ENTRIES.map(lambda line: line[:-1]), lines_with_foreign_bytes()), max_size=12))
def test_any_bytes_are_entries_and_complete_bytes_end_a_line(lines: list[bytes]) -> None:
    content = b"".join(line + b"\n" for line in lines)
    end = complete_bytes(content)
    assert end == 0 or content[end - 1 : end] == b"\n"
    joined = read_entries(pa.array(lines, pa.binary()))
    assert len(joined.texts) == len(joined.streams) == len(joined.is_partial) <= len(lines)
