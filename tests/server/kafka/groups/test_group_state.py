from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from penstock.server.kafka.groups.group_state import MAX_MEMBER_BYTES, Group, JoinRequest, Refused, State


def asking(member: str = "", instance: str | None = None, session: float = 60, rebalance: float = 60) -> JoinRequest:
    return JoinRequest(member, instance, "client", "host", session, rebalance, "consumer", {"range": b"mine"})


async def two(group: Group) -> tuple[str, str]:
    """Return a stable group of two: its leader and the follower."""
    first = await group.join(asking())
    joining = group.join(asking())
    again = await group.join(asking(first["member_id"]))
    follower = await joining
    following = first["generation_id"] + 1
    assert (again["generation_id"], follower["generation_id"]) == (following, following)
    assert again["leader"] == follower["leader"] == first["member_id"]
    assert [member["metadata"] for member in again["members"]] == [b"mine", b"mine"]
    assert follower["members"] == []
    waiting = group.sync(group.members[follower["member_id"]], {})
    assert not waiting.done()
    leader = await group.sync(group.members[first["member_id"]], {follower["member_id"]: b"0", first["member_id"]: b""})
    assert (leader["assignment"], (await waiting)["assignment"]) == (b"", b"0")
    assert group.state is State.STABLE
    return first["member_id"], follower["member_id"]


def run(scenario: Any) -> None:
    async def main() -> None:
        group = Group("g")
        try:
            await asyncio.wait_for(scenario(group), 20)
        finally:
            group.close()

    asyncio.run(main())


def test_two_members_are_assigned_by_their_leader() -> None:
    run(two)


def test_assignment_over_the_limit_is_refused_and_not_cut() -> None:
    async def scenario(group: Group) -> None:
        joined = await group.join(asking())
        leader = group.members[joined["member_id"]]
        with pytest.raises(Refused) as refused:
            group.sync(leader, {leader.id: bytes(MAX_MEMBER_BYTES + 1)})
        assert refused.value.code is ErrorCode.invalid_request
        largest = await group.sync(leader, {leader.id: bytes(MAX_MEMBER_BYTES)})
        assert largest["assignment"] == bytes(MAX_MEMBER_BYTES)

    run(scenario)


def test_leaving_member_starts_a_rebalance() -> None:
    async def scenario(group: Group) -> None:
        leader, follower = await two(group)
        generation = group.generation
        assert group.leave(leader, None) is ErrorCode.none
        assert group.heartbeat(group.check_member(follower, generation)) is ErrorCode.rebalance_in_progress
        alone = await group.join(asking(follower))
        assert (alone["generation_id"], alone["leader"], len(alone["members"])) == (generation + 1, follower, 1)
        assert group.leave("nobody", None) is ErrorCode.unknown_member_id
        assert group.leave(follower, None) is ErrorCode.none
        assert (group.state, group.members) == (State.EMPTY, {})

    run(scenario)


def test_silent_member_expires() -> None:
    async def scenario(group: Group) -> None:
        silent = (await group.join(asking(session=0.05)))["member_id"]
        while group.members:
            await asyncio.sleep(0.01)
        with pytest.raises(Refused) as refused:
            group.check_member(silent, group.generation)
        assert refused.value.code is ErrorCode.unknown_member_id

    run(scenario)


def test_member_that_does_not_rejoin_in_time_is_removed() -> None:
    async def scenario(group: Group) -> None:
        slow = (await group.join(asking(rebalance=0.05)))["member_id"]
        quick = await group.join(asking(rebalance=0.05))
        assert (quick["generation_id"], quick["leader"]) == (group.generation, quick["member_id"])
        assert slow not in group.members

    run(scenario)


def test_member_of_another_generation_is_refused() -> None:
    async def scenario(group: Group) -> None:
        leader, _ = await two(group)
        with pytest.raises(Refused) as refused:
            group.check_member(leader, group.generation - 1)
        assert refused.value.code is ErrorCode.illegal_generation

    run(scenario)


def test_static_member_replaces_and_fences_its_former_self() -> None:
    async def scenario(group: Group) -> None:
        before = (await group.join(asking(instance="i")))["member_id"]
        after = await group.join(asking(instance="i"))
        assert set(group.members) == {after["member_id"]}
        with pytest.raises(Refused) as refused:
            group.check_member(before, group.generation, "i")
        assert refused.value.code is ErrorCode.fenced_instance_id

    run(scenario)


def test_static_member_that_was_replaced_does_not_remove_its_successor() -> None:
    async def scenario(group: Group) -> None:
        before = (await group.join(asking(instance="i")))["member_id"]
        after = (await group.join(asking(instance="i")))["member_id"]
        assert group.leave(before, "i") is ErrorCode.fenced_instance_id
        assert set(group.members) == {after}
        assert group.leave("", "j") is ErrorCode.unknown_member_id
        assert group.leave("", "i") is ErrorCode.none
        assert not group.members

    run(scenario)


def test_generation_of_a_former_group_is_not_one_of_the_next_group() -> None:
    async def scenario(former: Group) -> None:
        joined = await former.join(asking())
        next_group = Group("g")
        assert (await next_group.join(asking(joined["member_id"])))["member_id"] == joined["member_id"]
        with pytest.raises(Refused) as refused:
            next_group.check_member(joined["member_id"], joined["generation_id"])
        assert refused.value.code is ErrorCode.illegal_generation
        next_group.close()

    run(scenario)


def test_memory_of_a_member_has_names_and_the_number_of_protocols() -> None:
    request = asking()
    before = request.memory_bytes
    assert before >= len(b"mine")
    request.protocols = {str(number): b"" for number in range(10_000)}
    assert request.memory_bytes > before + 10_000 * 100
    request.protocols, request.client = {"range": b""}, "\U0001f600" * 10_000
    assert request.memory_bytes >= 40_000


def test_member_without_a_common_protocol_is_refused() -> None:
    async def scenario(group: Group) -> None:
        await group.join(asking())
        stranger = asking()
        stranger.protocols = {"other": b""}
        with pytest.raises(Refused) as refused:
            group.join(stranger)
        assert refused.value.code is ErrorCode.inconsistent_group_protocol

    run(scenario)


def test_pairwise_common_protocols_are_not_enough() -> None:
    async def scenario(group: Group) -> None:
        def wanting(*names: str, member: str = "") -> JoinRequest:
            protocols = dict.fromkeys(names, b"")
            return JoinRequest(member, None, "client", "host", 60, 60, "consumer", protocols)

        first = await group.join(wanting("r", "s"))
        joining = group.join(wanting("s", "t"))
        await group.join(wanting("r", "s", member=first["member_id"]))
        assert (await joining)["protocol_name"] == "s"
        with pytest.raises(Refused) as refused:
            group.join(wanting("t", "r"))
        assert str(refused.value) == ErrorCode.inconsistent_group_protocol.name

    run(scenario)


def test_group_is_reported_empty_when_its_last_member_expires() -> None:
    async def main() -> None:
        emptied: list[str] = []
        group = Group("g", lambda empty: emptied.append(empty.name))
        await group.join(asking(session=0.05))
        await asyncio.sleep(0.5)
        assert (emptied, group.members) == (["g"], {})

    asyncio.run(main())
