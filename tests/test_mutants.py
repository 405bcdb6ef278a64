"""The mutants of tagged safeguards."""

from pathlib import Path

import pytest

from tests.mutants import BadBaseline, Checks, choose, judge, mutants
from tests.own_coverage import PACKAGE

SOURCE = """
def store(file, name, size):
    # Order: the sync before the rename,
    # which may not be lost.
    file.sync()
    file.rename(name)
    # Limit: of one read.
    size = min(size, 10)
    # Invariant: positive.
    if size < 0:
        raise ValueError
    # A comment without a tag.
    return size
"""


def test_each_tagged_statement_is_weakened_in_every_way_that_applies() -> None:
    changes = {(mutant.line, mutant.change): mutant.source for mutant in mutants(SOURCE)}
    assert [mutant.tag for mutant in mutants(SOURCE)] == ["Order", "Order", "Limit", "Limit", "Invariant"]
    assert sorted(changes) == [
        (5, "remove"),
        (5, "swap"),
        (8, "swap"),
        (8, "unbound"),
        (10, "negate"),
    ]
    assert "    pass\n    file.rename(name)" in changes[5, "remove"]
    assert "    file.rename(name)\n    file.sync()" in changes[5, "swap"]
    assert "    size = 10\n" in changes[8, "unbound"]
    assert "if not size < 0:" in changes[10, "negate"]


def test_mutants_of_a_module_whose_tests_fail_unchanged_are_not_judged(tmp_path: Path) -> None:
    """The copy has no tests that could pass."""
    with pytest.raises(BadBaseline, match=r"log/store/scan.py: noticed by tests without any change"):
        next(judge(Checks(tmp_path, seeds=1, with_room=True), PACKAGE / "log" / "store" / "scan.py", []))


def test_sample_is_drawn_from_the_chosen_tags_and_repeats_with_its_seed() -> None:
    orders = choose(["log/store"], ["Order"], 0, 0)
    sample = choose(["log/store"], ["Order"], 5, 1)
    drawn = [(path, mutant) for path, mutants_of_module in sample.items() for mutant in mutants_of_module]
    assert len(drawn) == 5
    assert all(mutant.tag == "Order" and mutant in orders[path] for path, mutant in drawn)
    assert sample == choose(["log/store"], ["Order"], 5, 1)
    assert sample != choose(["log/store"], ["Order"], 5, 2)
