"""The calls of slogd.StructuredLog on a channel, as a generated stub has them, made from the service's descriptor."""

from __future__ import annotations

import grpc

from penstock.slogd import slogd_pb2 as pb

SERVICE = pb.DESCRIPTOR.services_by_name["StructuredLog"]


class StructuredLogStub:
    """Has one attribute for each method of the service, of its name."""

    def __init__(self, channel: grpc.Channel) -> None:
        for method in SERVICE.methods:
            ways = ["stream" if streams else "unary" for streams in (method.client_streaming, method.server_streaming)]
            asked, answered = getattr(pb, method.input_type.name), getattr(pb, method.output_type.name)
            call = getattr(channel, "_".join(ways))
            path = f"/{SERVICE.full_name}/{method.name}"
            setattr(self, method.name, call(path, asked.SerializeToString, answered.FromString))
