"""OffsetCommit and OffsetFetch: committed offsets of groups are cursors of the log.

Commits are durable before they are answered; members of a group are not stored, see ``groups``. Invariant: the commits
and the deletion of a group take effect in the order in which their requests arrive, so that none undoes a later one.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from kio.schema.errors import ErrorCode

from penstock.errors import PenstockError
from penstock.log import LogClosed, Topic
from penstock.log.cursors import LAST_OFFSET
from penstock.log.settings import MAX_NAME_BYTES
from penstock.server.api.entries import EntriesApi
from penstock.server.auth.rights import Principal
from penstock.server.kafka.calls import Call, code_of
from penstock.server.kafka.groups.group_state import Refused
from penstock.server.kafka.schema.messages import Values, by_topic, partitions_of
from penstock.slogd.errors import BadRequest, Damaged, NoSuchTopic, NotAllowed, Stopping

MAX_METADATA_BYTES = 4096
"""Limit: metadata of a commit; Kafka's own default (``offset.metadata.max.bytes``)."""
ENCODED = "kafka-hex."
"""Prefix of cursors whose group has a name that no cursor may have; the name follows in hexadecimal."""
REPORT_INTERVAL_S = 10.0
"""Time between two lines about commits that fail."""
NO_OFFSET: Values = {"committed_offset": -1, "committed_leader_epoch": -1, "metadata": ""}
_PLAIN = re.compile(r"[a-z0-9_\-.]+")
_LOGGER = logging.getLogger(__name__)
T = TypeVar("T")
CheckMember = Callable[[str, str, int, str | None], None]


def cursor_of(group: str) -> str:
    """Return the cursor of a group. Raises Refused for a name that is empty or too long."""
    # A group's name that starts with the prefix is encoded too, so that no two groups share a cursor.
    plain = _PLAIN.fullmatch(group) and not group.startswith(ENCODED)
    cursor = group if plain else ENCODED + group.encode(errors="surrogatepass").hex()
    if not group or len(cursor) > MAX_NAME_BYTES:
        raise Refused(ErrorCode.invalid_group_id)
    return cursor


def group_of(cursor: str) -> str:
    """Return the group of a cursor."""
    if cursor.startswith(ENCODED):
        try:
            return bytes.fromhex(cursor.removeprefix(ENCODED)).decode()
        except ValueError:  # a cursor of another protocol with this prefix
            pass
    return cursor


