"""The page of features and disasters is that of the tests' marks."""

from __future__ import annotations

from tests.disasters import DISASTERS, PAGE, UNMARKED, marks, page


def test_marks_have_known_names() -> None:
    unknown = [mark for mark in marks() if mark.feature not in UNMARKED or mark.disaster not in DISASTERS]
    assert unknown == []


def test_a_cell_has_tests_or_a_reason_and_not_both() -> None:
    marked = {(mark.feature, mark.disaster) for mark in marks()}
    reasons = {(feature, disaster) for feature, excuses in UNMARKED.items() for disaster in excuses}
    assert {disaster for _, disaster in reasons} <= set(DISASTERS)
    assert marked & reasons == set()


def test_page_is_current() -> None:
    assert PAGE.read_text() == page(), "run: python -m tests.disasters > docs/internals/disasters.md"
