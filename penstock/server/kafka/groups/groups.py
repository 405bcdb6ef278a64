"""Groups of consumers: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and what administrators ask about groups.

Who is in a group is kept in memory: after a restart the members join again. What it has read are cursors of the log.
"""

from __future__ import annotations

import logging
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.server.auth.rights import Principal
from penstock.server.kafka.calls import Call, DeferredAnswer
from penstock.server.kafka.groups.group_offsets import GroupOffsets
from penstock.server.kafka.groups.group_state import MAX_METADATA, Asking, Group, Refused, State, new_member
from penstock.server.kafka.schema.messages import Values

SHORTEST, LONGEST = 1.0, 1800.0
"""Seconds that a session may last."""
MAX_GROUPS = 1000
"""Limit: groups with members. Beyond it the group that was silent for the longest time is put out: its members, if
there are any, join again.
"""
ASKS_FOR_ID = 4
"""From this version on a new member asks twice: so that one whose answer is lost leaves nobody behind."""
CONSUMER, CLASSIC, DEAD = "consumer", "classic", "Dead"
_LOGGER = logging.getLogger(__name__)


class Groups:
    """Answers the members of groups, and those who look at them."""

    def __init__(self, offsets: GroupOffsets) -> None:
        self._offsets = offsets
        self._groups: dict[str, Group] = {}
        offsets.check_member = self.check_member

    async def join(self, call: Call) -> Values | DeferredAnswer:
        """Whom a member is with, once all have joined."""
        message = call.message
        session = message.session_timeout.total_seconds()
        protocols = {one.name: one.metadata for one in message.protocols}
        asked = Asking(
            message.member_id,
            getattr(message, "group_instance_id", None),
            call.client,
            call.host,
            session,
            min(max(getattr(message, "rebalance_timeout", message.session_timeout).total_seconds(), 0), LONGEST),
            message.protocol_type,
            protocols,
        )
        try:
            group = self._for_member(call, message.group_id)
            if not SHORTEST <= session <= LONGEST:
                raise Refused(ErrorCode.invalid_session_timeout)
            if sum(map(len, protocols.values())) > MAX_METADATA:
                raise Refused(ErrorCode.invalid_request)
            if not asked.member and call.version >= ASKS_FOR_ID and asked.instance is None:
                return {"error_code": ErrorCode.member_id_required, "member_id": new_member(asked)}
            joined = group.join(asked)
            return DeferredAnswer(lambda: joined)
        except Refused as refused:
            return {"error_code": refused.code, "member_id": asked.member}
        finally:
            self._forget(message.group_id)

    def _for_member(self, call: Call, name: str) -> Group:
        """The group, made where there is none. Raises Refused."""
        _check_right(call.caller)
        if not name:
            raise Refused(ErrorCode.invalid_group_id)
        if name not in self._groups:
            if len(self._groups) >= MAX_GROUPS:
                silent = min(self._groups.values(), key=lambda group: group.last_heard)
                _LOGGER.warning("Kafka: group %r is put out: there are more than %d groups", silent.name, MAX_GROUPS)
                self._remove(silent)
            self._groups[name] = Group(name, self._remove)
        return self._groups[name]

    def _forget(self, name: str) -> None:
        """Groups without members are known by their cursors alone."""
        group = self._groups.get(name)
        if group is not None and not group.members:
            self._remove(group)

    def _remove(self, group: Group) -> None:
        group.close()
        if self._groups.get(group.name) is group:
            del self._groups[group.name]

    def _group(self, name: str) -> Group:
        group = self._groups.get(name)
        if group is None:
            raise Refused(ErrorCode.unknown_member_id)
        return group

    def check_member(self, name: str, member: str, generation: int, instance: str | None) -> None:
        """Whether offsets may be committed: by a member, or by anybody where there are none. Raises Refused."""
        group = self._groups.get(name)
        if group is None or not group.members:
            if generation >= 0 or member:
                raise Refused(ErrorCode.unknown_member_id)
            return
        found = group.checked(member, generation, instance)
        if group.state is State.SYNCING:
            raise Refused(ErrorCode.rebalance_in_progress)
        group.heartbeat(found)

    async def sync(self, call: Call) -> Values | DeferredAnswer:
        """What a member is to read, once the leader has said it."""
        message = call.message
        try:
            _check_right(call.caller)
            group = self._group(message.group_id)
            instance = getattr(message, "group_instance_id", None)
            member = group.checked(message.member_id, message.generation_id, instance)
            synced = group.sync(member, {one.member_id: one.assignment for one in message.assignments})
            return DeferredAnswer(lambda: synced)
        except Refused as refused:
            return {"error_code": refused.code}

    async def heartbeat(self, call: Call) -> Values:
        """Whether a member may go on as it does."""
        message = call.message
        try:
            _check_right(call.caller)
            group = self._group(message.group_id)
            instance = getattr(message, "group_instance_id", None)
            return {"error_code": group.heartbeat(group.checked(message.member_id, message.generation_id, instance))}
        except Refused as refused:
            return {"error_code": refused.code}

    async def leave(self, call: Call) -> Values:
        """Take members out of their group."""
        message, group = call.message, self._groups.get(call.message.group_id)
        many = getattr(message, "members", None)
        try:
            _check_right(call.caller)
        except Refused as refused:
            return {"error_code": refused.code}
        codes = [
            (one, group.leave(one.member_id, getattr(one, "group_instance_id", None)))
            if group
            else (one, ErrorCode.unknown_member_id)
            for one in (many if many is not None else [message])
        ]
        self._forget(message.group_id)
        if many is None:
            return {"error_code": codes[0][1]}
        left = [
            {"member_id": one.member_id, "group_instance_id": one.group_instance_id, "error_code": code}
            for one, code in codes
        ]
        return {"members": left}

    # For those who look

    async def list(self, call: Call) -> Values:
        """All groups with members, and all cursors of topics that the caller may read."""
        states = {state.lower() for state in getattr(call.message, "states_filter", ())}
        kinds = {kind.lower() for kind in getattr(call.message, "types_filter", ())}
        found = dict.fromkeys(await self._offsets.names(call.caller), (State.EMPTY, CONSUMER))
        found |= {name: (group.state, group.kind) for name, group in self._groups.items() if group.members}
        listed = [
            {"group_id": name, "protocol_type": kind, "group_state": state, "group_type": CLASSIC}
            for name, (state, kind) in found.items()
            if (not states or state.lower() in states) and (not kinds or CLASSIC in kinds)
        ]
        return {"groups": listed}

    async def describe(self, call: Call) -> Values:
        """The members of groups."""
        known = await self._offsets.names(call.caller)
        return {"groups": [self._describe(name, known) for name in call.message.groups]}

    def _describe(self, name: str, known: set[str]) -> Values:
        group = self._groups.get(name)
        if group is None or not group.members:
            state, kind = (State.EMPTY, CONSUMER) if name in known else (DEAD, "")
            return {"group_id": name, "group_state": state, "protocol_type": kind}
        members = [
            {
                "member_id": member.id,
                "group_instance_id": member.asked.instance,
                "client_id": member.asked.client,
                "client_host": f"/{member.asked.host}",
                "member_metadata": member.asked.protocols.get(group.protocol, b""),
                "member_assignment": member.assignment,
            }
            for member in group.members.values()
        ]
        told = {"group_id": name, "group_state": group.state, "protocol_type": group.kind, "members": members}
        return {**told, "protocol_data": group.protocol}

    async def delete(self, call: Call) -> Values:
        """Forget the cursors of groups without members."""
        return {"results": [await self._delete(call.caller, name) for name in call.message.groups_names]}

    async def _delete(self, caller: Principal, name: str) -> dict[str, Any]:
        group = self._groups.get(name)
        if group is not None and group.members:
            return {"group_id": name, "error_code": ErrorCode.non_empty_group}
        return {"group_id": name, "error_code": await self._offsets.forget(name, caller)}

    def close(self) -> None:
        """Answer all who wait."""
        for group in self._groups.values():
            group.close()


def _check_right(caller: Principal) -> None:
    """Raises Refused for one who may move no cursor."""
    if not (caller.cursor or caller.admin or caller.inside):
        raise Refused(ErrorCode.group_authorization_failed)
