"""Errors of the log. All are LogErrors."""

from __future__ import annotations

from penstock.errors import PenstockError
from penstock.files import errors as file_errors
from penstock.files.disk_space import NO_SPACE, NO_SPACE_TEXT
from penstock.process.kernel import file_shortage

DISK_PART, LOG_PART = "disk", "log"


class LogError(PenstockError):
    """Base of all errors of the log."""


class UnknownTopic(LogError):
    """The topic does not exist."""


class InvalidTopicName(LogError):
    """The name does not conform to the pattern, or is reserved for internal topics."""


class TopicExists(LogError):
    """A topic of that name exists already."""


class InvalidSetting(LogError):
    """A setting that does not exist, or an invalid value; the text starts with its key."""


class UnknownFormat(LogError, file_errors.UnknownFormat):
    """The topic's files have a format that this version does not support."""


class OutOfSequence(LogError):
    """A producer's sequence number is older than the remembered ones, leaves a gap, or is stored with other rows."""


class StoredAlready(OutOfSequence):
    """A producer's sequence number is stored with other rows."""


class UnknownTransaction(LogError):
    """No open transaction has that id."""


class ForeignTransaction(LogError):
    """The transaction belongs to another client."""


class TransactionTimedOut(LogError):
    """The transaction was open for too long, and was aborted."""


class TooManyTopics(LogError):
    """The largest number of topics is reached."""


class MessageTooLarge(LogError):
    """A payload is larger than the topic's ``message_size_limit``, or an append larger than a batch can be."""


class LogFull(LogError):
    """The disk is full, or a limit is reached. Nothing of the append is stored; a retry works when there is room.

    ``full``: the part without space, DISK_PART, or LOG_PART for a limit of the log or of its process.
    """

    def __init__(self, text: str, full: str = DISK_PART) -> None:
        super().__init__(text)
        self.full = full


class WriteFailed(LogError):
    """The file system refused the write. Nothing of the append is visible."""


class OutcomeInDoubt(WriteFailed):
    """The file system refused the write and the removal of what was written: a crash may store the append.

    No reader sees it before. A repetition under the producer's number is stored once.
    """


class LogClosed(LogError):
    """The log was closed."""


class LogLocked(LogError, file_errors.Locked):
    """Another process has these topics open for writing."""


class CorruptBatch(LogError):
    """The rows with offsets [begin, end) cannot be read: ``Topic.verify`` turns them into a gap."""

    def __init__(self, begin: int, end: int) -> None:
        super().__init__(f"offsets {begin} to {end} are corrupt")
        self.begin = begin
        self.end = end


class NotCut(PenstockError, OSError):
    """The bytes of a refused append could not be cut off durably: after a crash, recovery may keep them."""


def write_error(error: OSError) -> LogError:
    """Return the LogError for a failed write. Its text reaches clients and therefore names no file."""
    if isinstance(error, NotCut):
        return in_doubt(error)
    if text := file_shortage(error):
        return LogFull(text, LOG_PART)
    if error.errno in NO_SPACE:
        return LogFull(error.strerror or NO_SPACE_TEXT)
    return WriteFailed(f"cannot write: {error.strerror or error}")


def in_doubt(error: OSError) -> OutcomeInDoubt:
    """Return the LogError for a refused append that could not be cut off."""
    return OutcomeInDoubt(f"cannot write, nor remove what was written: {error.strerror}; a crash may store it")
