"""Files in the data directory are readable by their owner only."""

from __future__ import annotations

from penstock.testing.pipe import Pipe


def test_data_directory_is_readable_only_by_its_owner(one_pipe: Pipe) -> None:
    one_pipe.datagrams(b"a", b"b")
    one_pipe.settled()
    names = {path.name for path in one_pipe.data_dir.rglob("*")}
    assert {"topics", "buffers"} <= names
    assert any(name.endswith(".arrows") for name in names)
    open_to_others = {
        str(path.relative_to(one_pipe.data_dir)): oct(path.stat().st_mode & 0o777)
        for path in one_pipe.data_dir.rglob("*")
        if path.stat().st_mode & 0o027
    }
    assert open_to_others == {}
