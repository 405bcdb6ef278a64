"""Topics as plain Arrow IPC streams: appended in groups, read from the folder alone, recovered after anything."""

from penstock.log.batching import Appended
from penstock.log.cursors import Cursors, Lag
from penstock.log.errors import (
    CorruptBatch,
    InvalidSetting,
    InvalidTopicName,
    LogClosed,
    LogError,
    LogFull,
    LogLocked,
    MessageTooLarge,
    OutOfSequence,
    TooManyTopics,
    TopicExists,
    TransactionTimedOut,
    UnknownFormat,
    UnknownTopic,
    UnknownTransaction,
    WriteFailed,
)
from penstock.log.gaps import Gap
from penstock.log.log import Log
from penstock.log.producers import Producer
from penstock.log.reader import TopicReader
from penstock.log.retention import Swept
from penstock.log.settings import TopicSettings
from penstock.log.sweeper import Sweeper
from penstock.log.topic import Topic
from penstock.log.transactions import Limits
from penstock.log.view import Stored

__all__ = [
    "Appended",
    "CorruptBatch",
    "Cursors",
    "Gap",
    "InvalidSetting",
    "InvalidTopicName",
    "Lag",
    "Limits",
    "Log",
    "LogClosed",
    "LogError",
    "LogFull",
    "LogLocked",
    "MessageTooLarge",
    "OutOfSequence",
    "Producer",
    "Stored",
    "Sweeper",
    "Swept",
    "TooManyTopics",
    "Topic",
    "TopicExists",
    "TopicReader",
    "TopicSettings",
    "TransactionTimedOut",
    "UnknownFormat",
    "UnknownTopic",
    "UnknownTransaction",
    "WriteFailed",
]
