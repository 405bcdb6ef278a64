"""A walk through all pages with very long messages: they fit, stay short enough to scroll, and can be read."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from penstock.console.components.theme import PAGES
from penstock.landing.table_paths import Layout
from penstock.testing.pipe import Pipe
from tests.spark.spark_helpers import HandWritten
from tests.system.browser import browser
from tests.system.console_process import DESKTOP, PHONE, WAIT, running_console
from tests.system.test_console_accessibility import Site, wait_fit

MAX_HEIGHT = 30_000
"""Pixels: 35 screens. The highest is the configuration on a phone (21,000), with the keys of four changed listeners."""
LONG_LINE = b"a long line " + b"0123456789 abcdef " * ((1 << 20) // 18)
UNBROKEN = b"u" * 20_480
LONG_VALUE = json.dumps({"type": "order", "uuid": "long-1", "timestamp": 1, "data": "v" * 20_480}).encode()
PATHS = {
    **dict.fromkeys(PAGES, ".panel"),
    "/senders": "table.data",
    "/hosts": ".panel",
    "/topic/events": ".tail-line",
    "/topic/events?view=columns": "table.fields",
    "/topic/events?offset=0": ".tail-line",
    "/table/quarantine": ".ag-row",
    "/table/messages": ".ag-row",
    "/quarantine": "a.shape",
    "/find?q=long-1": ".panel",
    "/find?q=uuuuuuuu": ".panel",
    f"/find?q={'u' * 2000}": ".panel",
    "/nosuchpage": ".panel",
}
"""Paths with an element that shows that the page has its content."""
CONTRAST = """() => {
    const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
    function rgba(color) {
        canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = '#000'; canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
        const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
        return [r, g, b, a / 255];
    }
    const over = (top, bottom) => [0, 1, 2].map(i => top[i] * top[3] + bottom[i] * (1 - top[3])).concat(1);
    function background(element) {
        const layers = [];
        for (let e = element; e; e = e.parentElement) layers.push(rgba(getComputedStyle(e).backgroundColor));
        return layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255, 1]);
    }
    function opacity(element) {
        let product = 1;
        for (let e = element; e; e = e.parentElement) product *= parseFloat(getComputedStyle(e).opacity);
        return product;
    }
    function luminance(color) {
        const [r, g, b] = color.map(c => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    }
    function contrast(element, color, more = 1) {
        const below = background(element), ink = rgba(color);
        ink[3] *= opacity(element) * more;
        const [a, b] = [luminance(over(ink, below)), luminance(below)];
        return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    }
    const pale = new Set();
    function check(element, text, color, more) {
        const ratio = contrast(element, color, more);
        const name = `${element.tagName} .${element.getAttribute('class')} "${text.trim().slice(0, 40)}"`;
        if (ratio < 4.5) pale.add(`${name} ${ratio.toFixed(2)}`);
    }
    for (const element of document.querySelectorAll('body *')) {
        const style = getComputedStyle(element);
        if (!element.checkVisibility({checkOpacity: true, checkVisibilityCSS: true})) continue;
        if (!element.getClientRects().length || style.clipPath !== 'none') continue;
        const own = [...element.childNodes].filter(n => n.nodeType === 3 && n.data.trim()).map(n => n.data).join(' ');
        if (own) check(element, own, element instanceof SVGElement ? style.fill : style.color);
        if ('placeholder' in element && element.placeholder && !element.value) {
            const hint = getComputedStyle(element, '::placeholder');
            check(element, 'placeholder ' + element.placeholder, hint.color, parseFloat(hint.opacity));
        }
        if (element.value && element.matches('input, textarea')) check(element, 'value ' + element.value, style.color);
        for (const part of ['::before', '::after']) {
            const made = getComputedStyle(element, part);
            if (/^"[^"]*[a-z][^"]*"$/i.test(made.content)) check(element, part + made.content, made.color);
        }
        const chart = window.echarts && element.matches('[_echarts_instance_]') && echarts.getInstanceByDom(element);
        if (chart) {
            for (const shape of chart.getZr().storage.getDisplayList(true)) {
                const {text, fill, opacity} = shape.style ?? {};
                if (text && fill) check(element, 'chart ' + text, fill, opacity ?? 1);
            }
        }
    }
    return [...pale].sort();
}"""
"""The texts of a page whose contrast is below 4.5: also placeholders, disabled and selected controls, and charts."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("walk")
    more = ("buffer.term_length=64MiB", "listener.events-tcp.max_line=2MiB")
    pipe = Pipe(folder, *more)
    payloads = (LONG_LINE, UNBROKEN, LONG_VALUE)
    rows = [
        {"topic": "events", "offset": 1000 + number, "kind": kind, "reason": reason, "payload": payload}
        for kind, reason in (("quarantine", "no_uuid"), ("message", None))
        for number, payload in enumerate(payloads)
    ]
    HandWritten(Layout.for_tables(pipe.data_dir / "tables")).commit({}, rows)
    pipe.start()
    try:
        for payload in payloads:
            pipe.lines(payload + b"\n")
        pipe.settled()
        with running_console(pipe) as console, browser() as chromium:
            yield Site(console, chromium)
    finally:
        pipe.stop()


