"""OTLP in JSON, as protobuf: few senders speak it, and so it needs no way of its own.

Values are written as the texts that annotations and payloads have: numbers as they were sent, which no double keeps.
A record that is none is left out and counted; the others are taken.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from penstock.wire.json_text import TOO_DEEP, Foreign, Members, NotJson, Number, exact, readable
from penstock.wire.requests import MAX_MESSAGES, SYNTAX, Refused, check_message_count

_WHOLE = re.compile(r"-?[0-9]+")
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}
"""As they are in JSON, and as the texts of protobuf's doubles are."""
_IDS = {"traceId": "trace_id", "spanId": "span_id"}


@dataclass(slots=True)
class JsonRequest:
    """A request in protobuf, without the records that are none; ``first_error`` is about the first of these."""

    request: ExportLogsServiceRequest = field(default_factory=ExportLogsServiceRequest)
    records: int = 0
    refused: int = 0
    first_error: str = ""

    def refuse(self, count: int, why: str) -> None:
        """Count records that are left out."""
        self.refused += count
        if count:
            self.first_error = self.first_error or why


def as_protobuf(data: bytes, max_messages: int = MAX_MESSAGES) -> JsonRequest:
    """A request in JSON as the same one in protobuf. Raises Refused where it is none, or has no record that is one."""
    try:
        document = exact(data)
    except NotJson as error:
        raise Refused(400, SYNTAX, f"the body is not JSON: {error}") from None
    if not isinstance(document, Members):
        raise Refused(400, SYNTAX, "the body is no object")
    found = JsonRequest()
    try:
        for resource_logs in _objects(document, "resourceLogs", "resource_logs"):
            _take_resource(resource_logs, found, max_messages)
    except NotJson as error:
        raise Refused(400, SYNTAX, f"the body is no request: {error}") from None
    if found.refused and not found.records:
        raise Refused(400, SYNTAX, f"no record can be read: {found.first_error}")
    return found


def _take_resource(resource_logs: Members, found: JsonRequest, max_messages: int) -> None:
    scopes = _objects(resource_logs, "scopeLogs", "scope_logs")
    target = found.request.resource_logs.add()
    why = _parsed(resource_logs.get("resource"), target.resource)
    for scope_logs in scopes:
        records = _list(scope_logs, "logRecords", "log_records")
        check_message_count(found.records + found.refused + len(records), max_messages)
        of_scope = target.scope_logs.add()
        if error := why or _parsed(scope_logs.get("scope"), of_scope.scope):
            found.refuse(len(records), f"its resource or scope cannot be read: {error}")
            continue
        for record in records:
            if error := _parsed(record, of_scope.log_records.add(), required=True):
                del of_scope.log_records[-1]
                found.refuse(1, f"record {found.records + found.refused + 1}: {error}")
            else:
                found.records += 1


def _parsed(members: Any, target: Message, *, required: bool = False) -> str:
    """Read a record, resource or scope into ``target``; return why it cannot be."""
    if members is None and not required:
        return ""
    try:
        if not isinstance(members, Members):
            raise NotJson("an object is expected")
        fields = {name: _field(name, value) for name, value in members if value is not None}
        json_format.ParseDict(fields, target, ignore_unknown_fields=True)
    except RecursionError:
        return TOO_DEEP
    except (NotJson, json_format.ParseError, ValueError, TypeError, AttributeError) as error:
        return str(error).partition("\n")[0]
    return ""


def _field(name: str, value: Any) -> Any:
    """A field of a record, resource or scope as ``json_format`` takes it. Raises NotJson."""
    if name == "body":
        return _any_value(value)
    if name == "attributes":
        return [_attribute(each) for each in value]
    if name in _IDS or name in _IDS.values():
        return _id(name, value)
    return _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, Foreign):
        raise NotJson(f"{value} is not JSON")
    if isinstance(value, Number):
        return int(value) if len(value) < 30 and _WHOLE.fullmatch(value) else float(value)
    return readable(value) if isinstance(value, str) else value


