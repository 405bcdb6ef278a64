"""A client of slogd.StructuredLog, built from the service's descriptor like a generated stub."""

from __future__ import annotations

import grpc

from penstock.slogd import slogd_pb2 as pb

SERVICE = pb.DESCRIPTOR.services_by_name["StructuredLog"]


class StructuredLogStub:
    """A stub with one attribute per method of the service."""

    def __init__(self, channel: grpc.Channel) -> None:
        for method in SERVICE.methods:
            ways = ["stream" if streams else "unary" for streams in (method.client_streaming, method.server_streaming)]
            request_type, answer_type = getattr(pb, method.input_type.name), getattr(pb, method.output_type.name)
            call = getattr(channel, "_".join(ways))
            path = f"/{SERVICE.full_name}/{method.name}"
            setattr(self, method.name, call(path, request_type.SerializeToString, answer_type.FromString))
