"""A client that was generated from slogd's own proto."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.server.running import Running

PROTO = """
syntax = "proto3";
package slogd;
import "google/protobuf/any.proto";
import "google/protobuf/timestamp.proto";
service StructuredLog {
  rpc AppendLogs(AppendRequest) returns (AppendResponse);
  rpc GetLogs(GetLogsRequest) returns (GetLogsResponse);
  rpc StreamLogs(GetLogsRequest) returns (stream GetLogsResponse);
  rpc ListTopics(ListTopicsRequest) returns (ListTopicsResponse);
}
message LogEntry {
  uint64 offset = 1;
  google.protobuf.Timestamp timestamp = 2;
  map<string, string> annotations = 5;
  oneof entry { google.protobuf.Any protobuf = 3; bytes raw_bytes = 4; }
}
message AppendRequest { string topic = 1; repeated LogEntry logs = 2; }
message AppendResponse { repeated uint64 offsets = 1; }
message GetLogsRequest {
  enum Position { UNSPECIFIED = 0; EARLIEST = 1; LATEST = 2; }
  string topic = 1;
  oneof start_at { uint64 offset = 2; google.protobuf.Timestamp timestamp = 3; Position position = 4; }
  int32 max_messages = 6;
}
message GetLogsResponse { repeated LogEntry logs = 2; }
message ListTopicsRequest {}
message Topic { string name = 1; }
message ListTopicsResponse { repeated Topic topic = 1; }
"""
CLIENT = """
import json, sys
import grpc
import old_pb2 as pb
import old_pb2_grpc
from google.protobuf.duration_pb2 import Duration

stub = old_pb2_grpc.StructuredLogStub(grpc.insecure_channel(sys.argv[1]))
packed = pb.LogEntry(annotations={"k": "v"})
packed.protobuf.Pack(Duration(seconds=5))
many = [pb.LogEntry(raw_bytes=b"%d" % n, annotations={"n": str(n)}) for n in range(1000)]
appended = stub.AppendLogs(pb.AppendRequest(topic="t", logs=[packed, *many]), timeout=20)
page = stub.GetLogs(pb.GetLogsRequest(topic="t", max_messages=2000), timeout=20)
last = stub.GetLogs(pb.GetLogsRequest(topic="t", position=pb.GetLogsRequest.LATEST, max_messages=1), timeout=20)
after = stub.GetLogs(pb.GetLogsRequest(topic="t", timestamp=page.logs[998].timestamp, max_messages=9), timeout=20)
stream = stub.StreamLogs(pb.GetLogsRequest(topic="t", offset=999), timeout=20)
first = [entry.offset for entry in next(stream).logs]
stub.AppendLogs(pb.AppendRequest(topic="t", logs=[pb.LogEntry(raw_bytes=b"live")]), timeout=20)
live = [entry.raw_bytes.decode() for entry in next(stream).logs]
inner = Duration()
assert page.logs[0].protobuf.Unpack(inner)
print(json.dumps({
    "offsets": list(appended.offsets),
    "read": [entry.offset for entry in page.logs],
    "payloads": [entry.raw_bytes.decode() for entry in page.logs[1:]],
    "annotations": [dict(page.logs[0].annotations), dict(page.logs[7].annotations)],
    "duration": inner.seconds,
    "last": [entry.offset for entry in last.logs],
    "after": [entry.offset for entry in after.logs],
    "first": first,
    "live": live,
    "topics": [topic.name for topic in stub.ListTopics(pb.ListTopicsRequest(), timeout=20).topic],
}))
"""


def test_client_of_slogd_proto_works_unchanged(running: Running, tmp_path: Path) -> None:
    (tmp_path / "old.proto").write_text(PROTO)
    (tmp_path / "client.py").write_text(CLIENT)
    outputs = [f"--python_out={tmp_path}", f"--grpc_python_out={tmp_path}"]
    protoc = [sys.executable, "-m", "grpc_tools.protoc", f"-I{tmp_path}", *outputs, "old.proto"]
    subprocess.run(protoc, check=True, cwd=tmp_path, timeout=60)
    client = [sys.executable, "client.py", running.bound.grpc]
    answers = json.loads(subprocess.run(client, check=True, cwd=tmp_path, timeout=60, capture_output=True).stdout)
    assert answers["offsets"] == answers["read"] == list(range(1001))
    assert answers["payloads"] == [str(n) for n in range(1000)]
    assert answers["annotations"] == [{"k": "v"}, {"n": "6"}]
    assert (answers["duration"], answers["last"], answers["after"]) == (5, [1000], [998, 999, 1000])
    assert (answers["first"], answers["live"], answers["topics"]) == ([999, 1000], ["live"], ["t"])