class GroupOffsets:
    """Committed offsets of groups. Owned by one event loop."""

    def __init__(self, api: EntriesApi) -> None:
        self._api = api
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """The lock of each group whose offsets are being written; the lock is fair."""
        self._failures, self._next_report_s = 0, 0.0
        self.check_member: CheckMember = lambda *_: None
        """Raises Refused if this member may not commit. Set by ``Groups``."""

    async def commit(self, call: Call) -> Values:
        """Store offsets as cursors, durably."""
        message = call.message
        partitions = partitions_of(message.topics)
        try:
            cursor = cursor_of(message.group_id)
            generation = getattr(message, "generation_id", getattr(message, "generation_id_or_member_epoch", -1))
            instance = getattr(message, "group_instance_id", None)
            # Order: check before the first commit, so that a member of an old generation moves no cursor.
            self.check_member(message.group_id, message.member_id, generation, instance)
        except Refused as refused:
            code = refused.code
            answers = [
                (name, {"partition_index": part.partition_index, "error_code": code}) for name, part in partitions
            ]
        else:
            answers = await self._run_in_turn(
                message.group_id, lambda: [(name, self._commit(call.caller, cursor, name, p)) for name, p in partitions]
            )
        return {"topics": by_topic(answers, "name", "partitions")}

    async def _run_in_turn(self, group: str, write: Callable[[], T]) -> T:
        """Run ``write`` on a thread, behind all earlier writes of the group."""
        lock = self._turns.setdefault(group, asyncio.Lock())
        async with lock:
            writing = asyncio.ensure_future(self._api.run(write))
            try:
                return await asyncio.shield(writing)
            except asyncio.CancelledError:
                # A thread goes on when its client is gone: without this wait a write that is stuck in the disk would
                # undo the commits of the group's next members.
                await asyncio.wait([writing])
                raise

    def _commit(self, caller: Principal, cursor: str, name: str, part: Any) -> dict[str, Any]:
        code, note = ErrorCode.none, part.committed_metadata or ""
        if part.partition_index != 0:
            code = ErrorCode.unknown_topic_or_partition
        elif len(note.encode(errors="surrogatepass")) > MAX_METADATA_BYTES:
            code = ErrorCode.offset_metadata_too_large
        elif not 0 <= part.committed_offset <= LAST_OFFSET:
            code = ErrorCode.invalid_request
        else:
            try:
                self._api.manage.commit_cursor(name, cursor, part.committed_offset, caller, note)
            except NotAllowed:
                code = ErrorCode.group_authorization_failed
            except (NoSuchTopic, BadRequest, Damaged) as error:
                code = _code_of(error)
            except PenstockError as error:
                # A full or failing disk: clients repeat the commit, where every other code ends the program of many.
                code = ErrorCode.coordinator_load_in_progress
                if not isinstance(error, Stopping | LogClosed):
                    self._report_failure("commit in", name, cursor, error)
        return {"partition_index": part.partition_index, "error_code": code}

    def _report_failure(self, verb: str, topic: str, cursor: str, error: Exception) -> None:
        """Log a failed commit or read. Clients repeat it without a word, so nothing else shows the fault."""
        # Limit: one line in a while, however many members repeat. Threads that race may write a second one.
        self._failures += 1
        now = time.monotonic()
        if now >= self._next_report_s:
            self._next_report_s = now + REPORT_INTERVAL_S
            text = "kafka: group %r cannot %s topic %s: %s; clients repeat it (%d times since the last report)"
            _LOGGER.error(text, group_of(cursor), verb, topic, error, self._failures)
            self._failures = 0

    async def fetch(self, call: Call) -> Values:
        """Return committed offsets of groups, for the requested topics or for all."""
        message = call.message
        group_requests = getattr(message, "groups", None)
        groups = [message] if group_requests is None else group_requests
        answers = [await self._api.run(lambda group=group: self._fetch(call.caller, group)) for group in groups]  # type: ignore[misc]
        return answers[0] if group_requests is None else {"groups": answers}

    def _fetch(self, caller: Principal, request: Any) -> dict[str, Any]:
        try:
            cursor = cursor_of(request.group_id)
        except Refused as refused:
            return {"group_id": request.group_id, "error_code": refused.code}
        if request.topics is None:
            try:
                topics = self._api.topics.all_readable(caller)
            except PenstockError:  # a failing disk, or the daemon stops
                return {"group_id": request.group_id, "error_code": ErrorCode.coordinator_load_in_progress}
            answers = [(topic.name, self._read_cursor(topic, cursor)) for topic in topics]
            offsets = [(name, fields) for name, fields in answers if fields is not NO_OFFSET]
        else:
            offsets = [
                (name, {"partition_index": index, **self._fetch_partition(caller, name, index, cursor)})
                for name, index in partitions_of(request.topics, partitions="partition_indexes")
            ]
        codes = {fields.get("error_code") for _, fields in offsets}
        # Clients repeat the request if the group has this error; the error of a partition alone ends a reader.
        code = (
            ErrorCode.coordinator_load_in_progress
            if ErrorCode.coordinator_load_in_progress in codes
            else ErrorCode.none
        )
        return {"group_id": request.group_id, "error_code": code, "topics": by_topic(offsets, "name", "partitions")}

    def _fetch_partition(self, caller: Principal, name: str, index: int, cursor: str) -> Values:
        if index != 0:
            return NO_OFFSET
        try:
            return self._read_cursor(self._api.topics.readable(name, caller), cursor)
        except NotAllowed:
            return {**NO_OFFSET, "error_code": ErrorCode.topic_authorization_failed}
        except (NoSuchTopic, BadRequest):
            return NO_OFFSET
        except PenstockError as error:
            # Invariant: "no offset" is only said where there is none, because clients then skip to the end of the topic
            # or read it again, as ``auto.offset.reset`` says.
            return {**NO_OFFSET, "error_code": _code_of(error)}

    def _read_cursor(self, topic: Topic, cursor: str) -> Values:
        try:
            # Another group's cursor that cannot be read does not keep this one from its own.
            position = topic.cursors.position(cursor)
        except OSError as error:
            self._report_failure("read its offset in", topic.name, cursor, error)
            return {**NO_OFFSET, "error_code": ErrorCode.coordinator_load_in_progress}
        if position is None:
            return NO_OFFSET
        return {"committed_offset": position[0], "committed_leader_epoch": -1, "metadata": position[1]}

    async def names(self, caller: Principal) -> set[str]:
        """Return the groups with cursors in topics that the caller may read.

        Raises Refused with a code that clients retry, for a failing disk or while the daemon stops.
        """
        topics = self._api.topics
        try:
            return await self._api.run(
                lambda: {group_of(cursor) for topic in topics.all_readable(caller) for cursor in topic.cursors.names()}
            )
        except (PenstockError, OSError) as error:
            raise Refused(ErrorCode.coordinator_load_in_progress) from error

    async def forget(self, group: str, caller: Principal) -> ErrorCode:
        """Remove the cursors of a group."""
        return await self._run_in_turn(group, lambda: self._forget(group, caller))

    def _forget(self, group: str, caller: Principal) -> ErrorCode:
        code = ErrorCode.group_id_not_found
        try:
            cursor = cursor_of(group)
            for topic in self._api.topics.all_readable(caller):
                if cursor in topic.cursors.names():
                    self._api.manage.remove_cursor(topic.name, cursor, caller)
                    code = ErrorCode.none
        except Refused as refused:
            return refused.code
        except NotAllowed:
            return ErrorCode.group_authorization_failed
        except (NoSuchTopic, BadRequest, Damaged, Stopping, LogClosed) as error:
            return _code_of(error)
        except (PenstockError, OSError):
            return ErrorCode.kafka_storage_error  # a full or failing disk
        return code


def _code_of(error: PenstockError) -> ErrorCode:
    """Return Kafka's code for an error of a group's request; clients repeat it if the daemon stops."""
    return ErrorCode.coordinator_load_in_progress if isinstance(error, Stopping | LogClosed) else code_of(error)
