"""OffsetCommit and OffsetFetch: what groups have read, as cursors of the log."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.errors import PenstockError
from penstock.log import Topic
from penstock.log.cursors import LAST_OFFSET
from penstock.log.settings import MAX_NAME_BYTES
from penstock.server.api.entries import EntriesApi
from penstock.server.auth.rights import Principal
from penstock.server.kafka.calls import Call, code_of
from penstock.server.kafka.groups.group_state import Refused
from penstock.server.kafka.schema.messages import Values, by_topic, partitions_of
from penstock.slogd.errors import NotAllowed

MAX_NOTE = 4096
"""Bytes of what a client may note at a commit."""
ENCODED = "kafka-hex."
"""Groups whose names cannot be those of cursors are kept under this and their name in hexadecimal digits."""
NOTHING: Values = {"committed_offset": -1, "committed_leader_epoch": -1, "metadata": ""}
_PLAIN = re.compile(r"[a-z0-9_\-.]+")
CheckMember = Callable[[str, str, int, str | None], None]


def cursor_of(group: str) -> str:
    """The cursor of a group. Raises Refused for a name that is too long."""
    plain = _PLAIN.fullmatch(group) and not group.startswith(ENCODED)
    cursor = group if plain else ENCODED + group.encode(errors="surrogatepass").hex()
    if not group or len(cursor) > MAX_NAME_BYTES:
        raise Refused(ErrorCode.invalid_group_id)
    return cursor


def group_of(cursor: str) -> str:
    """The group of a cursor."""
    if cursor.startswith(ENCODED):
        try:
            return bytes.fromhex(cursor.removeprefix(ENCODED)).decode()
        except ValueError:  # nobody's group
            pass
    return cursor


class GroupOffsets:
    """What groups have read."""

    def __init__(self, api: EntriesApi) -> None:
        self._api = api
        self.check_member: CheckMember = lambda *_: None
        """Raises Refused where offsets may not be committed by this member."""

    async def commit(self, call: Call) -> Values:
        """Move cursors, durably."""
        message = call.message
        asked = partitions_of(message.topics)
        try:
            cursor = cursor_of(message.group_id)
            generation = getattr(message, "generation_id", getattr(message, "generation_id_or_member_epoch", -1))
            instance = getattr(message, "group_instance_id", None)
            self.check_member(message.group_id, message.member_id, generation, instance)
        except Refused as refused:
            code = refused.code
            done = [(name, {"partition_index": part.partition_index, "error_code": code}) for name, part in asked]
        else:
            done = await self._api.run(
                lambda: [(name, self._commit(call.caller, cursor, name, p)) for name, p in asked]
            )
        return {"topics": by_topic(done, "name", "partitions")}

    def _commit(self, caller: Principal, cursor: str, name: str, part: Any) -> dict[str, Any]:
        code, note = ErrorCode.none, part.committed_metadata or ""
        if part.partition_index != 0:
            code = ErrorCode.unknown_topic_or_partition
        elif len(note.encode(errors="surrogatepass")) > MAX_NOTE:
            code = ErrorCode.offset_metadata_too_large
        elif not 0 <= part.committed_offset <= LAST_OFFSET:
            code = ErrorCode.invalid_request
        else:
            try:
                self._api.manage.commit_cursor(name, cursor, part.committed_offset, caller, note)
            except NotAllowed:
                code = ErrorCode.group_authorization_failed
            except PenstockError as error:
                code = code_of(error)
        return {"partition_index": part.partition_index, "error_code": code}

    async def fetch(self, call: Call) -> Values:
        """Where groups are: in the topics asked for, or in all."""
        message = call.message
        many = getattr(message, "groups", None)
        groups = [message] if many is None else many
        found = [await self._api.run(lambda one=one: self._fetch(call.caller, one)) for one in groups]  # type: ignore[misc]
        return found[0] if many is None else {"groups": found}

    def _fetch(self, caller: Principal, asked: Any) -> dict[str, Any]:
        try:
            cursor = cursor_of(asked.group_id)
        except Refused as refused:
            return {"group_id": asked.group_id, "error_code": refused.code}
        if asked.topics is None:
            topics = self._api.topics.all(caller)
            found = [(one.name, _at(one, cursor)) for one in topics if cursor in one.cursors.all()]
        else:
            found = [
                (name, {"partition_index": index, **self._of(caller, name, index, cursor)})
                for name, index in partitions_of(asked.topics, partitions="partition_indexes")
            ]
        return {"group_id": asked.group_id, "topics": by_topic(found, "name", "partitions")}

    def _of(self, caller: Principal, name: str, index: int, cursor: str) -> Values:
        if index != 0:
            return NOTHING
        try:
            return _at(self._api.topics.readable(name, caller), cursor)
        except NotAllowed:
            return {**NOTHING, "error_code": ErrorCode.topic_authorization_failed}
        except PenstockError:
            return NOTHING

    async def names(self, caller: Principal) -> set[str]:
        """The groups that have read from topics which the caller may read."""
        topics = self._api.topics
        return await self._api.run(
            lambda: {group_of(cursor) for topic in topics.all(caller) for cursor in topic.cursors.all()}
        )

    async def forget(self, group: str, caller: Principal) -> ErrorCode:
        """Remove the cursors of a group."""
        return await self._api.run(lambda: self._forget(group, caller))

    def _forget(self, group: str, caller: Principal) -> ErrorCode:
        code = ErrorCode.group_id_not_found
        try:
            cursor = cursor_of(group)
            for topic in self._api.topics.all(caller):
                if cursor in topic.cursors.all():
                    self._api.manage.remove_cursor(topic.name, cursor, caller)
                    code = ErrorCode.none
        except Refused as refused:
            return refused.code
        except NotAllowed:
            return ErrorCode.group_authorization_failed
        except PenstockError as error:
            return code_of(error)
        return code


def _at(topic: Topic, cursor: str) -> Values:
    """Where a cursor is, and what its client noted."""
    found = topic.cursors.all().get(cursor)
    if found is None:
        return NOTHING
    return {"committed_offset": found, "committed_leader_epoch": -1, "metadata": topic.cursors.note(cursor)}
