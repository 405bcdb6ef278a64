"""What the log raises. Everything is a LogError."""

from __future__ import annotations

import errno

from penstock.errors import PenstockError
from penstock.files import errors as file_errors

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


class LogError(PenstockError):
    """Base of all errors of the log."""


class UnknownTopic(LogError):
    """There is no topic of that name."""


class InvalidTopicName(LogError):
    """The name does not conform to the pattern, or is reserved for internal topics."""


class TopicExists(LogError):
    """There is a topic of that name already."""


class InvalidSetting(LogError):
    """A setting that does not exist, or a value that it cannot have; the text begins with its key."""


class UnknownFormat(LogError, file_errors.UnknownFormat):
    """The topic's files were written by another version, in a format that this one does not know."""


class OutOfSequence(LogError):
    """A producer's sequence number is older than what is remembered, leaves a gap, or is stored with other rows."""


class UnknownTransaction(LogError):
    """There is no open transaction of that id."""


class ForeignTransaction(LogError):
    """The transaction was begun by somebody else."""


class TransactionTimedOut(LogError):
    """The transaction was open for too long, and was aborted."""


class TooManyTopics(LogError):
    """The largest number of topics is reached."""


class MessageTooLarge(LogError):
    """A payload is larger than the topic's ``message_size_limit``, or an append larger than a batch can be."""


class LogFull(LogError):
    """The disk is full, or a limit is reached. Nothing of the append was stored; it works when there is space again."""


class WriteFailed(LogError):
    """The file system refused the write. Nothing of the append is visible."""


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


def write_error(error: OSError) -> LogError:
    """The LogError for an error of the file system while writing; callers hear of it, so it names no file."""
    if error.errno in NO_SPACE:
        return LogFull(f"no space left: {error.strerror}")
    return WriteFailed(f"cannot write: {error.strerror or error}")
