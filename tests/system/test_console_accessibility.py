"""Accessibility of the console's pages: axe-core in a real browser, on pages with data, in both themes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import deltalake
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from penstock.landing.table_paths import Layout
from penstock.testing.pipe import Pipe
from tests.audit.audited import run_audit, write_delta, write_parquet
from tests.spark.spark_helpers import HandWritten
from tests.system.browser import browser
from tests.system.console_process import DESKTOP, PHONE, WAIT, Tab, resize, running_console

LONG_WORD = "k" * 600
REQUIRED_RULES = {"html-has-lang", "page-has-heading-one", "heading-order", "landmark-one-main"}
"""Rules of less than serious impact that pages follow, too."""
PAGES = {
    "/": ".chip:visible",
    "/listeners": "table.data",
    "/topics": "table.data",
    "/topic/events": ".tail-line",
    "/topic/events?view=columns": "table.fields",
    "/pipeline": "table.data",
    "/sql": ".cm-content[aria-label=query]",
    "/kafka": ".panel",
    "/alarms": "table.data",
    "/table/quarantine?where=reason%3Dno_uuid": ".ag-row mark",
    "/configuration": "table.data",
    "/audits": "table.data",
    "/quarantine": "a.shape",
    "/find?q=kite": "table.data",
    "/find?q=find-me": ".stations",
    "/nosuchpage": ".panel",
}
"""Paths with an element that shows that the page has its data."""


SCROLLABLE_AREAS_ARE_MARKED = """[...document.querySelectorAll(".wide, .tail, .schema, pre")].every(
    area => area.tabIndex === 0 || area.scrollWidth <= area.clientWidth && area.scrollHeight <= area.clientHeight
)"""
"""The page marks them at most five times a second."""

MAX_RUNS = 3
"""Runs of axe at most while areas are not marked: pages are updated once a second."""

COLORS_HAVE_CHANGED = "document.getAnimations().every(animation => !(animation instanceof CSSTransition))"

HAS_FADED_IN = """document.getAnimations().every(
    animation => animation.playState !== "running" || animation.effect.getComputedTiming().iterations === Infinity
)"""
"""A dialog that still appears has pale colors."""

COLOR_RULES = ("color-contrast", "link-in-text-block")
"""The rules whose findings depend on colors: a page in the other theme needs no others."""


class Site:
    """A console with data, and one tab of a browser for its pages."""

    def __init__(self, console: str, chromium: Browser) -> None:
        self._tab = Tab(console, chromium)

    def open(self, path: str, width: int = DESKTOP) -> Page:
        page, _ = self._tab.open(path, width)
        expect(page.get_by_text("live", exact=True)).to_be_visible(timeout=WAIT)
        return page

    @contextmanager
    def darkened(self, page: Page) -> Iterator[None]:
        """Let the system's theme become dark while a page is open, which saves loading it again."""
        page.emulate_media(color_scheme="dark")
        try:
            expect(page.locator("body.body--dark")).to_be_visible(timeout=WAIT)
            page.wait_for_function(COLORS_HAVE_CHANGED, timeout=WAIT)
            yield
        finally:
            page.emulate_media(color_scheme="light")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("accessible")
    pipe = Pipe(folder)
    payloads = [json.dumps({LONG_WORD: number, "type": 1}).encode() for number in range(3)]
    rows = [
        {"topic": "events", "offset": 1000 + n, "kind": "quarantine", "reason": "no_uuid", "payload": payload}
        for n, payload in enumerate(payloads)
    ]
    offsets = [(0, offset) for offset in range(60)]
    source, copy = write_parquet(folder / "source", offsets), write_delta(folder / "copy", offsets[:40])
    deltalake.DeltaTable(str(copy)).delete("kafka_offset >= 30")
    (folder / "audit.toml").write_text(f'data_dir = "{pipe.data_dir}"\n')
    assert run_audit("", str(source), copy, "--config", str(folder / "audit.toml"))[0] == 1
    HandWritten(Layout.for_tables(pipe.data_dir / "tables")).commit({}, rows)
    pipe.start()
    try:
        event = {"type": "order", "uuid": "find-me", "timestamp": 1, "data": "a red kite"}
        pipe.datagrams(json.dumps(event).encode(), b"a blue kite " + b"x" * 5000, b"\x00\x01\xff")
        pipe.settled()
        with running_console(pipe) as console, browser() as chromium:
            yield Site(console, chromium)
    finally:
        pipe.stop()


def violations(page: Page, *disabled: str, only: tuple[str, ...] = ()) -> list[str]:
    """Return axe's serious and critical findings, and the ones of REQUIRED_RULES, each with its first element."""
    options: dict[str, Any] = {"resultTypes": ["violations"], "rules": {rule: {"enabled": False} for rule in disabled}}
    if only:
        options["runOnly"] = list(only)
    axe = Axe(axe_script="0") if page.evaluate("'axe' in window") else Axe()  # it is half a megabyte to compile
    findings: list[dict[str, Any]] = []
    for _ in range(MAX_RUNS):
        findings = axe.run(page, options=options).response["violations"]
        if not any(finding["id"] == "scrollable-region-focusable" for finding in findings):
            break
        # An update has put an area in place of another one since the page was found complete.
        page.wait_for_function(SCROLLABLE_AREAS_ARE_MARKED, timeout=WAIT)
    return [
        f"{finding['id']}: {finding['help']}: {len(finding['nodes'])} such as {finding['nodes'][0]['html'][:200]}"
        f" {finding['nodes'][0].get('failureSummary')}"
        for finding in findings
        if finding["impact"] in ("serious", "critical") or finding["id"] in REQUIRED_RULES
    ]