def _id(name: str, value: Any) -> str:
    """Hexadecimal digits here, and base64 in protobuf's own JSON."""
    try:
        return base64.b64encode(bytes.fromhex(value)).decode()
    except (TypeError, ValueError):
        raise NotJson(f"{name} has other letters than hexadecimal digits") from None


def _attribute(pair: Any) -> dict[str, Any]:
    if not isinstance(pair, Members):
        raise NotJson("an attribute is no object")
    return {"key": _key(pair), "value": _any_value(pair.get("value"))}


def _key(pair: Members) -> str:
    key = pair.get("key")
    if key is not None and (not isinstance(key, str) or isinstance(key, Number | Foreign)):
        raise NotJson("the key of an attribute is no text")
    return readable(key or "")


def _any_value(value: Any) -> dict[str, str]:
    """An AnyValue with the text that it has in an annotation."""
    text = _text(value, nested=False)
    return {} if text is None else {"stringValue": text}


def _text(value: Any, *, nested: bool) -> str | None:
    """The text of an AnyValue, as JSON where it is inside of another one. Raises NotJson."""
    if value is None:
        return "null" if nested else None
    if not isinstance(value, Members):
        raise NotJson("a value is no object")
    for name, content in reversed(value):  # of a oneof the last one holds
        read = _FORMS.get(name)
        if read is not None and content is not None:
            text, is_json = read(content)
            return json.dumps(text, ensure_ascii=False) if nested and not is_json else text
    return "null" if nested else None


def _string(content: Any) -> tuple[str, bool]:
    if not isinstance(content, str) or isinstance(content, Foreign):
        raise NotJson("a stringValue is no text")
    return readable(content), False


def _bool(content: Any) -> tuple[str, bool]:
    if not isinstance(content, bool):
        raise NotJson("a boolValue is neither true nor false")
    return ("true" if content else "false"), True


def _int(content: Any) -> tuple[str, bool]:
    if not isinstance(content, str) or not (_WHOLE if type(content) is str else _NUMBER).fullmatch(content):
        raise NotJson("an intValue is no whole number")
    return str(content), True


def _double(content: Any) -> tuple[str, bool]:
    if isinstance(content, str) and not isinstance(content, Foreign):
        if content in _NOT_FINITE:
            return _NOT_FINITE[content], False
        if _NUMBER.fullmatch(content):
            return str(content), True
    raise NotJson("a doubleValue is no number")


def _array(content: Any) -> tuple[str, bool]:
    values = _list(content, "values") if isinstance(content, Members) else _no("an arrayValue")
    return "[" + ",".join(_text(each, nested=True) or "" for each in values) + "]", True


def _map(content: Any) -> tuple[str, bool]:
    pairs = _objects(content, "values") if isinstance(content, Members) else _no("a kvlistValue")
    members = (
        f"{json.dumps(_key(pair), ensure_ascii=False)}:{_text(pair.get('value'), nested=True)}" for pair in pairs
    )
    return "{" + ",".join(members) + "}", True


def _no(what: str) -> Any:
    raise NotJson(f"{what} is no object")


_FORMS: dict[str, Callable[[Any], tuple[str, bool]]] = {
    "stringValue": _string,
    "boolValue": _bool,
    "intValue": _int,
    "doubleValue": _double,
    "arrayValue": _array,
    "kvlistValue": _map,
    "bytesValue": _string,
}
_FORMS |= {re.sub("V", "_v", name): read for name, read in _FORMS.items()}


def _list(members: Members, *names: str) -> list[Any]:
    values = members.get(*names)
    if values is None:
        return []
    if not isinstance(values, list) or isinstance(values, Members):
        raise NotJson(f"{names[0]} is no list")
    return values


def _objects(members: Members, *names: str) -> list[Members]:
    values = _list(members, *names)
    if not all(isinstance(each, Members) for each in values):
        raise NotJson(f"{names[0]} has elements that are no objects")
    return values
