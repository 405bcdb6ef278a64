from collections.abc import AsyncIterator, Awaitable
from typing import Any

import grpc
import grpc.aio

from penstock.server import slogd_pb2 as pb

class StructuredLogStub:
    AppendLogs: grpc.UnaryUnaryMultiCallable[pb.AppendRequest, pb.AppendResponse]
    GetLogs: grpc.UnaryUnaryMultiCallable[pb.GetLogsRequest, pb.GetLogsResponse]
    StreamLogs: grpc.UnaryStreamMultiCallable[pb.GetLogsRequest, pb.GetLogsResponse]
    ListTopics: grpc.UnaryUnaryMultiCallable[pb.ListTopicsRequest, pb.ListTopicsResponse]
    def __init__(self, channel: grpc.Channel | grpc.aio.Channel) -> None: ...

class StructuredLogServicer:
    def AppendLogs(self, request: pb.AppendRequest, context: Any) -> Awaitable[pb.AppendResponse]: ...
    def GetLogs(self, request: pb.GetLogsRequest, context: Any) -> Awaitable[pb.GetLogsResponse]: ...
    def StreamLogs(self, request: pb.GetLogsRequest, context: Any) -> AsyncIterator[pb.GetLogsResponse]: ...
    def ListTopics(self, request: pb.ListTopicsRequest, context: Any) -> Awaitable[pb.ListTopicsResponse]: ...

def add_StructuredLogServicer_to_server(
    servicer: StructuredLogServicer, server: grpc.Server | grpc.aio.Server
) -> None: ...