def check_in_both_themes(site: Site, page: Page) -> None:
    page.wait_for_function(HAS_FADED_IN, timeout=WAIT)
    assert "\n".join(violations(page)) == ""
    with site.darkened(page):
        assert "\n".join(violations(page, only=COLOR_RULES)) == ""


def wait_fit(page: Page, width: int) -> None:
    """Give the page this width, and wait until its scripts have made it fit."""
    resize(page, width)
    page.wait_for_function(f"document.scrollingElement.scrollWidth <= {width}", timeout=WAIT)


@pytest.mark.parametrize("path", PAGES)
def test_page_has_no_serious_finding_in_both_themes_and_fits_on_a_phone(site: Site, path: str) -> None:
    page = site.open(path)
    expect(page.locator(PAGES[path]).first).to_be_visible(timeout=WAIT)
    page.wait_for_function(SCROLLABLE_AREAS_ARE_MARKED, timeout=WAIT)
    check_in_both_themes(site, page)
    wait_fit(page, PHONE)
    expect(page.locator(PAGES[path]).first).to_be_visible(timeout=WAIT)
    page.wait_for_function(SCROLLABLE_AREAS_ARE_MARKED, timeout=WAIT)
    # The contrast takes most of axe's time; the walk through all pages reads it at this width, too.
    assert "\n".join(violations(page, *COLOR_RULES)) == ""


@pytest.mark.parametrize("change", ["pre.style.width = '40px'", "pre.firstChild.nodeValue = 'x'.repeat(9999)"])
def test_area_takes_the_focus_when_it_scrolls_later(site: Site, change: str) -> None:
    """Only its style or the text in place changes: late styles and Vue do that, no element is added."""
    page = site.open("/configuration")
    page.evaluate(
        "(() => { const pre = document.createElement('pre'); pre.textContent = 'a few words';"
        "pre.style = 'white-space: pre; overflow: auto; height: 3em'; document.body.append(pre); })()"
    )
    page.wait_for_function(SCROLLABLE_AREAS_ARE_MARKED, timeout=WAIT)
    page.wait_for_timeout(1000)  # the addition of the element is handled
    page.evaluate(f"(() => {{ const pre = [...document.querySelectorAll('pre')].pop(); {change}; }})()")
    page.wait_for_function(SCROLLABLE_AREAS_ARE_MARKED, timeout=WAIT)
    assert page.evaluate("[...document.querySelectorAll('pre')].pop().tabIndex") == 0


def test_open_part_of_the_receipt_has_no_serious_finding(site: Site) -> None:
    page = site.open("/")
    chip = page.locator(".chip:visible").first
    chip.click()
    expect(chip).to_have_attribute("aria-expanded", "true", timeout=WAIT)
    assert page.get_by_role("button", name=chip.inner_text()).count() > 0, "its name is its text"
    check_in_both_themes(site, page)


def test_open_message_has_no_serious_finding(site: Site) -> None:
    page = site.open("/topic/events")
    page.locator(".tail-line", has_text="blue kite").click()
    for tab in ("JSON", "hex", "headers"):
        page.get_by_role("tab", name=tab).click()
        check_in_both_themes(site, page)


def test_preview_of_sending_back_has_no_serious_finding(site: Site) -> None:
    page = site.open("/quarantine?reason=no_uuid")
    page.get_by_role("button", name="preview").click()
    expect(page.get_by_role("button", name="send 3 back")).to_be_visible(timeout=WAIT)
    check_in_both_themes(site, page)
    page.get_by_role("button", name="send 3 back").click()
    expect(page.get_by_role("button", name="send messages")).to_be_visible(timeout=WAIT)
    # axe-core 4.12 takes the body for the background of everything while Quasar fixes the body behind a dialog.
    assert "\n".join(violations(page, "color-contrast")) == ""


def test_answer_of_a_query_has_no_serious_finding(site: Site) -> None:
    page = site.open("/sql", PHONE)
    page.get_by_role("textbox", name="query").fill("select *, payload as again from quarantine -- a comment")
    page.get_by_role("button", name="run").click()
    cell = page.locator(".ag-center-cols-container [row-index='0'] .ag-cell").first
    cell.click(timeout=WAIT)
    expect(page.locator("pre.cell-value")).to_be_visible(timeout=WAIT)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.wait_for_function("document.querySelector('.ag-center-cols-viewport').scrollLeft > 0", timeout=WAIT)
    page.get_by_role("button", name="line").click()
    check_in_both_themes(site, page)


@pytest.mark.parametrize("path", ["/quarantine", f"/quarantine?shape={LONG_WORD}", f"/find?q={LONG_WORD}"])
def test_long_word_does_not_widen_the_page(site: Site, path: str) -> None:
    page = site.open(path)
    for width in (DESKTOP, PHONE):
        wait_fit(page, width)
        expect(page.get_by_text("k" * 100).last).to_be_visible(timeout=WAIT)
