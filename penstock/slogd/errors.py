"""Errors of the API, each with its code for gRPC and HTTP."""

from __future__ import annotations

from enum import IntEnum
from http import HTTPStatus

from penstock.errors import PenstockError


class Code(IntEnum):
    """The canonical codes of gRPC that this API uses."""

    INVALID_ARGUMENT = 3
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


_STATUS = {
    Code.INVALID_ARGUMENT: HTTPStatus.BAD_REQUEST,
    Code.NOT_FOUND: HTTPStatus.NOT_FOUND,
    Code.ALREADY_EXISTS: HTTPStatus.CONFLICT,
    Code.FAILED_PRECONDITION: HTTPStatus.PRECONDITION_FAILED,
    Code.ABORTED: HTTPStatus.CONFLICT,
    Code.UNAUTHENTICATED: HTTPStatus.UNAUTHORIZED,
    Code.PERMISSION_DENIED: HTTPStatus.FORBIDDEN,
    Code.RESOURCE_EXHAUSTED: HTTPStatus.TOO_MANY_REQUESTS,
    Code.INTERNAL: HTTPStatus.INTERNAL_SERVER_ERROR,
    Code.UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    Code.DATA_LOSS: HTTPStatus.INTERNAL_SERVER_ERROR,
}


class ApiError(PenstockError):
    """A request that is answered with an error."""

    code = Code.INTERNAL

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    @property
    def status(self) -> HTTPStatus:
        """HTTP status of the code."""
        return _STATUS[self.code]

    @property
    def described(self) -> str:
        """The text of slogd's gateway for an error inside a stream."""
        name = "".join(word.capitalize() for word in self.code.name.split("_"))
        return f"rpc error: code = {name} desc = {self.message}"


class BadRequest(ApiError):
    """The request can never succeed unchanged."""

    code = Code.INVALID_ARGUMENT


class NoSuchTopic(ApiError):
    """The topic does not exist."""

    code = Code.NOT_FOUND


class NotAllowed(ApiError):
    """The caller lacks the right. No caller may write internal topics."""

    code = Code.PERMISSION_DENIED


class Unauthenticated(ApiError):
    """The token is missing or unknown."""

    code = Code.UNAUTHENTICATED


class AlreadyExists(ApiError):
    """The topic exists already, or a producer's sequence number is stored with other rows."""

    code = Code.ALREADY_EXISTS


class NotFound(ApiError):
    """The transaction, or another named object, does not exist."""

    code = Code.NOT_FOUND


class OutOfOrder(ApiError):
    """A producer's sequence number is older than the remembered ones, or leaves a gap; a post's earlier ones lack."""

    code = Code.FAILED_PRECONDITION


class Aborted(ApiError):
    """The transaction exceeded its time limit. The caller must begin it again."""

    code = Code.ABORTED


class Exhausted(ApiError):
    """Disk, topics or a message's size are at their limit. A retry may succeed later."""

    code = Code.RESOURCE_EXHAUSTED


class TooLong(Exhausted):
    """The body of an HTTP request exceeds the limit."""

    @property
    def status(self) -> HTTPStatus:
        return HTTPStatus.REQUEST_ENTITY_TOO_LARGE


class UnknownEncoding(BadRequest):
    """The content encoding of an HTTP request is not supported."""

    @property
    def status(self) -> HTTPStatus:
        return HTTPStatus.UNSUPPORTED_MEDIA_TYPE


class TooSlow(ApiError):
    """The body of an HTTP request did not arrive in time."""

    code = Code.ABORTED

    @property
    def status(self) -> HTTPStatus:
        return HTTPStatus.REQUEST_TIMEOUT


class Busy(ApiError):
    """Too many bytes are being received at once. The caller must retry later."""

    code = Code.UNAVAILABLE


class Unavailable(ApiError):
    """The server cannot do it now. The caller must retry later."""

    code = Code.UNAVAILABLE


class InDoubt(Unavailable):
    """The disk failed during the request, which may be stored. The caller must repeat it under its number."""


class Stopping(Unavailable):
    """The server is stopping."""


class Damaged(ApiError):
    """The requested rows cannot be read, and could not be quarantined either."""

    code = Code.DATA_LOSS
