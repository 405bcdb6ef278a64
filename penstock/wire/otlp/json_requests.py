"""OTLP in JSON, translated to protobuf: few senders use it, so it has no decoder of its own.

Values become the texts of annotations and payloads: numbers keep their sent form, which a double could not hold. A bad
record is left out and counted; the others are accepted.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from google.protobuf import json_format
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs, SeverityNumber
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from penstock.wire.json_text import TOO_DEEP, Foreign, Members, NotJson, Number, exact, readable
from penstock.wire.otlp.records import OLD_SCOPES
from penstock.wire.requests import MAX_MESSAGES, MIN_VALUES, SYNTAX, Refused, check_message_count, check_value_count

_INTEGER = re.compile(r"-?[0-9]+")
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}
"""JSON strings of numbers that are not finite, and their texts in annotations."""
_RESOURCES = ("resourceLogs", "resource_logs")
_IDS = ("traceId", "spanId")
_TIMES = ("timeUnixNano", "observedTimeUnixNano")
_RESOURCE_MEMBERS, _SCOPE_MEMBERS = (
    {name for field in message.DESCRIPTOR.fields for name in (field.name, field.json_name)}
    for message in (ResourceLogs, ScopeLogs)
)
_RESOURCE_MEMBERS |= {"instrumentationLibraryLogs", "instrumentation_library_logs"}
_PARSED: dict[type[LogRecord | Resource | InstrumentationScope], str] = {
    LogRecord: "a record",
    Resource: "a resource",
    InstrumentationScope: "a scope",
}
_JSON_NAMES = {
    message: {name: field.json_name for field in message.DESCRIPTOR.fields for name in (field.name, field.json_name)}
    for message in _PARSED
}
"""Names of JSON, by these and by the names of the .proto file, which protobuf's JSON form accepts, too."""
_MAX_TIME_DIGITS = 40
"""Limit: characters of a time that is converted exactly; nanoseconds of 64 bits have 20 digits."""


@dataclass(slots=True)
class JsonRequest:
    """A request in protobuf without its bad records; ``first_error`` is about the first of these."""

    request: ExportLogsServiceRequest = field(default_factory=ExportLogsServiceRequest)
    scopes: int = 0
    records: int = 0
    refused: int = 0
    first_error: str = ""

    def refuse(self, count: int, error: str) -> None:
        """Count records that are left out."""
        self.refused += count
        if count:
            self.first_error = self.first_error or error


def as_protobuf(data: bytes, max_messages: int = MAX_MESSAGES, max_values: int = MIN_VALUES) -> JsonRequest:
    """Translate a request to protobuf. Raises Refused if it is malformed or has no good record."""
    check_value_count(data, max_values)
    try:
        document = exact(data)
    except NotJson as error:
        raise Refused(400, SYNTAX, f"the body is {error}") from None
    if not isinstance(document, Members):
        raise Refused(400, SYNTAX, "the body is not an object")
    translated = JsonRequest()
    try:
        resources = _list(document, *_RESOURCES)
        check_message_count(len(resources), max_messages, "resources")
        if document and not any(name in _RESOURCES for name, _ in document):
            # Otherwise spans or metrics that were sent to the path of logs would be accepted and lost.
            raise NotJson(f"it has {document[0][0]!r} and no resourceLogs")
        for number, resource_logs in enumerate(resources, 1):
            _add_resource(resource_logs, f"resourceLogs {number}", translated, max_messages)
    except NotJson as error:
        raise Refused(400, SYNTAX, f"the body is not a request: {error}") from None
    if translated.refused and not translated.records:
        raise Refused(400, SYNTAX, f"no record can be read: {translated.first_error}")
    return translated


def _add_resource(resource_logs: Any, subject: str, translated: JsonRequest, max_messages: int) -> None:
    """Add the records of a resource; a malformed one is refused as one record, because its records are not counted."""
    try:
        members = _members(resource_logs)
        _require_known(members, _RESOURCE_MEMBERS, "a member of resourceLogs")
        scopes = _list(members, "scopeLogs", "scope_logs")
        if _list(members, "instrumentationLibraryLogs", "instrumentation_library_logs"):
            raise NotJson(OLD_SCOPES)
        resource = members.get("resource")
    except NotJson as error:
        translated.refuse(1, f"{subject}: {error}")
        return
    translated.scopes += len(scopes)
    check_message_count(translated.scopes, max_messages, "scopes")
    target = translated.request.resource_logs.add()
    resource_error = _parse(resource, target.resource)
    for number, scope_logs in enumerate(scopes, 1):
        _add_scope(scope_logs, f"{subject}, scopeLogs {number}", resource_error, target, translated, max_messages)


