"""Topics as plain Arrow IPC streams: appended in groups, read from the folder alone, recovered after anything.

Read ``log`` and ``topic``, ``store/`` (the files), ``commit/`` (what makes an append durable), ``read/``,
``retention/``, ``transactions/``, then ``cursors``, ``topic_summary`` (for listings), ``settings``, ``topic_state``
(what is kept with a topic), ``topic_patterns``, ``plausible_clock``, ``resources`` (what topics share) and
``documents``. Names are imported at first use, so that a process that only reads does not load the writer. Imports
``files``, ``records``, ``counts``, ``process.kernel`` and ``errors``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lazy_names import lazy_names
from penstock.log.errors import (
    CorruptBatch,
    ForeignTransaction,
    InvalidSetting,
    InvalidTopicName,
    LogClosed,
    LogError,
    LogFull,
    LogLocked,
    MessageTooLarge,
    OutcomeInDoubt,
    OutOfSequence,
    StoredAlready,
    TooManyTopics,
    TopicExists,
    TransactionTimedOut,
    UnknownFormat,
    UnknownTopic,
    UnknownTransaction,
    WriteFailed,
)

if TYPE_CHECKING:
    from penstock.log.commit.batching import Appended
    from penstock.log.cursors import Cursors, Lag
    from penstock.log.log import Log
    from penstock.log.read.segment_view import StoredBatch
    from penstock.log.read.topic_reader import TopicReader
    from penstock.log.retention.dropping import Swept
    from penstock.log.retention.sweeper import Sweeper
    from penstock.log.settings import TopicSettings
    from penstock.log.store.gaps import Gap
    from penstock.log.store.producers import ProducerSequence
    from penstock.log.topic import Topic
    from penstock.log.transactions.transactions import Limits
else:
    _MODULES = {
        "commit.batching": "Appended",
        "cursors": "Cursors Lag",
        "log": "Log",
        "read.segment_view": "StoredBatch",
        "read.topic_reader": "TopicReader",
        "retention.dropping": "Swept",
        "retention.sweeper": "Sweeper",
        "settings": "TopicSettings",
        "store.gaps": "Gap",
        "store.producers": "ProducerSequence",
        "topic": "Topic",
        "transactions.transactions": "Limits",
    }
    __getattr__ = lazy_names(__name__, {name: module for module, names in _MODULES.items() for name in names.split()})

__all__ = [
    "Appended",
    "CorruptBatch",
    "Cursors",
    "ForeignTransaction",
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
    "OutcomeInDoubt",
    "ProducerSequence",
    "StoredAlready",
    "StoredBatch",
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
