"""The registry of event types."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from penstock.landing.admitted_types import TypeRegistry


def test_the_first_types_are_let_in_and_later_ones_are_not(tmp_path: Path) -> None:
    registry = TypeRegistry(tmp_path / "types", 2)
    assert registry.admit(["b", "a"]) == {"a", "b"}
    assert registry.admit(["a", "c"]) == {"a"}
    assert registry.types() == {"a", "b"}


def test_another_process_sees_the_same_types(tmp_path: Path) -> None:
    TypeRegistry(tmp_path, 3).admit(["a", "é/..", "\U0001f600"])
    other = TypeRegistry(tmp_path, 3)
    assert other.admit(["x", "é/.."]) == {"é/.."}
    assert other.types() == {"a", "é/..", "\U0001f600"}


def test_asking_for_nothing_makes_no_folder(tmp_path: Path) -> None:
    assert TypeRegistry(tmp_path / "types", 3).admit([]) == set()
    assert not (tmp_path / "types").exists()


def test_a_limit_of_zero_lets_nothing_in(tmp_path: Path) -> None:
    assert TypeRegistry(tmp_path / "types", 0).admit(["a"]) == set()


def claim(folder: str, worker: int) -> set[str]:
    return TypeRegistry(Path(folder), 20).admit(f"t{(worker * 7 + n) % 40}" for n in range(40))


def test_processes_that_ask_at_once_agree_on_who_is_in(tmp_path: Path) -> None:
    with ProcessPoolExecutor(4, mp_context=get_context("spawn")) as pool:
        answers = list(pool.map(claim, [str(tmp_path)] * 8, range(8)))
    admitted = TypeRegistry(tmp_path, 20).types()
    assert len(admitted) == 20
    assert all(answer == admitted for answer in answers)
    assert not list(tmp_path.glob(".new-*"))


@given(st.lists(st.lists(st.text(min_size=1, max_size=5), max_size=6), max_size=6), st.integers(0, 8))
def test_there_are_never_more_types_than_the_limit_and_none_is_ever_put_out(asked: list[list[str]], limit: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        registry, before = TypeRegistry(Path(folder), limit), set()
        for names in asked:
            answer = registry.admit(names)
            assert answer <= set(names)
            assert registry.types() >= before
            before = registry.types()
        assert len(before) == min(limit, len({name for names in asked for name in names}))
