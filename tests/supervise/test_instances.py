"""Running instances are found from any folder, and commands in a folder without data name them."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli.common import name_instance_elsewhere
from penstock.supervise import instances
from penstock.supervise.instances import Instance, running_instances
from penstock.testing.pipe import Pipe
from tests.cli.command_line import run


def test_running_instance_is_found_until_it_ends(tmp_path: Path) -> None:
    pipe = Pipe(tmp_path)
    pipe.start()
    try:
        assert pipe.process is not None
        instance = Instance(pipe.process.pid, pipe.data_dir, pipe.http)
        assert instance in running_instances()
    finally:
        pipe.stop()
    assert instance not in running_instances()


def test_commands_in_a_folder_without_data_name_the_running_instances(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    pipe = Pipe(tmp_path)
    pipe.start()
    try:
        for command in ("sql SELECT", "trace a-1", "tables rows", "pipeline status", "schema infer x"):
            completed = run(*command.split(), folder=elsewhere)
            assert completed.status == 2
            assert f"no data directory at {elsewhere}/penstock-data" in completed.errors
            assert f"process {pipe.process and pipe.process.pid} on {pipe.data_dir}" in completed.errors
    finally:
        pipe.stop()
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("has_data", [True, False])
def test_answers_of_an_instance_on_another_data_directory_say_so(tmp_path: Path, has_data: bool) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    if has_data:
        (elsewhere / "penstock-data").mkdir()
    pipe = Pipe(tmp_path)
    pipe.start()
    try:
        own = ("-o", f"data_dir={pipe.data_dir}", "-o", f"log.http={pipe.http}", "-o", f"log.grpc={pipe.grpc}")
        for command in ("topics", "balance"):
            completed = run(command, *own[2:], folder=elsewhere)
            assert completed.status == 0, completed.errors
            assert f"no penstock runs on {elsewhere}/penstock-data (data_dir)" in completed.errors
            assert f"process {pipe.process and pipe.process.pid} on {pipe.data_dir}" in completed.errors
            assert run(command, *own, folder=elsewhere).errors == ""
        assert run("topics", "--rpc", pipe.grpc, folder=elsewhere).errors.count("no penstock runs") == 0
    finally:
        pipe.stop()


def test_data_directory_that_may_not_be_seen_changes_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(path: Path) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(instances, "find_supervisor", refuse)
    name_instance_elsewhere(tmp_path, "127.0.0.1:8844")
    assert capsys.readouterr().err == ""
