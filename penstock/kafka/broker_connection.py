"""A raw connection to one Kafka broker, for what confluent-kafka does not offer: record batches in their stored form.

Speaks TLS, and SASL by PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512, as the client's properties say. All
requests have versions that every broker since Kafka 1.0 answers, Kafka 4 included.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import io
import secrets
import socket
import ssl
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar, cast

from kio.schema.errors import ErrorCode
from kio.schema.fetch.v5 import request as fetch_request
from kio.schema.fetch.v5.response import FetchResponse
from kio.schema.request_header.v1.header import RequestHeader
from kio.schema.sasl_authenticate.v0.request import SaslAuthenticateRequest
from kio.schema.sasl_authenticate.v0.response import SaslAuthenticateResponse
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest
from kio.schema.sasl_handshake.v1.response import SaslHandshakeResponse
from kio.schema.types import BrokerId, TopicName
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError
from kio.static.primitive import i8, i16, i32, i32Timedelta, i64

from penstock.errors import PenstockError
from penstock.kafka.large.safe_offsets import TopicAndPartition

CLIENT_ID = "penstock"
CONNECT_TIMEOUT_S, ANSWER_TIMEOUT_S = 10.0, 30.0
FETCH_BYTES = 256 << 10
"""Size of a response; a larger batch comes whole."""
MAX_RESPONSE_BYTES = 100 << 20
"""Limit: a response in memory, the default of librdkafka's receive.message.max.bytes."""
READ_COMMITTED = i8(1)
MAX_THROTTLE_S = 10.0
SCRAM_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MAX_SCRAM_ITERATIONS = 1_000_000
"""Limit: rounds that a server may ask for; Kafka's default is 4,096 and its maximum 16,384."""
T = TypeVar("T")


class UnsupportedSecurity(PenstockError, ValueError):
    """The properties name a way to authenticate that only confluent-kafka knows."""


class RequestFailed(PenstockError, RuntimeError):
    """A broker answered with an error, or unintelligibly: retry after a look at the metadata."""

    def __init__(self, problem: ErrorCode | str) -> None:
        super().__init__(problem.name if isinstance(problem, ErrorCode) else problem)


@dataclass(frozen=True, slots=True)
class FetchedBatches:
    """A fetch response for one partition: ``aborted`` has (producer id, first offset) of aborted transactions."""

    records: memoryview
    aborted: Sequence[tuple[int, int]]
    stable_end: int


class BrokerConnection:
    """A connection to ``address`` (``host:port``), opened at once. ``kafka``: confluent-kafka's properties.

    Raises UnsupportedSecurity, RequestFailed, OSError; close it after any of them. One thread.
    """

    def __init__(self, address: str, kafka: Mapping[str, str]) -> None:
        protocol = kafka.get("security.protocol", "plaintext").lower()
        mechanism = kafka.get("sasl.mechanism", kafka.get("sasl.mechanisms", "GSSAPI")).upper()
        if protocol.startswith("sasl") and mechanism != "PLAIN" and mechanism not in SCRAM_HASHES:
            raise UnsupportedSecurity(f"sasl.mechanism {mechanism} is not supported for raw record batches")
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        context = tls_context(kafka) if protocol.endswith("ssl") else None
        self._correlation = 0
        self._socket = socket.create_connection((host, int(port)), CONNECT_TIMEOUT_S)
        try:
            if context is not None:
                self._socket = context.wrap_socket(self._socket, server_hostname=host)
            self._socket.settimeout(ANSWER_TIMEOUT_S)
            if protocol.startswith("sasl"):
                self._authenticate(mechanism, kafka.get("sasl.username", ""), kafka.get("sasl.password", ""))
        except BaseException:
            self._socket.close()
            raise

    def close(self) -> None:
        self._socket.close()

    def fetch(self, partition: TopicAndPartition, offset: int, max_bytes: int = FETCH_BYTES) -> FetchedBatches:
        """Return stored batches from the one with ``offset`` on, up to the last stable offset."""
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while True:
            response = self._request(_fetch_request(partition, offset, max_bytes), FetchResponse)
            try:
                answer = response.responses[0].partitions[0]
            except IndexError:
                raise RequestFailed("the response to a fetch has no partition") from None
            if answer.error_code is not ErrorCode.none:
                raise RequestFailed(answer.error_code)
            throttled_s = response.throttle_time.total_seconds()
            if answer.records or not throttled_s or time.monotonic() > deadline:
                break
            # A broker over its quota answers without records at once (KIP-219).
            time.sleep(min(throttled_s, MAX_THROTTLE_S))
        aborted = [(int(one.producer_id), int(one.first_offset)) for one in answer.aborted_transactions or ()]
        return FetchedBatches(memoryview(answer.records or b""), aborted, int(answer.last_stable_offset))

    def _request(self, message: Any, response_schema: type[T]) -> T:
        self._correlation += 1
        buffer = io.BytesIO()
        header = RequestHeader(
            request_api_key=i16(message.__api_key__),
            request_api_version=message.__version__,
            correlation_id=i32(self._correlation),
            client_id=CLIENT_ID,
        )
        entity_writer(RequestHeader)(buffer, header)
        entity_writer(type(message))(buffer, message)
        frame = buffer.getvalue()
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", self._receive(4))
        if not 4 <= size <= MAX_RESPONSE_BYTES:
            raise RequestFailed(f"a response announces {size} bytes")
        body = self._receive(size)
        if struct.unpack_from(">i", body)[0] != self._correlation:
            raise RequestFailed("a response belongs to another request")
        try:
            response, _ = entity_reader(cast("Any", response_schema))(body, 4)
        except (SerialError, ValueError, struct.error) as error:
            raise RequestFailed(f"a response cannot be parsed: {error!r}") from None
        return cast("T", response)

    def _receive(self, size: int) -> bytes:
        # Memory grows with the bytes that arrive, not with the announced length.
        received = bytearray()
        while len(received) < size:
            part = self._socket.recv(min(size - len(received), 1 << 20))
            if not part:
                raise ConnectionResetError("the broker closed the connection")
            received += part
        return bytes(received)

    def _authenticate(self, mechanism: str, user: str, password: str) -> None:
        handshake = self._request(SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse)
        if handshake.error_code is not ErrorCode.none:
            raise RequestFailed(handshake.error_code)
        if mechanism == "PLAIN":
            self._sasl(f"\0{user}\0{password}".encode())
            return
        client = ScramClient(SCRAM_HASHES[mechanism], user, password)
        client.finish(self._sasl(client.respond(self._sasl(client.first()))))

    def _sasl(self, message: bytes) -> bytes:
        response = self._request(SaslAuthenticateRequest(auth_bytes=message), SaslAuthenticateResponse)
        if response.error_code is not ErrorCode.none:
            raise RequestFailed(response.error_message or response.error_code)
        return bytes(response.auth_bytes)


