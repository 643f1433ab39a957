"""The spool: what is kept while the gateway is away comes once, in order, also after a kill."""

import asyncio
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from ombus import Client, message
from ombus.client.errors import SpoolBusy, SpoolFull
from ombus.client.spool import Spool, Spooled

from tests.gateway.serving import running

N_SESSIONS = 20
N_EACH = 12
AWAY = "http://127.0.0.1:9"


def line(n: int, session: str = "s") -> Spooled:
    return Spooled(session=session, entry={"id": f"m{n}"})


def test_lines_come_back_in_order_session_by_session(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    spool.add([line(0), line(1), line(2, "t")])
    found, n_bytes = spool.peek(10, 10_000)
    assert [each.entry["id"] for each in found] == ["m0", "m1"]
    spool.sent(n_bytes)
    assert not spool.is_empty
    found, n_bytes = spool.peek(10, 10_000)
    assert [each.session for each in found] == ["t"]
    spool.sent(n_bytes)
    assert spool.is_empty
    assert (tmp_path / "spool").stat().st_size == 0
    spool.close()


def test_a_line_cut_by_a_kill_is_taken_off(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    spool.add([line(0)])
    spool.close()
    with (tmp_path / "spool").open("ab") as file:
        file.write(b'{"session":"s","ent')
    again = Spool(tmp_path / "spool")
    again.add([line(1)])
    assert [each.entry["id"] for each in again.peek(10, 10_000)[0]] == ["m0", "m1"]
    again.close()


def test_a_full_spool_takes_nothing_and_says_so(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", max_bytes=50)
    spool.add([line(0)])
    with pytest.raises(SpoolFull):
        spool.add([line(1)])
    assert len(spool.peek(10, 10_000)[0]) == 1
    spool.close()


def test_a_spool_is_held_by_one_process(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    with pytest.raises(SpoolBusy):
        Spool(tmp_path / "spool")
    spool.close()


def test_what_the_gateway_never_takes_is_put_aside(tmp_path: Path) -> None:
    async def main(url: str) -> None:
        async with Client(AWAY, spool=tmp_path / "spool", spool_after_seconds=0) as client:
            session = client.session("s")
            await session.append(message("user", "one", id="m1"))
            await session.append({"id": "bad", "kind": "nonsense"})
            done = await session.append(message("user", "two", id="m2"))
            assert done.status == "spooled"
        async with Client(url, spool=tmp_path / "spool") as client:
            await client.spooled()
            entries = (await client.session("s").entries()).entries
            assert [each["id"] for each in entries] == ["m1", "m2"]

    with running(tmp_path / "data") as served:
        asyncio.run(main(served.url))
    assert '"bad"' in (tmp_path / "spool.rejected").read_text()


PUBLISHER = """
import asyncio, sys
from pathlib import Path
from ombus import Client, message

async def main(url, spool, n_sessions, n_each):
    async with Client(url, spool=Path(spool), spool_after_seconds=0.05) as client:
        for n in range(n_each):
            for s in range(n_sessions):
                entry = message("user", f"{s} {n}", id=f"s{s}-m{n}")
                done = await client.session(f"s{s}").append(entry)
                print(f"s{s}-m{n}", done.status, flush=True)

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
"""


def test_away_and_killed_everything_is_there_once_and_in_order(tmp_path: Path) -> None:
    """The gateway is away while 20 sessions publish; their process is killed in the middle."""
    spool, n_acknowledged = tmp_path / "spool", N_SESSIONS * N_EACH // 2
    command = (
        sys.executable, "-c", PUBLISHER, AWAY, str(spool), str(N_SESSIONS), str(N_EACH)
    )  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        acknowledged = [process.stdout.readline().decode() for _ in range(n_acknowledged)]
        process.kill()
    assert all(each.endswith("spooled\n") for each in acknowledged)

    async def rest(url: str) -> None:
        # The host comes back and, knowing nothing, publishes everything once more.
        async with Client(url, spool=spool) as client:
            for n in range(N_EACH):
                for s in range(N_SESSIONS):
                    entry = message("user", f"{s} {n}", id=f"s{s}-m{n}")
                    await client.session(f"s{s}").send(entry)
            for s in range(N_SESSIONS):
                await client.drain(f"s{s}")
            await client.spooled()

    with running(tmp_path / "data") as served:
        asyncio.run(rest(served.url))
        log = served.gateway.host.engine.log
        ids: dict[str, list[str]] = defaultdict(list)
        for s in range(N_SESSIONS):
            for record in log.of_key(f"local/s{s}".encode()):
                ids[f"s{s}"].append((record.value or b"").split(b'"')[3].decode())
    assert ids == {f"s{s}": [f"s{s}-m{n}" for n in range(N_EACH)] for s in range(N_SESSIONS)}
