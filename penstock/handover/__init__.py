"""The protocol between a listener's receiver and the readers of its log buffer (the log daemon, forwarders).

Read ``paths`` (names of the shared files), ``frames`` (the unit of the handover), ``positions`` and ``state_page``
(small mapped files that outlive their writers), ``buffer`` (opens an existing buffer), ``writer`` with
``missed_frames``, ``dropped_frames`` and ``sender_table`` (the receiver's side), ``sender_reading`` (what the ledger
reads of that table) and ``stored_waits`` (acknowledgements of senders), ``reader`` (a reader's side), then ``drain``
(the log daemon's reader); ``held_frames`` saves claimed frames of a stopped daemon, ``heartbeat`` shows that a process
is stopped, ``landing_failure`` why nothing lands; ``disk_id`` identifies the data directory.
Imports ``records``, ``errors``, ``config``, ``counts``, ``process``, ``files``, ``wire``, ``logbuffer`` and ``log``;
every room of the pipe after it imports it.

Terms. A *position* counts bytes of a listener's stream from its start and never decreases; a frame lies between two
positions. A *total* counts the messages that the receiver has accepted; each frame's metadata contains it. A reader's
position file (``positions.position.ReaderPosition``) contains:

========== ======================================================== ==================== =============================
word       meaning                                                  written by           read by
========== ======================================================== ==================== =============================
position   the reader has handled all frames before it and          the reader, after    the writer (may clean frames
           continues there                                          a group              before it), the ledger
claim      the reader has copied all frames before it:  the         the reader, holding  the writer, the reader's
           writer neither keeps nor counts them                     the file's lock      successor after a crash
floor      where the writer has moved a lagging reader to: frames   the writer, holding  the reader (continues there),
           between claim and floor are dropped by policy, and the   the file's lock      the ledger
           writer counts them
mark       the total at the position, by the reader's own count;    the reader           the writer and the ledger: a
           UNKNOWN (-1) if it cannot know                                                total that has grown by more
                                                                                         than was read shows a loss
floor mark the same at the floor                                    the writer           the reader, the ledger
newest     where the newest frame begins (log daemon's file only)   the writer           the ledger, for its metadata
========== ======================================================== ==================== =============================

On the receiver's state page: the *epoch* names a period in which positions are unique; a new one starts when the
buffer's file is created or the machine is restarted, because positions may then be reused for other frames. Each
frame's metadata contains it, and the log stores batches under (listener, epoch, position), and skips duplicates.
After a restart of the machine readers wait for the epoch: the writer repairs the buffer first, and restores floors
that a power failure took back, from the moves on this page and from the frames that carry the counts. A frame names
the lost frames that were to carry a part of its counts; the log enters it only if it has stored none of these. The
frame after it repeats its counts in the same way, because it may be damaged.
The page also contains *routes* (the topic of frames, by position), the counts of *missed* frames (``dropped_frames``),
the refused *topic requests*, and the listener's statistics.
"""

__all__ = [  # noqa: RUF022 reading order
    "paths",
    "frames",
    "positions",
    "state_page",
    "buffer",
    "writer",
    "missed_frames",
    "dropped_frames",
    "sender_table",
    "sender_reading",
    "stored_waits",
    "reader",
    "drain",
    "held_frames",
    "heartbeat",
    "landing_failure",
    "disk_id",
]
