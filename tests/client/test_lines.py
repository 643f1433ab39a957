"""What the library logs in a program, with and without a structlog that the host has configured."""

import asyncio
import sys
from pathlib import Path

import pytest
import structlog
from ombus import embedded, message
from ombus.client.errors import NotFound


async def used(folder: Path) -> None:
    async with embedded(folder) as client:
        session = client.session("s")
        await session.append(message("user", "When does the ferry leave?"))
        await session.context()
        with pytest.raises(NotFound):
            await client.session("absent").context()


def test_without_a_configuration_the_output_is_the_program_s(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(used(tmp_path))
    assert capsys.readouterr() == ("", "")
    structlog.get_logger("ombus.any").warning("disk.full")
    structlog.get_logger().info("program.ready")
    shown = capsys.readouterr()
    assert ("disk.full" in shown.err, "disk.full" in shown.out) == (True, False)
    assert ("program.ready" in shown.out, "program.ready" in shown.err) == (True, False)


@pytest.mark.parametrize("is_before", [True, False])
def test_what_the_host_configures_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], is_before: bool
) -> None:
    def configure() -> None:
        structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stdout))

    if is_before:
        configure()
    asyncio.run(used(tmp_path / "one"))
    assert ("batch.folded" in capsys.readouterr().out) is is_before
    configure()
    asyncio.run(used(tmp_path / "two"))
    shown = capsys.readouterr()
    assert "batch.folded" in shown.out
    assert "request.answered" in shown.out
    assert shown.err == ""
