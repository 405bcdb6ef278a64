"""Health and reflection: both versions, single methods, and tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2

from penstock.config import SecurityConfig, TokenConfig
from tests.server.running import Running

SECRET = "the secret of the reader"
TOKENS = {"reader": TokenConfig(token=SECRET, read=("*",))}


def reflected(address: str, version: str, token: str = "", **fields: str) -> Any:
    metadata = [("authorization", f"Bearer {token}")] if token else []
    with grpc.insecure_channel(address) as channel:
        call = channel.stream_stream(
            f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
            reflection_pb2.ServerReflectionRequest.SerializeToString,
            reflection_pb2.ServerReflectionResponse.FromString,
        )
        return next(call(iter([reflection_pb2.ServerReflectionRequest(**fields)]), timeout=20, metadata=metadata))


def health(address: str, service: str, token: str = "") -> str:
    metadata = [("authorization", f"Bearer {token}")] if token else []
    with grpc.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        request = health_pb2.HealthCheckRequest(service=service)
        status = stub.Check(request, timeout=20, metadata=metadata).status
        return str(health_pb2.HealthCheckResponse.ServingStatus.Name(status))


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_both_reflection_versions_describe_the_api(running: Running, version: str) -> None:
    listed = reflected(running.bound.grpc, version, list_services="")
    assert {service.name for service in listed.list_services_response.service} == {
        "slogd.StructuredLog",
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
    }
    for symbol, file in (
        ("slogd.StructuredLog", "slogd"),
        ("slogd.StructuredLog.AppendLogs", "slogd"),
        ("slogd.LogEntry", "slogd"),
        ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1"),
        ("grpc.reflection.v1.ServerReflection.ServerReflectionInfo", "grpc.reflection.v1"),
    ):
        response = reflected(running.bound.grpc, version, file_containing_symbol=symbol).file_descriptor_response
        packages = [FileDescriptorProto.FromString(data).package for data in response.file_descriptor_proto]
        assert file in packages
    for symbol in ("slogd.StructuredLog.Nothing", "slogd.Nothing", "nothing", ""):
        missing = reflected(running.bound.grpc, version, file_containing_symbol=symbol)
        assert missing.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]


def test_health_is_reported_for_service_and_server(running: Running) -> None:
    assert [health(running.bound.grpc, service) for service in ("", "slogd.StructuredLog")] == ["SERVING", "SERVING"]
    with pytest.raises(grpc.RpcError, match="NOT_FOUND"):
        health(running.bound.grpc, "nobody")


def test_health_and_reflection_need_no_token_by_default(tmp_path: Path) -> None:
    opened = Running(tmp_path / "open", SecurityConfig(tokens=TOKENS))
    try:
        assert health(opened.bound.grpc, "slogd.StructuredLog") == "SERVING"
        assert reflected(opened.bound.grpc, "v1", list_services="").list_services_response.service
        assert opened.request("GET", "/openapi.json")[0] == 200
    finally:
        opened.stop()


def test_health_and_reflection_can_require_a_token(tmp_path: Path) -> None:
    closed = Running(tmp_path / "closed", SecurityConfig(tokens=TOKENS, open_health=False, open_reflection=False))
    try:
        for version in ("v1", "v1alpha"):
            with pytest.raises(grpc.RpcError, match="UNAUTHENTICATED"):
                reflected(closed.bound.grpc, version, list_services="")
            assert reflected(closed.bound.grpc, version, SECRET, list_services="").list_services_response.service
        with pytest.raises(grpc.RpcError, match="UNAUTHENTICATED"):
            health(closed.bound.grpc, "")
        assert health(closed.bound.grpc, "", SECRET) == "SERVING"
        assert [closed.request("GET", path)[0] for path in ("/docs", "/openapi.json")] == [401, 401]
    finally:
        closed.stop()
