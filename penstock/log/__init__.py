"""Topics as plain Arrow IPC streams: appended in groups, read from the folder alone, recovered after anything."""

from penstock.log.cursors import Cursors
from penstock.log.errors import (
    CorruptBatch,
    InvalidTopicName,
    LogClosed,
    LogError,
    LogFull,
    LogLocked,
    MessageTooLarge,
    TooManyTopics,
    UnknownTopic,
    WriteFailed,
)
from penstock.log.gaps import Gap
from penstock.log.log import Log
from penstock.log.reader import TopicReader
from penstock.log.settings import TopicSettings
from penstock.log.topic import Appended, Topic
from penstock.log.view import Stored

__all__ = [
    "Appended",
    "CorruptBatch",
    "Cursors",
    "Gap",
    "InvalidTopicName",
    "Log",
    "LogClosed",
    "LogError",
    "LogFull",
    "LogLocked",
    "MessageTooLarge",
    "Stored",
    "TooManyTopics",
    "Topic",
    "TopicReader",
    "TopicSettings",
    "UnknownTopic",
    "WriteFailed",
]
