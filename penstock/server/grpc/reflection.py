"""gRPC reflection: describes the API, as ``v1`` and ``v1alpha``, down to single methods."""

from __future__ import annotations

from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, text_format
from grpc_reflection.v1alpha import reflection
from grpc_reflection.v1alpha import reflection_pb2 as alpha

from penstock.server.grpc.call_server import CallServer

V1ALPHA = reflection.SERVICE_NAME
V1 = V1ALPHA.replace("v1alpha", "v1")
SERVICES = (V1, V1ALPHA)
_V1_FILE = "grpc/reflection/v1/reflection.proto"


def add_reflection(server: CallServer, services: tuple[str, ...]) -> None:
    """Serve reflection of ``services``. The messages of both versions are the same on the wire."""
    _describe_v1()
    servicer = reflection.aio.ReflectionServicer(services, pool=_Descriptors())
    method = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        alpha.ServerReflectionRequest.FromString,
        alpha.ServerReflectionResponse.SerializeToString,
    )
    for name in SERVICES:
        server.add_registered_method_handlers(name, {"ServerReflectionInfo": method})


def _describe_v1() -> None:
    """Add v1's description to the pool, derived from v1alpha's.

    Workaround: grpcio-reflection contains v1alpha only.
    """
    pool = descriptor_pool.Default()
    try:
        pool.FindFileByName(_V1_FILE)
    except KeyError:
        old = descriptor_pb2.FileDescriptorProto.FromString(alpha.DESCRIPTOR.serialized_pb)
        new = text_format.Parse(str(old).replace("v1alpha", "v1"), descriptor_pb2.FileDescriptorProto())
        new.name = _V1_FILE
        pool.AddSerializedFile(new.SerializeToString())


class _Descriptors:
    """The pool of descriptors, which also finds methods."""

    def __init__(self) -> None:
        self._pool = descriptor_pool.Default()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    def FindFileContainingSymbol(self, symbol: str) -> Any:  # noqa: N802 - protobuf's name
        """Return the file that declares a symbol. Raises KeyError."""
        try:
            return self._pool.FindFileContainingSymbol(symbol)
        except KeyError:
            # Workaround: protobuf's pool finds messages and services, but not single methods.
            service, _, method = symbol.rpartition(".")
            return self._pool.FindServiceByName(service).methods_by_name[method].containing_service.file
