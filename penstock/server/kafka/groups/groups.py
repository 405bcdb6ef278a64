"""Consumer groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and requests of administrators.

Members are kept in memory: after a restart they join again. Committed offsets are cursors of the log.
"""

from __future__ import annotations

import logging
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.server.auth.rights import Principal
from penstock.server.kafka.calls import Call, DeferredAnswer, Handler
from penstock.server.kafka.groups.group_offsets import GroupOffsets
from penstock.server.kafka.groups.group_state import MAX_MEMBER_BYTES, Group, JoinRequest, Refused, State, new_member
from penstock.server.kafka.schema.messages import Api, Values

MIN_SESSION_S, MAX_SESSION_S = 1.0, 1800.0
MAX_GROUPS = 1000
"""Limit: groups with members. Over it the group that was silent longest is evicted; its members join again."""
MAX_BYTES = 512 << 20
"""Limit: memory of the members of all groups, two full ones. Over it the largest other groups are evicted."""
MEMBER_ID_VERSION = 4
"""JoinGroup version from which a new member first gets an id, then joins with it (KIP-394): a lost answer leaves no
member behind.
"""
CONSUMER, CLASSIC, DEAD = "consumer", "classic", "Dead"
_LOGGER = logging.getLogger(__name__)


class Groups:
    """Handlers of members' and administrators' requests about groups. Owned by one event loop."""

    def __init__(self, offsets: GroupOffsets) -> None:
        self._offsets = offsets
        self._groups: dict[str, Group] = {}
        offsets.check_member = self.check_member

    async def join(self, call: Call) -> Values | DeferredAnswer:
        """Return the members of the new generation, once all have joined."""
        message = call.message
        session = message.session_timeout.total_seconds()
        protocols = {protocol.name: protocol.metadata for protocol in message.protocols}
        request = JoinRequest(
            message.member_id,
            getattr(message, "group_instance_id", None),
            call.client,
            call.host,
            session,
            min(max(getattr(message, "rebalance_timeout", message.session_timeout).total_seconds(), 0), MAX_SESSION_S),
            message.protocol_type,
            protocols,
        )
        try:
            _check_right(call.caller)
            if not message.group_id:
                raise Refused(ErrorCode.invalid_group_id)
            if not MIN_SESSION_S <= session <= MAX_SESSION_S:
                raise Refused(ErrorCode.invalid_session_timeout)
            if request.memory_bytes > MAX_MEMBER_BYTES:
                raise Refused(ErrorCode.invalid_request)
            if not request.member and call.version >= MEMBER_ID_VERSION and request.instance is None:
                return {"error_code": ErrorCode.member_id_required, "member_id": new_member(request)}
            # Order: a request that is refused, or only gets an id, evicts no other group.
            group = self._group_to_join(message.group_id)
            joined = group.join(request)
            self._make_room(group)
            return DeferredAnswer(lambda: joined)
        except Refused as refused:
            return {"error_code": refused.code, "member_id": request.member}
        finally:
            self._forget_if_empty(message.group_id)

    def _group_to_join(self, name: str) -> Group:
        """Return the group; create it if it is missing."""
        if name not in self._groups:
            if len(self._groups) >= MAX_GROUPS:
                silent = min(self._groups.values(), key=lambda group: group.last_heard)
                self._evict(silent, f"more than {MAX_GROUPS} groups have members")
            self._groups[name] = Group(name, self._remove)
        return self._groups[name]

    def _make_room(self, grown: Group) -> None:
        """Evict other groups while the members of all take too much memory."""
        grown.measure()
        if self._memory_bytes > MAX_BYTES:
            # Members of other groups may have left or expired since.
            for group in self._groups.values():
                group.measure()
        while self._memory_bytes > MAX_BYTES and len(self._groups) > 1:
            others = (group for group in self._groups.values() if group is not grown)
            # A group of hundreds of members is never silent: by silence, all small groups would go before it.
            largest = max(others, key=lambda group: group.memory_bytes)
            self._evict(largest, f"the members of all groups take more than {MAX_BYTES >> 20} MiB")

    @property
    def _memory_bytes(self) -> int:
        return sum(group.memory_bytes for group in self._groups.values())

    def _evict(self, group: Group, reason: str) -> None:
        _LOGGER.warning("kafka: group %r is evicted: %s", group.name, reason)
        self._remove(group)

    # A group without members needs no state: its cursors are all that is known of it.
    def _forget_if_empty(self, name: str) -> None:
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
        """Check that offsets may be committed: by a member, or by anyone if the group has none. Raises Refused."""
        group = self._groups.get(name)
        if group is None or not group.members:
            # Clients that assign partitions themselves commit without a member id and generation.
            if generation >= 0 or member:
                raise Refused(ErrorCode.unknown_member_id)
            return
        committer = group.check_member(member, generation, instance)
        if group.state is State.SYNCING:
            raise Refused(ErrorCode.rebalance_in_progress)
        group.heartbeat(committer)

    async def sync(self, call: Call) -> Values | DeferredAnswer:
        """Return the member's partitions, once the leader has assigned them."""
        message = call.message
        try:
            _check_right(call.caller)
            group = self._group(message.group_id)
            instance = getattr(message, "group_instance_id", None)
            member = group.check_member(message.member_id, message.generation_id, instance)
            synced = group.sync(
                member, {assignment.member_id: assignment.assignment for assignment in message.assignments}
            )
            self._make_room(group)
            return DeferredAnswer(lambda: synced)
        except Refused as refused:
            return {"error_code": refused.code}

    async def heartbeat(self, call: Call) -> Values:
        """Restart the member's session; return whether it must join again."""
        message = call.message
        try:
            _check_right(call.caller)
            group = self._group(message.group_id)
            instance = getattr(message, "group_instance_id", None)
            return {
                "error_code": group.heartbeat(group.check_member(message.member_id, message.generation_id, instance))
            }
        except Refused as refused:
            return {"error_code": refused.code}

    async def leave(self, call: Call) -> Values:
        """Remove members from their group."""
        message, group = call.message, self._groups.get(call.message.group_id)
        # Up to version 2 one member leaves per request; later ones name several.
        leavers = getattr(message, "members", None)
        try:
            _check_right(call.caller)
        except Refused as refused:
            return {"error_code": refused.code}
        codes = [
            (leaver, group.leave(leaver.member_id, getattr(leaver, "group_instance_id", None)))
            if group
            else (leaver, ErrorCode.unknown_member_id)
            for leaver in (leavers if leavers is not None else [message])
        ]
        self._forget_if_empty(message.group_id)
        if leavers is None:
            return {"error_code": codes[0][1]}
        members = [
            {"member_id": leaver.member_id, "group_instance_id": leaver.group_instance_id, "error_code": code}
            for leaver, code in codes
        ]
        return {"members": members}

    async def list(self, call: Call) -> Values:
        """Return groups with members, and groups with cursors in topics that the caller may read."""
        states = {state.lower() for state in getattr(call.message, "states_filter", ())}
        kinds = {kind.lower() for kind in getattr(call.message, "types_filter", ())}
        try:
            groups = dict.fromkeys(await self._offsets.names(call.caller), (State.EMPTY, CONSUMER))
        except Refused as refused:
            return {"error_code": refused.code, "groups": []}
        groups |= {name: (group.state, group.kind) for name, group in self._groups.items() if group.members}
        listed = [
            {"group_id": name, "protocol_type": kind, "group_state": state, "group_type": CLASSIC}
            for name, (state, kind) in groups.items()
            if (not states or state.lower() in states) and (not kinds or CLASSIC in kinds)
        ]
        return {"groups": listed}

    async def describe(self, call: Call) -> Values:
        """Describe groups and their members."""
        names = call.message.groups
        try:
            with_cursors = await self._offsets.names(call.caller)
        except Refused as refused:
            return {"groups": [{"group_id": name, "error_code": refused.code} for name in names]}
        return {"groups": [self._describe(name, with_cursors) for name in names]}

    def _describe(self, name: str, with_cursors: set[str]) -> Values:
        group = self._groups.get(name)
        if group is None or not group.members:
            state, kind = (State.EMPTY, CONSUMER) if name in with_cursors else (DEAD, "")
            return {"group_id": name, "group_state": state, "protocol_type": kind}
        members = [
            {
                "member_id": member.id,
                "group_instance_id": member.request.instance,
                "client_id": member.request.client,
                "client_host": f"/{member.request.host}",
                "member_metadata": member.request.protocols.get(group.protocol, b""),
                "member_assignment": member.assignment,
            }
            for member in group.members.values()
        ]
        description = {"group_id": name, "group_state": group.state, "protocol_type": group.kind, "members": members}
        return {**description, "protocol_data": group.protocol}

    async def delete(self, call: Call) -> Values:
        """Remove the cursors of groups without members."""
        return {"results": [await self._delete(call.caller, name) for name in call.message.groups_names]}

    async def _delete(self, caller: Principal, name: str) -> dict[str, Any]:
        group = self._groups.get(name)
        if group is not None and group.members:
            return {"group_id": name, "error_code": ErrorCode.non_empty_group}
        return {"group_id": name, "error_code": await self._offsets.forget(name, caller)}

    def close(self) -> None:
        """Answer all waiting members."""
        for group in self._groups.values():
            group.close()


def _check_right(caller: Principal) -> None:
    """Raise Refused unless the caller may move cursors."""
    if not (caller.cursor or caller.admin or caller.inside):
        raise Refused(ErrorCode.group_authorization_failed)


def group_handlers(groups: Groups, offsets: GroupOffsets) -> dict[Api, Handler]:
    """Return the handlers of all requests about groups."""
    return {
        Api.JOIN_GROUP: groups.join,
        Api.SYNC_GROUP: groups.sync,
        Api.HEARTBEAT: groups.heartbeat,
        Api.LEAVE_GROUP: groups.leave,
        Api.LIST_GROUPS: groups.list,
        Api.DESCRIBE_GROUPS: groups.describe,
        Api.DELETE_GROUPS: groups.delete,
        Api.OFFSET_COMMIT: offsets.commit,
        Api.OFFSET_FETCH: offsets.fetch,
    }
