"""The protocol between a receiver and those who read its log buffer, in one place.

Read ``paths``, ``frame`` (a batch with its receipt), ``buffer`` (opening what was left), ``writer`` (the receiver's
side), ``position`` and ``reader`` (a reader's side), ``skipped`` and ``accounts`` (what became of what a reader did not
take), then ``drain`` (into the log) with ``splitter`` and ``topic_requests``. Imports ``wire``, ``logbuffer``, ``log``.
"""