class ScramClient:
    """The client's side of SCRAM (RFC 5802) without channel binding."""

    def __init__(self, hash_name: str, user: str, password: str, nonce: str = "") -> None:
        self._hash, self._password = hash_name, password
        self._nonce = nonce or secrets.token_urlsafe(24)
        self._bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={self._nonce}"
        self._signature = b""

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def respond(self, server_first: bytes) -> bytes:
        """Return the proof for the server's challenge. Raises RequestFailed."""
        try:
            fields = _scram_fields(server_first)
            nonce, salt, iterations = fields["r"], base64.b64decode(fields["s"]), int(fields["i"])
        except (KeyError, ValueError):
            raise RequestFailed("the broker's SCRAM challenge cannot be parsed") from None
        if not nonce.startswith(self._nonce) or not 1 <= iterations <= MAX_SCRAM_ITERATIONS:
            raise RequestFailed("the broker's SCRAM challenge has a foreign nonce or too many iterations")
        salted = hashlib.pbkdf2_hmac(self._hash, self._password.encode(), salt, iterations)
        client_key = self._hmac(salted, b"Client Key")
        without_proof = f"c={base64.b64encode(b'n,,').decode()},r={nonce}"
        signed = f"{self._bare},{server_first.decode()},{without_proof}".encode()
        signature = self._hmac(hashlib.new(self._hash, client_key).digest(), signed)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._signature = self._hmac(self._hmac(salted, b"Server Key"), signed)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def finish(self, server_final: bytes) -> None:
        """Check the server's own proof. Raises RequestFailed."""
        expected = base64.b64encode(self._signature).decode()
        try:
            is_valid = hmac.compare_digest(_scram_fields(server_final).get("v", ""), expected)
        except ValueError:
            is_valid = False
        if not is_valid:
            raise RequestFailed("the broker does not prove that it has the password")

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash)


def _scram_fields(message: bytes) -> dict[str, str]:
    return {name: text for name, _, text in (field.partition("=") for field in message.decode("ascii").split(","))}


def tls_context(kafka: Mapping[str, str]) -> ssl.SSLContext:
    """Return a context for confluent-kafka's properties ``ssl.*``. Raises UnsupportedSecurity, OSError."""
    try:
        context = ssl.create_default_context(cafile=kafka.get("ssl.ca.location"), cadata=kafka.get("ssl.ca.pem"))
        if kafka.get("ssl.endpoint.identification.algorithm", "https").lower() != "https":
            context.check_hostname = False
        if str(kafka.get("enable.ssl.certificate.verification", "true")).lower() == "false":
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if certificate := kafka.get("ssl.certificate.location"):
            context.load_cert_chain(certificate, kafka.get("ssl.key.location"), kafka.get("ssl.key.password"))
        elif any(name.startswith(("ssl.keystore", "ssl.certificate.pem")) for name in kafka):
            raise UnsupportedSecurity("raw record batches need ssl.certificate.location and ssl.key.location")
    except ssl.SSLError as error:
        raise UnsupportedSecurity(f"the certificates of Kafka's properties cannot be loaded: {error}") from None
    return context


def _fetch_request(partition: TopicAndPartition, offset: int, max_bytes: int) -> fetch_request.FetchRequest:
    topic, number = partition
    return fetch_request.FetchRequest(
        replica_id=BrokerId(-1),
        max_wait=i32Timedelta.parse(timedelta(0)),
        min_bytes=i32(0),
        max_bytes=i32(max_bytes),
        isolation_level=READ_COMMITTED,
        topics=(
            fetch_request.FetchTopic(
                topic=TopicName(topic),
                partitions=(
                    fetch_request.FetchPartition(
                        partition=i32(number), fetch_offset=i64(offset), partition_max_bytes=i32(max_bytes)
                    ),
                ),
            ),
        ),
    )
