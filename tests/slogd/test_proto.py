from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.slogd import slogd_pb2 as pb

ROOT = Path(__file__).parents[2]
GENERATED = ("slogd_pb2.py", "slogd_pb2.pyi")


def test_protoc_generates_the_committed_files(tmp_path: Path) -> None:
    outputs = [f"--{kind}_out={tmp_path}" for kind in ("python", "pyi")]
    protoc = [sys.executable, "-m", "grpc_tools.protoc", f"-I{ROOT}", *outputs, "penstock/slogd/slogd.proto"]
    subprocess.run(protoc, check=True, cwd=ROOT, timeout=60)
    generated, committed = tmp_path / "penstock" / "slogd", ROOT / "penstock" / "slogd"
    if version_of(generated) != version_of(committed):
        pytest.skip(f"needs the protoc of {version_of(committed)}, which generated them")
    for name in GENERATED:
        assert (generated / name).read_text() == (committed / name).read_text()


def version_of(folder: Path) -> str:
    (line,) = re.findall("Protobuf Python Version: .*", (folder / "slogd_pb2.py").read_text())
    return str(line)


def test_field_numbers_equal_those_of_slogd() -> None:
    numbers = {
        pb.LogEntry: {"offset": 1, "timestamp": 2, "protobuf": 3, "raw_bytes": 4, "annotations": 5},
        pb.AppendRequest: {"topic": 1, "logs": 2},
        pb.AppendResponse: {"offsets": 1},
        pb.GetLogsRequest: {"topic": 1, "offset": 2, "timestamp": 3, "position": 4, "max_messages": 6},
        pb.GetLogsResponse: {"logs": 2},
        pb.ListTopicsResponse: {"topic": 1},
        pb.Topic: {"name": 1},
    }
    for message, fields in numbers.items():
        defined = {field.name: field.number for field in message.DESCRIPTOR.fields}
        assert {name: defined.pop(name) for name in fields} == fields
        assert all(number > max(fields.values()) for number in defined.values())
