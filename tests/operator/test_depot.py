"""Where checkpoints and archives lie: a folder and an object store answer the same."""

import uuid
from pathlib import Path

import pytest
from ombus.operator.depot import Depot, NotThere, depot_at
from ombus.settings import BadSetting


@pytest.fixture(params=["folder", "memory"])
def depot(request: pytest.FixtureRequest, tmp_path: Path) -> Depot:
    if request.param == "folder":
        return depot_at(str(tmp_path / "depot"))
    pytest.importorskip("fsspec", reason="object stores need the extra object-store")
    return depot_at(f"memory://{uuid.uuid4().hex}/depot")


def test_what_is_put_is_found_read_fetched_and_forgotten(depot: Depot, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * 1_000)
    depot.put("a/b/one", file, may_link=True)
    depot.write("a/two", b"2")
    depot.write("c/three", b"3")
    depot.write("a/two", b"two")
    assert list(depot.names("a")) == ["a/b/one", "a/two"]
    assert depot.read("a/two") == b"two"
    depot.fetch("a/b/one", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == file.read_bytes()
    depot.delete("a/two")
    depot.delete("a/two")
    assert list(depot.names("a")) == ["a/b/one"]
    assert list(depot.names("nowhere")) == []


def test_what_is_not_there_is_named(depot: Depot, tmp_path: Path) -> None:
    with pytest.raises(NotThere, match="no a/b"):
        depot.read("a/b")
    with pytest.raises(NotThere, match="no a/b"):
        depot.fetch("a/b", tmp_path / "back")


def test_what_a_killed_copy_left_is_no_file(tmp_path: Path) -> None:
    depot = depot_at(f"file://{tmp_path}/depot")
    depot.write("a/one", b"1")
    (tmp_path / "depot" / "a" / "two.partial").write_bytes(b"half")
    assert list(depot.names("a")) == ["a/one"]
    depot.write("a/two", b"2")
    assert list(depot.names("a")) == ["a/one", "a/two"]


def test_a_store_without_its_package_says_what_is_lacking() -> None:
    with pytest.raises(BadSetting, match="cannot be opened"):
        depot_at("nosuchstore://bucket/prefix")
