"""The door for JSON as agents send it: ``POST /`` with one document a line, an array of them, or one alone."""

from __future__ import annotations

import orjson

from penstock.wire.requests import SYNTAX, Answer, Messages, Received, Refused, Request, dumped, parsed, written

MOST_TOLD = 10
"""Lines that are named in an answer."""


class JsonDoor:
    """Each document is a message, as it is; what is no JSON is refused line by line."""

    codec = "json"

    def takes(self, method: str, path: str) -> bool:
        """POST or PUT to the path ``/``."""
        return path == "/" and method in ("POST", "PUT")

    def receive(self, request: Request) -> Received:
        """Raises Refused."""
        data = request.body.strip()
        messages = Messages(request)
        if data.startswith(b"["):
            documents = parsed(data)
            refused = [(n, why) for n, each in enumerate(documents, 1) if (why := messages.add(written(each)))]
        else:
            refused = _lines(data, messages)
        if not messages and refused:
            number, reason = refused[0]
            raise Refused(413 if reason != SYNTAX else 400, reason, f"nothing was taken: document {number}: {reason}")
        told = [{"document": number, "reason": reason} for number, reason in refused[:MOST_TOLD]]
        return messages.received(
            dumped({"accepted": len(messages), "refused": len(refused), **({"errors": told} if told else {})})
        )

    def refusal(self, why: Refused, request: Request) -> Answer:
        """As JSON."""
        headers = {"retry-after": "1"} if why.may_come_again else {}
        return dumped({"error": str(why), "reason": why.reason}, why.status, headers)


def _lines(data: bytes, messages: Messages) -> list[tuple[int, str]]:
    """Takes the documents that stand a line each, or one that stands on several; which were refused, and why."""
    refused = []
    for number, line in enumerate(data.split(b"\n"), 1):
        line = line.strip()
        if not line:
            continue
        try:
            orjson.loads(line)
        except ValueError:
            if number == 1 and _is_one(data):
                why = messages.add(data)
                return [(1, why)] if why else []
            why = messages.refuse(SYNTAX)
        else:
            why = messages.add(line)
        if why:
            refused.append((number, why))
    return refused


def _is_one(data: bytes) -> bool:
    """Whether all of it is one document."""
    try:
        orjson.loads(data)
    except ValueError:
        return False
    return True
