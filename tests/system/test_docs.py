"""The commands of the documentation run page by page against a real daemon."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from textwrap import dedent

import httpx
import pytest

from docsite.hooks import GENERATED
from docsite.pictures import with_ports_of
from penstock.testing.pipe import Pipe

DOCS = Path(__file__).parents[2] / "docs"
PAGES = (
    *("index", "tutorial", "listeners", "logbuffer", "tables", "balance", "coming"),
    *("alarms", "operating", "senders", "server", "troubleshooting", "upgrading", "metrics"),
)
ELSEWHERE = {"log": "test_docs_log", "kafka": "test_docs_kafka", "tail": "test_tail"}
"""Pages with a file of their own."""


def blocks_of(page: str, language: str) -> list[str]:
    file = f"{page}.md"
    text = GENERATED[file]() if file in GENERATED else (DOCS / file).read_text()
    return [dedent(block) for block in re.findall(rf"^ *```{language}\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)]


def commands_of(page: str) -> list[str]:
    return [line for block in blocks_of(page, "sh") for line in block.splitlines() if line]


def run(pipe: Pipe, command: str) -> str:
    return pipe.run("bash", "-c", with_ports_of(pipe, command))


def test_each_page_with_commands_is_tested() -> None:
    pages = {path.stem for path in DOCS.glob("*.md")} | {name.removesuffix(".md") for name in GENERATED}
    assert {page for page in pages if commands_of(page)} == {*PAGES, *ELSEWHERE}
    assert all((Path(__file__).parent / f"{name}.py").exists() for name in ELSEWHERE.values())
    assert [page for page in pages if blocks_of(page, "bash") or blocks_of(page, "shell")] == []


@pytest.mark.parametrize("page", PAGES)
def test_commands_of_a_page_run_in_order(one_pipe: Pipe, page: str) -> None:
    commands = commands_of(page)
    assert commands
    outputs = {command: run(one_pipe, command) for command in commands}
    expected_texts = {command: text for command, text in SAID.items() if command in outputs}
    assert [command for command, text in expected_texts.items() if text not in outputs[command]] == []


def test_program_of_the_tutorial_reads_the_sent_messages(one_pipe: Pipe) -> None:
    one_pipe.run("bash", "-c", "echo kite | penstock produce kites")
    (program,) = blocks_of("tutorial", "python")
    program = with_ports_of(one_pipe, program).replace('"events"', '"kites"')
    assert one_pipe.run(sys.executable, "-c", program).endswith("b'kite'\n")


def test_metrics_of_a_pipe_are_documented(one_pipe: Pipe) -> None:
    one_pipe.datagrams(b"x")
    one_pipe.settled()
    answered = re.findall(r"^# TYPE (\w+)", httpx.get(f"http://{one_pipe.http}/metrics").text, re.MULTILINE)
    assert len(answered) > 30
    page = GENERATED["metrics.md"]()
    assert [name for name in answered if f"`{name}`" not in page] == []


SAID = {
    "penstock topics": "events",
    "penstock trace events:0": "has not landed yet",
    "penstock doctor || true": "disk",
    """penstock explain --via gelf '{"short_message": "hello", "host": "web-1"}'""": "tables landed, messages",
    "penstock consume notes --from earliest -n 1": "straight into the log",
    "penstock inspect": "print bytes:  penstock inspect ",
    "penstock inspect events-udp --batches": "accepted 1",
    "penstock inspect events-udp 48 --format ascii --skip-default-header": "DATA Header{frame-length=",
    "penstock stress --listener events-udp --stop-after 200 --rate 2000": "200",
    "penstock consume moved --format payload": "an old entry\n",
    "penstock consume orders --cursor billing -n 4 --format payload": "1\n2\n3\n4\n",
    "penstock consume syslog --from earliest --follow -n 1 --filter 'k:app_name v:shop'": "sold out",
}
"""What some of them say, so that they do not only end well."""


def test_expected_texts_belong_to_existing_commands() -> None:
    assert set(SAID) <= {command for page in PAGES for command in commands_of(page)}
