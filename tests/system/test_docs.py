"""The commands of the documentation run, page by page, against a real daemon."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.testing.pipe import Pipe

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("index", "listeners", "logbuffer", "tables", "balance", "coming", "operating")


def commands_of(page: str) -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", (DOCS / f"{page}.md").read_text(), re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line]


def here(pipe: Pipe, command: str) -> str:
    """The command with this pipe's addresses in the place of those that ``penstock up`` has."""
    command = command.replace("127.0.0.1:8844", pipe.http)
    return command.replace("--port 5514", f"--port {pipe.address('syslog-tcp')[1]}")


def run(pipe: Pipe, command: str) -> str:
    return pipe.run("bash", "-c", here(pipe, command))


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_work_in_their_order(one_pipe: Pipe, page: str) -> None:
    commands = commands_of(page)
    assert commands
    said = {command: run(one_pipe, command) for command in commands}
    told = {command: text for command, text in SAID.items() if command in said}
    assert [command for command, text in told.items() if text not in said[command]] == []


SAID = {
    "penstock consume notes --from earliest -n 1": "straight into the log",
    "penstock inspect events-udp --batches": "accepted 1",
    "penstock inspect events-udp 48 --format ascii --skip-default-header": "DATA Header{frame-length=",
    "penstock stress --listener events-udp --stop-after 200 --rate 2000": "200",
    "penstock consume moved --format payload": "an old entry\n",
    "penstock consume orders --cursor billing -n 4 --format payload": "1\n2\n3\n4\n",
    "penstock consume syslog --from earliest --follow -n 1 --filter 'k:app_name v:shop'": "sold out",
}
"""What some of them say, so that they do not only end well."""


def test_what_is_said_of_commands_is_said_of_commands_that_are_there() -> None:
    assert set(SAID) <= {command for page in PAGES for command in commands_of(page)}
