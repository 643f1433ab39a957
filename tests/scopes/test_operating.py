"""Around shared scopes: backups hold grants, a granter is a worker, settings name a Redis."""

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from ombus.operator.backups import back_up
from ombus.operator.desk import Desk
from ombus.operator.granting import Wanted, carry_out, grants_of
from ombus.settings import BadSetting, load_settings
from ombus.wiring import TRACES
from ombus.wiring_equipment import Equipment
from ombus.wiring_grants import open_sharing, redis_for
from ombus.wiring_worker import WorkerStatus, run_workers
from ombus_schemas.ids import session_key
from ombus_schemas.jsontext import JsonObject
from ombus_schemas.topics import GRANTS
from ombus_streams.engine.kafka import topics
from ombus_streams.engine.kafka.log import KafkaLog
from ombus_streams.engine.redis.connection import RedisConnection
from ombus_streams.engine.redis.maps import RedisMaps
from ombus_streams.runtime.ports import Draft
from ombus_streams.runtime.telemetry import Telemetry

from tests.kafka.logs import declared
from tests.kafka.transactions import transact
from tests.kafka.world import make_place
from tests.scopes.fleet import SCOPE, TENANT, Owner, SystemClock, sharing
from tests.support.brokers import Service
from tests.support.engine import Driver
from tests.support.sessions import chat, fact

KEY = session_key("local", "lead")


def test_a_backup_holds_the_grants(tmp_path: Path) -> None:
    settings = load_settings({"data": str(tmp_path / "data")}, {}, [])
    with Desk(settings, needs_log=False) as desk:
        desk.append(sharing("lead", tenant="local"))
        desk.catch_up()
        with closing(open_sharing(desk)) as shares:
            wanted = Wanted(act="grant", scope_id=SCOPE, principals=("writer",))
            assert carry_out(desk, shares, KEY, wanted).granted == ("writer",)
        back_up(desk.engine, settings, tmp_path / "copy", lambda done, wanted: None)
    copied = load_settings({"data": str(tmp_path / "copy")}, {}, [])
    with Desk(copied) as desk, closing(open_sharing(desk)) as shares:
        assert grants_of(shares, KEY).granted == {SCOPE: ("writer",)}


def test_a_granter_is_a_worker_that_is_ready_once_redis_holds_the_topic(
    tmp_path: Path, kafka: Service, redis: Service
) -> None:
    """Though every partition ends in a marker."""
    place, connection = make_place(kafka.address, tmp_path), RedisConnection(url=redis.address)
    grants = f"{place.topic}.grants"
    asyncio.run(topics.apply(place.connection, SystemClock(), [declared(grants, 2, GRANTS)]))
    log, maps = KafkaLog(place.connection, grants), RedisMaps(connection)
    owner = Owner(log, "lead")
    owner.take()
    owner.grant("writer")
    strange = [Draft(key=b"%d" % n, value=b"{}", headers=()) for n in range(12)]
    assert {log.partition_of(draft.key) for draft in strange} == set(range(log.partitions))
    transact(place.connection, log, strange)
    seen: list[WorkerStatus] = []

    async def run() -> None:
        stop = asyncio.Event()

        def watch(statuses: Sequence[WorkerStatus]) -> None:
            seen[:] = statuses
            if statuses[0].is_ready:
                stop.set()

        await run_workers(
            load_settings({"data": str(tmp_path)}, {}, []), place.connection, ["granter"], "one",
            stop, watch, place.topic, place.dead_letters, watch_seconds=0.1, redis=connection,
            grants=grants,
        )  # fmt: skip

    asyncio.run(asyncio.wait_for(run(), 90))
    key = session_key(owner.tenant, "lead")
    found = maps.snapshot(log.incarnation, log.partition_of(key), key, SCOPE)
    assert found is not None
    assert found.scope.granted("open") == ("writer",)
    assert (seen[0].role, seen[0].progress) == ("granter", 1.0)
    maps.close()
    log.close()


def test_who_works_on_kafka_judges_owners_by_the_grants_topic_that_is_named(
    tmp_path: Path, kafka: Service
) -> None:
    place = make_place(kafka.address, tmp_path)
    grants = f"{place.topic}.grants"
    asyncio.run(topics.apply(place.connection, SystemClock(), [declared(grants, 2, GRANTS)]))
    with closing(KafkaLog(place.connection, grants)) as log:
        Owner(log, "lead", principal="alice").take()
    settings = load_settings({"data": str(tmp_path)}, {}, [])
    with ExitStack() as opened:
        equipment = Equipment(
            settings, place.connection, "one", opened, topic=place.topic,
            dead_letters=place.dead_letters, grants=grants, clock=SystemClock(), environ={},
            telemetry=Telemetry(),
        )  # fmt: skip
        owners = equipment.interpreter().owners
        assert owners is not None
        assert owners.owner_of(session_key(TENANT, "lead")) == "alice"
        assert owners.owner_of(session_key(TENANT, "team")) is None


def test_who_works_on_kafka_without_a_model_traces_a_session_that_asks_for_it(
    tmp_path: Path, kafka: Service
) -> None:
    place = make_place(kafka.address, tmp_path)
    settings = load_settings({"data": str(tmp_path)}, {}, [])
    with ExitStack() as opened:
        equipment = Equipment(
            settings, place.connection, "one", opened, topic=place.topic,
            dead_letters=place.dead_letters, grants=GRANTS, clock=SystemClock(), environ={},
            telemetry=Telemetry(),
        )  # fmt: skip
        driver = Driver()
        driver.interpreter = equipment.interpreter()
        said: JsonObject = {"observation": {"messageTokens": 5}, "debugLog": True}
        driver.tell(fact("s", None, "settings.changed", settings=said), chat("m", None, "Use pnpm"))
    (trace,) = (settings.folder / TRACES).rglob("*.ndjson")
    assert b"turn.answered" in trace.read_bytes()


def test_without_a_redis_there_is_no_granter(tmp_path: Path, kafka: Service) -> None:
    place = make_place(kafka.address, tmp_path)
    settings = load_settings({"data": str(tmp_path)}, {}, [])
    work = run_workers(
        settings, place.connection, ["granter"], "one", asyncio.Event(), lambda _: None,
        place.topic, place.dead_letters,
    )  # fmt: skip
    with pytest.raises(BadSetting, match="Redis"):
        asyncio.run(work)


def test_how_to_reach_redis_is_said_in_a_file_and_in_the_environment(tmp_path: Path) -> None:
    file, secret = tmp_path / "ombus.toml", tmp_path / "word"
    secret.write_text("hunter2\n")
    file.write_text(
        f'[redis]\nurl = "redis://a"\nusername = "gateway"\npassword-file = "{secret}"\n'
    )
    said = redis_for({"OMBUS_REDIS_URL": "rediss://b", "OMBUS_REDIS_CLUSTER": "true"}, [file])
    assert said is not None
    assert (said.url, said.cluster, said.has_tls) == ("rediss://b", True, True)
    assert (said.username, said.password) == ("gateway", "hunter2")
    assert redis_for({}, []) is None
    load_settings({"data": str(tmp_path)}, {"OMBUS_REDIS_URL": "redis://b"}, [file])
    for name in ("OMBUS_REDIS_HOST", "OMBUS_REDIS_TIMEOUT_MS"):
        with pytest.raises(BadSetting):
            redis_for({name: "never", "OMBUS_REDIS_URL": "redis://b"}, [])