def _add_scope(
    scope_logs: Any, subject: str, resource_error: str, target: ResourceLogs, translated: JsonRequest, max_messages: int
) -> None:
    try:
        members = _members(scope_logs)
        _require_known(members, _SCOPE_MEMBERS, "a member of scopeLogs")
        records = _list(members, "logRecords", "log_records")
        scope = members.get("scope")
    except NotJson as error:
        translated.refuse(1, f"{subject}: {error}")
        return
    # Limit: before the records of a scope become objects.
    check_message_count(translated.records + translated.refused + len(records), max_messages)
    target_scope = target.scope_logs.add()
    # Records without their resource or scope would be stored without their origin, so all of them are refused.
    if error_text := resource_error or _parse(scope, target_scope.scope):
        translated.refuse(len(records), f"its resource or scope cannot be read: {error_text}")
        return
    for record in records:
        if error_text := _parse(record, target_scope.log_records.add(), required=True):
            del target_scope.log_records[-1]
            translated.refuse(1, f"record {translated.records + translated.refused + 1}: {error_text}")
        else:
            translated.records += 1


def _require_known(members: Members, names: Collection[str], kind: str) -> None:
    """Raise NotJson for an object that has members, and none with a name of OTLP: its content would be lost."""
    if members and not any(name in names for name, _ in members):
        raise NotJson(f"{members[0][0][:40]!r} is not {kind}")


def _members(container: Any) -> Members:
    if not isinstance(container, Members):
        raise NotJson("an object is expected")
    return container


def _parse(members: Any, target: LogRecord | Resource | InstrumentationScope, *, required: bool = False) -> str:
    """Read a record, resource or scope into ``target``; return the error if it is malformed."""
    if members is None and not required:
        return ""
    try:
        fields: dict[str, Any] = {}
        json_names = _JSON_NAMES[type(target)]
        _require_known(_members(members), json_names, f"a member of {_PARSED[type(target)]}")
        for name, content in _members(members):
            if content is None:
                continue
            # As the parsers of Go, Java and C++: two spellings are the same field. Python's takes the last one.
            json_name = json_names.get(name, name)
            if json_name in fields:
                raise NotJson(f"{json_name} occurs more than once")
            fields[json_name] = content
        # Fast path: json_format takes four times as long for an attribute.
        for pair in _list(members, "attributes"):
            _add_attribute(pair, target)
        fields.pop("attributes", None)
        if isinstance(target, LogRecord) and "body" in fields:
            text = _text(fields.pop("body"), nested=False)
            if text is not None:
                target.body.string_value = text
        plain_fields = {name: _field(name, content) for name, content in fields.items()}
        json_format.ParseDict(plain_fields, target, ignore_unknown_fields=True)
    except RecursionError:
        return TOO_DEEP
    except ArithmeticError:  # an exponent that no number has room for
        return "a number is out of range"
    except (NotJson, json_format.ParseError, ValueError, TypeError, AttributeError) as error:
        return str(error).partition("\n")[0]
    return ""


def _field(name: str, content: Any) -> Any:
    """Convert a field of a record, resource or scope for ``json_format``. Raises NotJson."""
    if name in _IDS:
        return _id(name, content)
    if name in _TIMES and isinstance(content, str):
        return _convert_time(content)
    return _severity(content) if name == "severityNumber" else _plain(content)


def _severity(content: Any) -> Any:
    """Convert a severity: a name of OTLP, or a number, of which json_format would drop a fraction and high bits."""
    if type(content) is str and content in SeverityNumber.keys():  # noqa: SIM118 an enum is not a dict
        return content
    is_digits = type(content) is str and len(content) < 30 and _INTEGER.fullmatch(content)
    number = int(content) if is_digits else _plain(content)
    if not isinstance(number, int | float) or isinstance(number, bool):
        # json_format would leave an unknown name out without an error.
        raise NotJson(f"severityNumber {str(content)[:40]!r} is neither a number nor a name of OTLP")
    if number != number // 1 or not -(1 << 31) <= number < 1 << 31:
        raise NotJson(f"severityNumber {content[:40]} is not an integer of 32 bits")
    return int(number)


def _convert_time(digits: str) -> Any:
    """Return a time as an integer, with all of its digits also if it has a point or an exponent."""
    if len(digits) <= _MAX_TIME_DIGITS and _NUMBER.fullmatch(digits):
        number = Decimal(digits)
        # Limit: an exponent must not decide the size of the integer.
        if number.adjusted() < _MAX_TIME_DIGITS and number == number.to_integral_value():
            return int(number)
    return _plain(digits)


