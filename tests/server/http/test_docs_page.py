from __future__ import annotations

import re
from html.parser import HTMLParser

from penstock.server.http.docs_page import docs_page
from tests.server.running import Running


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value or "" for name, value in attrs if name in ("href", "src", "action", "data")]


def test_page_describes_every_route_and_loads_nothing(running: Running) -> None:
    status, headers, page = running.request("GET", "/docs")
    assert (status, headers["content-type"].partition(";")[0]) == (200, "text/html")
    tags = Tags()
    tags.feed(page)
    assert tags.links == ["openapi.json"]
    assert not re.search(r"https?://|@import|url\(", page)
    for path in ("/topic/{topic}/logs", "/topic/{topic}/logstream", "/topics", "/transactions", "/balance"):
        assert f"<code>{path}</code>" in page


def test_descriptions_are_escaped() -> None:
    document = {
        "info": {"title": "<b>", "version": "&"},
        "paths": {"/<i>": {"get": {"summary": "<u>", "parameters": [{"name": "<s>", "in": "query"}]}}},
    }
    page = docs_page(document)
    assert not any(f"<{tag}>" in page.replace("<b>get</b>", "") for tag in ("b", "i", "u", "s"))


def test_page_cannot_be_framed(running: Running) -> None:
    _, headers, _ = running.request("GET", "/docs")
    assert headers["x-frame-options"] == "DENY"
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
