"""The protocol between a listener's receiver and the readers of its log buffer (the log daemon, forwarders).

Read ``paths`` (where they meet), ``frame`` and ``receipt`` (what is handed over), ``position`` and ``state_page``
(small mapped files that outlive their writers), ``buffer`` (opening what was left), ``writer`` with ``dropped_frames``
(the receiver's side) and ``stored_waits`` (when its senders are answered), ``reader`` (a reader's side) with
``accounts`` (a forwarder's books), then ``drain`` (the log daemon's reader) with ``splitter``, ``topic_requests`` and
``listener_drains``; ``held_frames`` keeps what a daemon that stands still has in its hands, ``lock_holder`` ends a
reader that holds its lock too long, ``lost_position`` tells again where a reader is. Imports ``records``,
``errors``, ``config``, ``counts``, ``process``, ``files``, ``wire``, ``logbuffer`` and ``log``; every room of the pipe
after it imports it.

The words. A *position* counts bytes of a listener's stream from its beginning and never goes back; a frame lies
between two of them. A *total* counts the messages that the receiver has accepted, and stands in each frame's receipt.
In each reader's position file (``position.ReaderPosition``) there are:

========== ======================================================== ==================== =============================
word       meaning                                                  written by           read by
========== ======================================================== ==================== =============================
position   all frames before it have met their fate with this       the reader, done     the writer (what may be
           reader; where it goes on                                 with a group         cleaned), the ledger
claim      frames before it are in the reader's hands, copied: the  the reader, holding  the writer, the reader's
           writer neither keeps nor counts them                     the file's lock      successor after a crash
floor      where the writer has moved a lagging reader on: frames   the writer, holding  the reader (it goes on there),
           between claim and floor are dropped by policy, and the   the file's lock      the ledger
           writer counts them
mark       the total at the position, by the reader's own count;    the reader           the writer and the ledger: a
           UNKNOWN (-1) where it cannot know                                             total that has grown by more
                                                                                         than was read tells of a loss
floor mark the same at the floor                                    the writer           the reader, the ledger
newest     where the newest frame begins (log daemon's file only)   the writer           the ledger, for its receipt
========== ======================================================== ==================== =============================

On the receiver's state page: the *epoch* names the time since which positions go on without a break; a new one begins
when the buffer's file was made anew or the machine was started, as positions may be used again then for other frames.
It is in each receipt, and the log stores batches under (listener, epoch, position), by which it skips what it has.
Beside it are *routes* (which topic frames are for, by position), the counts of *missed* frames (``dropped_frames``),
the *topic requests* that could not be granted, and the listener's statistics.
"""

__all__ = [  # noqa: RUF022 reading order
    "paths",
    "frame",
    "frame_size",
    "receipt",
    "position",
    "state_page",
    "buffer",
    "writer",
    "dropped_frames",
    "stored_waits",
    "reader",
    "accounts",
    "drain",
    "splitter",
    "topic_requests",
    "listener_drains",
    "held_frames",
    "lost_position",
    "lock_holder",
]
