"""The web console in a real browser, with a real pipe."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from penstock.testing.pipe import Pipe
from tests.system.browser import browser
from tests.system.console_process import PHONE, WAIT, Tab, running_console, wait_live


@pytest.fixture(scope="module")
def console(one_pipe: Pipe) -> Iterator[str]:
    """The address of a running console."""
    with running_console(one_pipe) as address:
        yield address


@pytest.fixture(scope="module")
def tab(console: str) -> Iterator[Tab]:
    with browser() as chromium:
        yield Tab(console, chromium)


def test_page_without_data_shows_addresses_commands_and_keys(one_pipe: Pipe, tab: Tab) -> None:
    page, wrong = tab.open()
    host, port = one_pipe.address("events-udp")
    first_message = page.locator(".panel", has_text="Send a first message")
    expect(first_message).to_contain_text(f"{host}:{port}", timeout=WAIT)
    expect(first_message).to_contain_text("echo hello | penstock send --listener events-udp", timeout=WAIT)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    first_message.get_by_role("button", name=f"copy {host}:{port}").click()
    assert page.evaluate("navigator.clipboard.readText()") == f"{host}:{port}"
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="keys")).to_contain_text("find a message", timeout=WAIT)
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="keys")).to_be_hidden(timeout=WAIT)
    assert wrong == []


EMPTY = {
    "/": "echo hello | penstock send --listener events-udp",
    "/listeners": "echo hello | penstock send --listener events-udp",
    "/topics": "echo hello | penstock send --listener events-udp",
    "/topic/none": "Topic does not exist: none",
    "/pipeline": "penstock pipeline run",
    "/sql": "select type",
    "/kafka": "penstock promote",
    "/senders": "No sender has sent a message yet. Send the first one:",
    "/alarms": "No alarm fires.",
    "/configuration": "data_dir",
    "/quarantine": "Quarantine is empty",
    "/table/events": "No rows.",
    "/find?q=kite": "No message in the log or the tables",
}
"""Pages without data, and what they show in its place."""


WIDER_THAN_ITS_FRAME = "tables => tables.filter(t => t.scrollWidth > t.parentElement.clientWidth).map(t => t.innerText)"
"""The stacked tables that would scroll sideways."""


def test_pages_without_data_fit_a_phone_and_name_the_next_step(one_pipe: Pipe, tab: Tab) -> None:
    host, port = one_pipe.address("events-udp")
    page, wrong = tab.open(width=PHONE)
    for path, text in EMPTY.items():
        page.goto(tab.console + path)
        wait_live(page)
        expect(page.locator(".page")).to_contain_text(text, timeout=WAIT)
        if "penstock send" in text:
            expect(page.locator(".page")).to_contain_text(f"{host}:{port}", timeout=WAIT)
        assert page.evaluate("document.scrollingElement.scrollWidth") <= PHONE, path
        assert page.locator("table.stack").evaluate_all(WIDER_THAN_ITS_FRAME) == [], path
    page.goto(f"{tab.console}/topic/none")
    expect(page.locator(".page")).to_contain_text("No reader has committed a cursor.", timeout=WAIT)
    expect(page.locator(".page canvas:visible")).to_have_count(0, timeout=WAIT)
    assert wrong == []


def test_sent_message_is_found_on_the_pages(one_pipe: Pipe, tab: Tab) -> None:
    sent_message = json.dumps({"type": "click", "uuid": "my-own-message", "timestamp": 1, "data": {"n": 1}}).encode()
    one_pipe.datagrams(sent_message, b"another")
    one_pipe.settled()
    page, wrong = tab.open()
    expect(page.get_by_text("No message lost of 2")).to_be_visible(timeout=WAIT)
    expect(page.locator("svg.pipe:visible")).to_contain_text("events-udp", timeout=WAIT)
    expect(page.locator("svg.pipe:visible")).to_contain_text("2 accepted", timeout=WAIT)
    expect(page.locator("svg.pipe:visible")).to_contain_text("2 logged", timeout=WAIT)
    expect(page.locator("canvas")).to_be_visible(timeout=WAIT)
    page.locator("svg.pipe:visible a", has_text="2 logged").click()
    line = page.get_by_role("button").filter(has_text="my-own-message")
    line.click(timeout=WAIT)
    expect(page.locator("pre").first).to_contain_text('"uuid": "my-own-message"', timeout=WAIT)
    expect(page.locator("pre").first).to_be_in_viewport()
    page.get_by_role("tab", name="hex").click()
    expect(page.locator("pre", has_text="00000000  7b 22 74")).to_be_visible(timeout=WAIT)
    page.get_by_role("tab", name="headers").click()
    expect(page.get_by_text("No key and no annotations")).to_be_visible(timeout=WAIT)
    assert wrong == []


def test_message_is_found_by_text_uuid_and_offset_from_every_page(one_pipe: Pipe, tab: Tab) -> None:
    one_pipe.datagrams(
        json.dumps({"type": "order", "uuid": "find-me-1", "timestamp": 1, "data": "a red kite"}).encode()
    )
    one_pipe.datagrams(b"a blue kite")
    one_pipe.settled()
    page, wrong = tab.open("/listeners")
    expect(page.get_by_text("live", exact=True)).to_be_visible(timeout=WAIT)
    page.keyboard.press("/")
    page.keyboard.type("kite", delay=20)
    page.keyboard.press("Enter")
    page.wait_for_url("**/find?q=kite", timeout=WAIT)
    expect(page.locator("table.data")).to_contain_text("a red kite", timeout=WAIT)
    page.locator("tr", has_text="a blue kite").get_by_role("link").click()
    expect(page.locator(".verdict")).to_contain_text("has not landed yet", timeout=WAIT)
    expect(page.locator(".stations .reached")).to_have_count(2, timeout=WAIT)
    expect(page.locator(".stations .here")).to_contain_text("topic events, offset", timeout=WAIT)
    page.goto(f"{tab.console}/find?q=find-me-1")
    expect(page.locator(".verdict")).to_contain_text("uuid find-me-1", timeout=WAIT)
    page.get_by_text("previous message").or_(page.get_by_text("next message")).first.click()
    expect(page.locator(".verdict")).not_to_contain_text("find-me-1", timeout=WAIT)
    page.goto(f"{tab.console}/find?q=00:00")
    expect(page.locator("table.data")).to_contain_text("events:0", timeout=WAIT)
    page.goto(f"{tab.console}/find?q=<b>nothing</b>")
    expect(page.locator(".bad", has_text="<b>nothing</b>")).to_be_visible(timeout=WAIT)
    assert wrong == []


def test_messages_are_columns_that_can_be_selected_by_field(one_pipe: Pipe, tab: Tab) -> None:
    for number, name in enumerate(["ann", "bob", "ann"]):
        document = {"type": "visit", "uuid": f"visit{number}", "timestamp": 1, "data": {"user": name, "n": number}}
        one_pipe.datagrams(json.dumps(document).encode())
    one_pipe.settled()
    page, wrong = tab.open("/topic/events?view=columns")
    rows = page.locator("table.fields tbody tr")
    rows.filter(has_text="visit0").locator("td").nth(1).click(timeout=WAIT)
    page.get_by_role("tab", name="fields").click()
    page.get_by_role("button", name="only messages with data.user ann").click()
    expect(rows).to_have_count(2, timeout=WAIT)
    expect(page.locator("mark")).to_have_text(["ann", "ann"], timeout=WAIT)
    expect(page.locator("canvas")).to_be_visible(timeout=WAIT)
    page.get_by_label("search or filter").fill("visit2")
    page.keyboard.press("Enter")
    expect(page.locator("mark")).to_have_text(["visit2", "ann"], timeout=WAIT)
    page.wait_for_url("**/topic/events?q=visit2&where=data.user%3Dann&view=columns", timeout=WAIT)
    page.reload()
    expect(rows).to_have_count(1, timeout=WAIT)
    page.get_by_role("button", name="remove data.user").click()
    page.wait_for_url("**/topic/events?q=visit2&view=columns", timeout=WAIT)
    assert wrong == []


def test_complaint_about_a_condition_stays_while_the_page_follows(one_pipe: Pipe, tab: Tab) -> None:
    one_pipe.lines(b'{"user": "ann"}\n')
    one_pipe.settled()
    page, _ = tab.open("/topic/events?view=columns")
    messages = page.locator("table.fields tbody tr")
    expect(messages.first).to_be_visible(timeout=WAIT)
    page.get_by_label("field=value").fill("ann")
    page.get_by_label("field=value").press("Enter")
    complaint = page.get_by_role("alert").filter(has_text="'ann' is not like data.user=ann")
    expect(complaint).to_be_visible(timeout=WAIT)
    # The page shows what arrives, and keeps the complaint.
    one_pipe.lines(b'{"user": "a later message"}\n')
    expect(messages.first).to_contain_text("a later message", timeout=WAIT)
    expect(complaint).to_be_visible()


def test_rows_of_a_table_are_selected_by_field(one_pipe: Pipe, tab: Tab) -> None:
    for name in ("zoe", "max"):
        document = {"type": "tabled", "uuid": f"tabled-{name}", "timestamp": 1, "data": {"user": {"name": name}}}
        one_pipe.datagrams(json.dumps(document).encode())
    one_pipe.settled()
    page, wrong = tab.open("/table/events?where=type%3Dtabled")
    rows = page.locator(".ag-center-cols-container .ag-row")
    expect(rows).to_have_count(2, timeout=WAIT)
    expect(page.locator("canvas")).to_be_visible(timeout=WAIT)
    expect(page.locator(".columns")).to_contain_text(re.compile(r"data\s*JSON"), timeout=WAIT)
    page.get_by_label("column=value").fill("data.user.name=zoe")
    page.keyboard.press("Enter")
    expect(rows).to_have_count(1, timeout=WAIT)
    expect(page.locator("mark", has_text="zoe").first).to_be_visible(timeout=WAIT)
    page.wait_for_url("**/table/events?where=type%3Dtabled&where=data.user.name%3Dzoe", timeout=WAIT)
    page.get_by_label("column=value").fill("nothing=1")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert").filter(has_text="events has no column 'nothing'")).to_be_visible(timeout=WAIT)
    page.get_by_role("button", name="remove nothing").click()
    page.get_by_role("link", name="open as a query").click()
    expect(page.get_by_role("textbox", name="query")).to_contain_text(
        "where cast(type as varchar) = 'tabled'", timeout=WAIT
    )
    assert wrong == []


def test_query_page_shows_answers_and_errors(one_pipe: Pipe, tab: Tab) -> None:
    one_pipe.datagrams(json.dumps({"type": "asked-for", "uuid": "q1", "timestamp": 1, "data": {"n": 7}}).encode())
    one_pipe.settled()
    page, wrong = tab.open("/sql")
    editor = page.get_by_role("textbox", name="query")
    page.get_by_role("button", name="run").click()
    expect(page.locator(".ag-row", has_text="asked-for")).to_be_visible(timeout=WAIT)
    expect(page.get_by_text("newer messages of the log")).to_be_visible(timeout=WAIT)
    for name, begin in (("CSV", b"type,events,newest\n"), ("Parquet", b"PAR1"), ("JSON", b"[{")):
        with page.expect_download() as download:
            page.get_by_role("button", name=f"download as {name}").click()
        content = Path(download.value.path()).read_bytes()
        assert content.startswith(begin)
        assert b"asked-for" in content
    page.get_by_role("button", name="bar").click()
    expect(page.locator("canvas")).to_be_visible(timeout=WAIT)
    editor.fill("select * from nosuch")
    page.keyboard.press("Control+Enter")
    expect(page.locator("pre.bad")).to_contain_text("Existing views: landed, events", timeout=WAIT)
    assert wrong == []


def test_grid_of_a_query_holds_the_visible_rows_and_opens_full_values(tab: Tab) -> None:
    text = "select range as n, repeat('long ', 500) || range as text, encode('{\"a\":1}') as payload from range(5000)"
    page, wrong = tab.open(f"/sql?q={quote(text)}")
    expect(page.locator(".cm-content")).to_contain_text("repeat", timeout=WAIT)
    page.get_by_role("button", name="run").click()
    expect(page.get_by_text("the first 1,000 rows; a download has up to 100,000")).to_be_visible(timeout=WAIT)
    assert page.locator(".ag-center-cols-container .ag-row").count() < 60
    assert page.locator(".result-grid").bounding_box()["height"] <= 480  # type: ignore[index]  # it is visible
    row = page.locator(".ag-center-cols-container [row-index='0']")
    header = page.get_by_role("columnheader", name="n", exact=True)
    for order in ("ascending", "descending"):
        header.click()
        expect(header).to_have_attribute("aria-sort", order, timeout=WAIT)
    expect(row).to_contain_text("999", timeout=WAIT)
    row.locator("[col-id=c1]").click()
    expect(page.locator("pre.cell-value")).to_contain_text("long 999", timeout=WAIT)
    page.get_by_role("button", name="row as JSON").click()
    expect(page.locator("pre.cell-value")).to_contain_text('"n": 999', timeout=WAIT)
    row.locator("[col-id=c2]").focus()
    page.keyboard.press("Enter")
    expect(page.locator("pre.cell-value")).to_contain_text('"a": 1', timeout=WAIT)
    page.once("dialog", lambda dialog: dialog.accept("all numbers"))
    page.get_by_role("button", name="save").click()
    page.reload()
    page.get_by_text("History").click(timeout=WAIT)
    page.get_by_text("Saved queries").click(timeout=WAIT)
    # The schema arrives later, and must leave the lists as they are.
    expect(page.locator(".schema")).to_contain_text("quarantine", timeout=WAIT)
    page.get_by_role("button", name="the first 1,000 rows").click(timeout=WAIT)
    page.get_by_role("button", name="all numbers", exact=True).click(timeout=WAIT)
    assert wrong == []


def test_column_is_completed_before_the_query_names_a_view(tab: Tab) -> None:
    page, wrong = tab.open("/sql")
    expect(page.locator(".schema")).to_contain_text("quarantine", timeout=WAIT)
    page.get_by_role("textbox", name="query").fill("")
    page.keyboard.type("select event_t")
    expect(page.locator(".cm-tooltip-autocomplete")).to_contain_text("event_time", timeout=WAIT)
    assert wrong == []


def test_history_is_wholly_visible_below_the_schema(tab: Tab) -> None:
    page, wrong = tab.open("/sql")
    expect(page.locator(".schema")).to_contain_text("quarantine", timeout=WAIT)
    for heading in ("Saved queries", "History"):
        expect(page.get_by_text(heading, exact=True)).to_be_in_viewport(ratio=1)
    assert wrong == []


def test_query_is_completed_and_cancelled(tab: Tab) -> None:
    page, wrong = tab.open("/sql")
    editor = page.get_by_role("textbox", name="query")
    expect(page.locator(".schema")).to_contain_text("quarantine", timeout=WAIT)
    editor.fill("select e. from events e")
    for _ in range(len(" from events e")):
        page.keyboard.press("ArrowLeft")
    page.keyboard.type("hos")
    # Clicked: the editor ignores Enter within the first 75 ms of a list.
    page.get_by_role("option", name="host").click(timeout=WAIT)
    expect(editor).to_have_text("select e.host from events e", timeout=WAIT)
    editor.fill("select sum(a.range * b.range) from range(10000000) a, range(10000000) b")
    page.keyboard.press("Control+Enter")
    page.get_by_role("button", name="cancel").click(timeout=WAIT)
    expect(page.locator("pre.bad")).to_have_text("cancelled", timeout=WAIT)
    assert wrong == []


def test_keys_change_the_page_and_the_theme(tab: Tab) -> None:
    page, wrong = tab.open(dark=True)
    page.wait_for_function("document.body.classList.contains('body--dark')", timeout=WAIT)
    page.keyboard.press("d")
    page.wait_for_function("!document.body.classList.contains('body--dark')", timeout=WAIT)
    for key, path in (
        ("2", "/listeners"),
        ("3", "/topics"),
        ("4", "/pipeline"),
        ("5", "/sql"),
        ("6", "/kafka"),
        ("7", "/alarms"),
        ("8", "/configuration"),
        ("9", "/audits"),
    ):
        page.keyboard.press(key)
        page.wait_for_url(f"**{path}", timeout=WAIT)
        expect(page.locator(".top a.here")).to_have_attribute("href", path, timeout=WAIT)
    assert wrong == []


def test_current_configuration_can_be_searched(one_pipe: Pipe, tab: Tab) -> None:
    page, wrong = tab.open("/configuration")
    expect(page.locator("body")).to_contain_text("duplicate_window", timeout=WAIT)
    page.get_by_placeholder("find a key or a word").fill("log.http")
    expect(page.locator("body")).not_to_contain_text("duplicate_window", timeout=WAIT)
    expect(page.locator("body")).to_contain_text(one_pipe.http, timeout=WAIT)
    assert wrong == []


def test_senders_can_be_searched(one_pipe: Pipe, tab: Tab) -> None:
    one_pipe.datagrams(b"a message of a sender")
    page, wrong = tab.open("/listeners")
    page.get_by_role("link", name="Senders").click()
    expect(page.locator("body")).to_contain_text("127.0.0.1", timeout=WAIT)
    page.get_by_placeholder("find a sender").fill("203.0.113.")
    expect(page.locator("body")).to_contain_text("No sender has 203.0.113. in its name", timeout=WAIT)
    page.goto(f"{tab.console}/hosts")
    expect(page.locator("body")).to_contain_text("No host relays to this one", timeout=WAIT)
    assert wrong == []


def test_missing_daemon_is_shown_and_detected_again(one_pipe: Pipe, tab: Tab) -> None:
    page, _ = tab.open()
    expect(page.get_by_text("live", exact=True)).to_be_visible(timeout=WAIT)
    one_pipe.stop()
    expect(page.get_by_text("The log daemon does not answer")).to_be_visible(timeout=60_000)
    one_pipe.start()
    expect(page.get_by_text("live", exact=True)).to_be_visible(timeout=60_000)


def test_stopped_daemon_makes_the_page_unknown_without_rates(one_pipe: Pipe, tab: Tab) -> None:
    page, wrong = tab.open()
    expect(page.locator("svg.pipe:visible .rate").first).to_contain_text("/s", timeout=WAIT)
    with one_pipe.paused("log daemon"):
        expect(page.get_by_text("Unknown since")).to_be_visible(timeout=WAIT)
        expect(page.locator(".page")).to_have_class(re.compile("unknown"), timeout=WAIT)
        expect(page.locator("svg.pipe:visible .rate").first).to_have_text("?", timeout=WAIT)
        assert "grayscale" in page.locator(".page > .panel").first.evaluate("one => getComputedStyle(one).filter")
    expect(page.get_by_text("Unknown since")).to_be_hidden(timeout=WAIT)
    assert wrong == []


def test_address_in_use_is_one_line(one_pipe: Pipe) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        command = [sys.executable, "-m", "penstock.cli.main", "console", "--http", address, *one_pipe.options]
        completed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert completed.returncode == 1
    assert completed.stderr.startswith("penstock: console.http")
    assert completed.stderr.count("\n") == 1
