"""The mutants of tagged safeguards."""

from tests.mutants import mutants

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
