"""Errors of the API, each with the code that gRPC and HTTP answer with."""

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
        """The HTTP status that goes with the code."""
        return _STATUS[self.code]

    @property
    def described(self) -> str:
        """The text that slogd's gateway gives for an error inside a stream."""
        name = "".join(word.capitalize() for word in self.code.name.split("_"))
        return f"rpc error: code = {name} desc = {self.message}"


class BadRequest(ApiError):
    """The request can never succeed as it stands."""

    code = Code.INVALID_ARGUMENT


class NoSuchTopic(ApiError):
    """The topic does not exist."""

    code = Code.NOT_FOUND


class NotAllowed(ApiError):
    """The caller has not the right; internal topics cannot be written from outside by anybody."""

    code = Code.PERMISSION_DENIED


class Unauthenticated(ApiError):
    """No token, or one that is not known."""

    code = Code.UNAUTHENTICATED


class AlreadyExists(ApiError):
    """The topic exists already."""

    code = Code.ALREADY_EXISTS


class NotFound(ApiError):
    """The transaction, or what else was named, does not exist."""

    code = Code.NOT_FOUND


class OutOfOrder(ApiError):
    """A producer's sequence number is older than what is remembered, leaves a gap, or is stored with other rows."""

    code = Code.FAILED_PRECONDITION


class Aborted(ApiError):
    """The transaction took too long: begin it again."""

    code = Code.ABORTED


class Exhausted(ApiError):
    """Disk, topics or a message's size are at their limit; may succeed later."""

    code = Code.RESOURCE_EXHAUSTED


class TooLong(Exhausted):
    """The body of an HTTP request is longer than is taken."""

    @property
    def status(self) -> HTTPStatus:
        return HTTPStatus.REQUEST_ENTITY_TOO_LARGE


class UnknownEncoding(BadRequest):
    """The body of an HTTP request is packed in a way that is not understood."""

    @property
    def status(self) -> HTTPStatus:
        return HTTPStatus.UNSUPPORTED_MEDIA_TYPE


class TooSlow(ApiError):
    """The body of an HTTP request did not come in time."""

    code = Code.ABORTED

    @property
    def status(self) -> HTTPStatus:
        return HTTPStatus.REQUEST_TIMEOUT


class Busy(ApiError):
    """More is being sent at once than is taken: come back later."""

    code = Code.UNAVAILABLE


class Stopping(ApiError):
    """The server stops: come back later."""

    code = Code.UNAVAILABLE


class Damaged(ApiError):
    """What is asked for cannot be read and could not be set aside either."""

    code = Code.DATA_LOSS