def _plain(content: Any) -> Any:
    if isinstance(content, Foreign):
        raise NotJson(f"{content} is not JSON")
    if isinstance(content, Number):
        # Limit: int() takes quadratic time; no integer field of a record has 30 digits.
        return int(content) if len(content) < 30 and _INTEGER.fullmatch(content) else float(content)
    return readable(content) if isinstance(content, str) else content


def _id(name: str, digits: Any) -> str:
    """Convert hexadecimal digits, which OTLP uses, to base64, which protobuf's JSON uses."""
    try:
        return base64.b64encode(bytes.fromhex(digits)).decode()
    except (TypeError, ValueError):
        raise NotJson(f"{name} has characters other than hexadecimal digits") from None


def _add_attribute(pair: Any, target: LogRecord | Resource | InstrumentationScope) -> None:
    if not isinstance(pair, Members):
        raise NotJson("an attribute is not an object")
    _require_known(pair, ("key", "value"), "a member of an attribute")
    attribute = target.attributes.add(key=_key(pair))
    text = _text(pair.get("value"), nested=False)
    if text is not None:
        attribute.value.string_value = text


def _key(pair: Members) -> str:
    key = pair.get("key")
    if key is not None and (not isinstance(key, str) or isinstance(key, Number | Foreign)):
        raise NotJson("the key of an attribute is not a string")
    return readable(key or "")


def _text(any_value: Any, *, nested: bool) -> str | None:
    """Return the text that is stored for an AnyValue, as JSON if it is nested in another one. Raises NotJson."""
    if any_value is None:
        return "null" if nested else None
    if not isinstance(any_value, Members):
        raise NotJson("a value is not an object")
    forms = [(_FORMS[name], content) for name, content in any_value if name in _FORMS and content is not None]
    if len(forms) > 1:
        raise NotJson("a value has more than one type")
    if not forms:
        _require_known(any_value, _FORMS, "a type of a value")
        return "null" if nested else None
    read, content = forms[0]
    text, is_json = read(content)
    return json.dumps(text, ensure_ascii=False) if nested and not is_json else text


def _string(content: Any) -> tuple[str, bool]:
    if not isinstance(content, str) or isinstance(content, Foreign):
        raise NotJson("a stringValue is not a string")
    return readable(content), False


def _bool(content: Any) -> tuple[str, bool]:
    if not isinstance(content, bool):
        raise NotJson("a boolValue is neither true nor false")
    return ("true" if content else "false"), True


def _int(content: Any) -> tuple[str, bool]:
    if not isinstance(content, str) or not (_INTEGER if type(content) is str else _NUMBER).fullmatch(content):
        raise NotJson("an intValue is not an integer")
    return str(content), True


def _double(content: Any) -> tuple[str, bool]:
    if isinstance(content, str) and not isinstance(content, Foreign):
        if content in _NOT_FINITE:
            return _NOT_FINITE[content], False
        if _NUMBER.fullmatch(content):
            return str(content), True
    raise NotJson("a doubleValue is not a number")


def _array(content: Any) -> tuple[str, bool]:
    values = _list(content, "values") if isinstance(content, Members) else _raise_not_object("an arrayValue")
    return "[" + ",".join(_text(element, nested=True) or "" for element in values) + "]", True


def _map(content: Any) -> tuple[str, bool]:
    pairs = _objects(content, "values") if isinstance(content, Members) else _raise_not_object("a kvlistValue")
    members = (
        f"{json.dumps(_key(pair), ensure_ascii=False)}:{_text(pair.get('value'), nested=True)}" for pair in pairs
    )
    return "{" + ",".join(members) + "}", True


def _raise_not_object(subject: str) -> Any:
    raise NotJson(f"{subject} is not an object")


_FORMS: dict[str, Callable[[Any], tuple[str, bool]]] = {
    "stringValue": _string,
    "boolValue": _bool,
    "intValue": _int,
    "doubleValue": _double,
    "arrayValue": _array,
    "kvlistValue": _map,
    "bytesValue": _string,
}
"""For each member of an AnyValue the function that returns its text, and whether the text is JSON."""
# Protobuf's JSON form also accepts the names of the .proto file: string_value.
_FORMS |= {name.replace("V", "_v"): read for name, read in _FORMS.items()}


def _list(members: Members, *names: str) -> list[Any]:
    values = members.get(*names)
    if values is None:
        return []
    if not isinstance(values, list) or isinstance(values, Members):
        raise NotJson(f"{names[0]} is not a list")
    return values


def _objects(members: Members, *names: str) -> list[Members]:
    values = _list(members, *names)
    if not all(isinstance(element, Members) for element in values):
        raise NotJson(f"{names[0]} has elements that are not objects")
    return values
