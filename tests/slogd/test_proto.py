from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from penstock.slogd import slogd_pb2 as pb
from penstock.slogd import slogd_pb2_grpc

ROOT = Path(__file__).parents[2]
GENERATED = ("slogd_pb2.py", "slogd_pb2.pyi", "slogd_pb2_grpc.py")


def test_generating_again_gives_the_committed_files(tmp_path: Path) -> None:
    if version("grpcio-tools") != slogd_pb2_grpc.GRPC_GENERATED_VERSION:
        pytest.skip(f"needs grpcio-tools {slogd_pb2_grpc.GRPC_GENERATED_VERSION}, which generated them")
    outputs = [f"--{kind}_out={tmp_path}" for kind in ("python", "pyi", "grpc_python")]
    protoc = [sys.executable, "-m", "grpc_tools.protoc", f"-I{ROOT}", *outputs, "penstock/slogd/slogd.proto"]
    subprocess.run(protoc, check=True, cwd=ROOT, timeout=60)
    for name in GENERATED:
        assert (tmp_path / "penstock" / "slogd" / name).read_text() == (ROOT / "penstock/slogd" / name).read_text()


def test_the_numbers_are_those_of_slogd() -> None:
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
        known = {field.name: field.number for field in message.DESCRIPTOR.fields}
        assert {name: known.pop(name) for name in fields} == fields
        assert all(number > max(fields.values()) for number in known.values())


def test_the_typed_stub_names_what_is_generated() -> None:
    stub = (ROOT / "penstock/slogd/slogd_pb2_grpc.pyi").read_text()
    for method in pb.DESCRIPTOR.services_by_name["StructuredLog"].methods:
        ways = ["Stream" if streams else "Unary" for streams in (method.client_streaming, method.server_streaming)]
        types = f"[pb.{method.input_type.name}, pb.{method.output_type.name}]"
        assert f"    {method.name}: grpc.{''.join(ways)}MultiCallable{types}\n" in stub
        assert f"    def {method.name}(" in stub
        assert hasattr(slogd_pb2_grpc.StructuredLogServicer, method.name)
