"""The page of a branch: every link has its anchor, and what was said is nobody's markup."""

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from ombus.exporters import export_markdown
from ombus.operator.control import control_entry
from ombus_schemas.jsontext import JsonObject

from tests.cli.conftest import SAMPLE
from tests.exporters.folders import Folder, leaf_of, memory_of
from tests.exporters.test_round_trip import FERRY, FORKED
from tests.importers.conftest import Written, written
from tests.importers.test_pi import HEADER, said

__all__ = ["written"]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Folder]:
    with closing(Folder(tmp_path / "home", low=True)) as folder:
        yield folder


def page_of(folder: Folder, key: bytes) -> str:
    with folder.session(key) as session:
        return b"".join(export_markdown(session, leaf_of(session))).decode()


def test_every_memory_links_to_its_sources_and_back(home: Folder) -> None:
    home.imports(SAMPLE)
    home.remembers(FERRY)

    page = page_of(home, FERRY)

    anchors = re.findall(r'<a id="([^"]+)"></a>', page)
    assert len(set(anchors)) == len(anchors)
    memory = set(re.findall(r"\(#(m-[0-9a-f]{12})\)", page))
    sources = set(re.findall(r"← .*", page))
    assert memory
    assert sources
    with home.session(FERRY) as session:
        held = memory_of(session, leaf_of(session))
    for name in held["active"] + held["reflections"]:
        assert f"m-{name}" in anchors
    linked = set(re.findall(r"\(#(e-[^)]+)\)", page))
    assert linked <= set(anchors)


def test_what_was_said_stays_as_it_is_between_fences(home: Folder, written: Written) -> None:
    text = "<script>x</script>\n````\n# no heading\n```"
    home.imports(written(HEADER, said("00000001", None, "user", text)))

    page = page_of(home, FORKED)

    assert f"\n`````\n{text}\n`````\n" in page


def test_what_was_revoked_keeps_its_place_without_its_words(home: Folder, written: Written) -> None:
    home.imports(
        written(
            HEADER,
            said("00000001", None, "user", "the secret plan"),
            said("00000002", "00000001", "assistant", "noted"),
        )
    )
    body: JsonObject = {"type": "om.sources.invalidated", "ids": ["00000001"], "reason": "deleted"}
    home.desk.append([control_entry(home.desk, FORKED, None, body)])

    page = page_of(home, FORKED)

    assert "secret plan" not in page
    assert 'id="e-00000001"' in page
    assert "Withheld" in page
