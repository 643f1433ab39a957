"""Every block of every page runs, every test and file that a page names exists."""

import re
import shutil
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, SAMPLE, Block, blocks_of, commands, fits, pages, run

PAGES = pages()


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_block_of_a_page_runs_and_prints_what_it_shows(page: Path, tmp_path: Path) -> None:
    shutil.copy(SAMPLE, tmp_path / "ferry.jsonl")
    for block in blocks_of(page):
        run(block, tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_test_and_file_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text("utf-8")

    for file, name in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text):
        assert (ROOT / file).is_file(), file
        assert not name or f"def {name}(" in (ROOT / file).read_text("utf-8"), f"{file}::{name}"
    for target in re.findall(r"\]\(([^)#:]+)(?:#[\w-]+)?\)", text):
        assert (page.parent / target).exists(), target


def test_what_a_page_shows_fits_what_is_printed() -> None:
    assert fits("a … c\n…\nz", "a b c\n1\n2\nz\n")
    assert fits("a\n…", "a\n")
    assert fits("", "")
    assert not fits("a", "a\nb")
    assert not fits("a … c", "a b d")


def test_a_page_that_shows_something_else_is_noticed(tmp_path: Path) -> None:
    block = Block("page", 1, "console", "$ echo a\n$ echo b\nc\n")

    assert list(commands(block)) == [("echo a", ""), ("echo b", "c")]
    with pytest.raises(AssertionError, match="prints"):
        run(block, tmp_path)
    with pytest.raises(AssertionError, match="nobody runs perl"):
        run(Block("page", 1, "perl", ""), tmp_path)
    with pytest.raises(AssertionError, match="does not say why"):
        run(Block("page", 1, "sh", "# not run:\n"), tmp_path)
