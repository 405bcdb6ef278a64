"""gRPC calls of administration: each runs one method of ``AdminApi`` on a thread."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import grpc

from penstock.server.api.administration import AdminApi, changes_of
from penstock.server.api.entries import EntriesApi
from penstock.server.auth.rights import Principal
from penstock.server.grpc.call_errors import Context, abort, caller_of, parsed
from penstock.slogd import slogd_pb2 as pb

_Call = Callable[[AdminApi, Any, Principal], Any]


def _create(manage: AdminApi, r: pb.CreateTopicRequest, caller: Principal) -> pb.TopicDescription:
    return manage.create(r.topic, changes_of(r.settings), caller)


def _configure(manage: AdminApi, r: pb.ConfigureTopicRequest, caller: Principal) -> pb.TopicDescription:
    return manage.configure(r.topic, changes_of(r.settings), caller)


def _delete(manage: AdminApi, r: pb.DeleteTopicRequest, caller: Principal) -> pb.DeleteTopicResponse:
    manage.delete(r.topic, caller)
    return pb.DeleteTopicResponse()


def _describe(manage: AdminApi, r: pb.DescribeTopicsRequest, caller: Principal) -> pb.DescribeTopicsResponse:
    return pb.DescribeTopicsResponse(topic=manage.describe(r.topic, caller))


def _begin(manage: AdminApi, r: pb.BeginRequest, caller: Principal) -> pb.BeginResponse:
    return pb.BeginResponse(transaction_id=manage.begin(r.timeout if r.HasField("timeout") else None, caller))


def _commit(manage: AdminApi, r: pb.CommitRequest, caller: Principal) -> pb.CommitResponse:
    return pb.CommitResponse(topic=manage.commit(r.transaction_id, caller))


def _abort(manage: AdminApi, r: pb.AbortRequest, caller: Principal) -> pb.AbortResponse:
    manage.abort(r.transaction_id, caller)
    return pb.AbortResponse()


def _commit_cursor(manage: AdminApi, r: pb.CommitCursorRequest, caller: Principal) -> pb.CommitCursorResponse:
    manage.commit_cursor(r.topic, r.name, r.offset, caller)
    return pb.CommitCursorResponse()


def _remove_cursor(manage: AdminApi, r: pb.RemoveCursorRequest, caller: Principal) -> pb.RemoveCursorResponse:
    manage.remove_cursor(r.topic, r.name, caller)
    return pb.RemoveCursorResponse()


def _list_cursors(manage: AdminApi, r: pb.ListCursorsRequest, caller: Principal) -> pb.ListCursorsResponse:
    return pb.ListCursorsResponse(cursor=manage.cursors(r.topic, caller))


def _verify(manage: AdminApi, r: pb.VerifyTopicRequest, caller: Principal) -> pb.VerifyTopicResponse:
    return pb.VerifyTopicResponse(gaps=manage.verify(r.topic, r.begin, r.end, caller))


def _compact(manage: AdminApi, r: pb.CompactTopicRequest, caller: Principal) -> pb.CompactTopicResponse:
    before, after = manage.compact(r.topic, caller)
    return pb.CompactTopicResponse(bytes_before=before, bytes_after=after)


def _cleanup(manage: AdminApi, r: pb.CleanupRequest, caller: Principal) -> pb.CleanupResponse:
    return pb.CleanupResponse(swept=manage.cleanup(caller))


def _post_ledger(manage: AdminApi, r: pb.PostLedgerRequest, caller: Principal) -> pb.PostLedgerResponse:
    return pb.PostLedgerResponse(new=manage.post_ledger(r.document, caller))


_CALLS: dict[str, _Call] = {
    "CreateTopic": _create,
    "ConfigureTopic": _configure,
    "DeleteTopic": _delete,
    "DescribeTopics": _describe,
    "Begin": _begin,
    "Commit": _commit,
    "Abort": _abort,
    "CommitCursor": _commit_cursor,
    "RemoveCursor": _remove_cursor,
    "ListCursors": _list_cursors,
    "VerifyTopic": _verify,
    "CompactTopic": _compact,
    "Cleanup": _cleanup,
    "PostLedger": _post_ledger,
}
_RECORDED: dict[str, Callable[[Any], str]] = {
    "CreateTopic": lambda r: f"create topic {r.topic}",
    "ConfigureTopic": lambda r: f"configure topic {r.topic}",
    "DeleteTopic": lambda r: f"delete topic {r.topic}",
    "RemoveCursor": lambda r: f"forget cursor {r.name} of topic {r.topic}",
    "CompactTopic": lambda r: f"compact topic {r.topic}",
    "Cleanup": lambda r: "drop what retention allows",
}
"""Calls that the change log records, in words. Programs commit cursors and transactions all the time."""


def manage_handlers(api: EntriesApi) -> dict[str, Any]:
    """Return a handler for each call, by its name."""
    methods = pb.DESCRIPTOR.services_by_name["StructuredLog"].methods_by_name
    return {name: _handler(api, methods[name], call) for name, call in _CALLS.items()}


def _handler(api: EntriesApi, method: Any, call: _Call) -> Any:
    request_type, response_type = getattr(pb, method.input_type.name), getattr(pb, method.output_type.name)

    def run(request: Any, caller: Principal, origin: str) -> Any:
        answer = call(api.manage, request, caller)
        if describe := _RECORDED.get(method.name):
            api.manage.record(describe(request), caller, origin)
        return answer

    async def handle(data: bytes, context: Context) -> Any:
        try:
            caller, request = caller_of(api.guard, context), parsed(request_type, data)
            # On a thread: each of these calls may wait for the disk.
            return await api.run(partial(run, request, caller, context.client_address()))
        except Exception as error:  # noqa: BLE001 - every call ends with a code
            await abort(context, error)

    return grpc.unary_unary_rpc_method_handler(handle, None, response_type.SerializeToString)