@pytest.mark.parametrize("path", PATHS)
def test_page_with_long_messages_fits_and_can_be_read_in_both_themes(site: Site, path: str) -> None:
    page = site.open(path)
    expect(page.locator(PATHS[path]).first).to_be_visible(timeout=WAIT)
    check_both_widths(page)
    with site.darkened(page):
        check_both_widths(page)


def check_both_widths(page: Page) -> None:
    """Check that the page fits and can be read."""
    for width in (PHONE, DESKTOP):
        check_fit(page, width)
        assert page.evaluate(CONTRAST) == []


def check_fit(page: Page, width: int) -> None:
    wait_fit(page, width)
    assert page.evaluate("document.scrollingElement.scrollHeight") <= MAX_HEIGHT


@pytest.mark.parametrize("text", ["a long line", "uuuuu", "long-1"])
def test_long_message_opens_in_the_page_of_its_topic(site: Site, text: str) -> None:
    page = site.open("/topic/events")
    begin = time.monotonic()
    page.locator(".tail-line", has_text=text).first.click()
    for tab in ("JSON", "hex", "headers"):
        page.get_by_role("tab", name=tab).click()
        check_fit(page, PHONE)
        check_fit(page, DESKTOP)
    check_both_widths(page)
    assert time.monotonic() - begin < WAIT / 1000, "the page stays usable"


def test_long_row_opens_in_the_page_of_its_table(site: Site) -> None:
    page = site.open("/table/messages")
    rows = page.locator(".ag-center-cols-container .ag-row")
    expect(rows).to_have_count(5, timeout=WAIT)
    for row in rows.all():
        row.locator(".ag-cell").first.click()
        page.get_by_role("button", name="row as JSON").click()
        expect(page.locator("pre.cell-value")).to_contain_text("payload", timeout=WAIT)
        check_fit(page, PHONE)
        check_fit(page, DESKTOP)
    check_both_widths(page)


def test_tabs_of_listeners_are_whole_on_a_phone(site: Site) -> None:
    page = site.open("/listeners", PHONE)
    expect(page.get_by_role("tab", name="syslog-tcp")).to_be_visible(timeout=WAIT)
    for tab in page.get_by_role("tab").all():
        box = tab.bounding_box()
        assert box is not None
        assert 0 <= box["x"] <= box["x"] + box["width"] <= PHONE, tab.inner_text()
        # What lies on top of both ends of the tab is the tab, and no arrow.
        for x in (box["x"] + 4, box["x"] + box["width"] - 4):
            point = [x, box["y"] + box["height"] / 2]
            assert page.evaluate("([x, y]) => !!document.elementFromPoint(x, y)?.closest('[role=tab]')", point)


def test_quarantined_messages_are_compact_on_a_phone(site: Site) -> None:
    page = site.open("/quarantine", PHONE)
    rows = page.locator(".faults tbody tr")
    expect(rows).to_have_count(3, timeout=WAIT)
    for row in rows.all():
        # One line with time, source and offset, the reason with its fault, and at most three lines of the payload.
        boxes = row.evaluate("row => [...row.cells].map(cell => cell.getBoundingClientRect().toJSON())")
        received, _, position, reason, payload = boxes
        assert abs(received["y"] - position["y"]) < 2
        assert received["y"] < reason["y"] < payload["y"]
        assert payload["height"] < 80
        # The description of the fault continues the line of its reason.
        assert row.locator("td").nth(3).evaluate("cell => getComputedStyle(cell.querySelector('br')).display") == "none"
