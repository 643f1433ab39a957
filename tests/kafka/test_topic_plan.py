"""What is planned for topics, and who may use them, without a broker."""

import msgspec
import pytest
from ombus_schemas.topics import ENTRIES, TOPIC_BY_NAME, TOPICS, production_configs

pytest.importorskip("aiokafka", reason="the Kafka engine needs the extra kafka")

from ombus_streams.engine.kafka.acls import ROLES, Rule, commands, rules
from ombus_streams.engine.kafka.connection import BadConnection, Connection
from ombus_streams.engine.kafka.topic_plan import Found, Plan, plan_topics, wanted_topics

SESSIONS = TOPIC_BY_NAME[ENTRIES]


def found(**changed: object) -> Found:
    configs = production_configs(SESSIONS)
    there = Found(name=ENTRIES, partitions=64, replicas=3, configs=configs, overrides=configs)
    return msgspec.structs.replace(there, **changed)


def plan_for(there: Found | None, n_brokers: int = 3) -> Plan:
    wanted = wanted_topics([SESSIONS], n_brokers, production=True)
    return plan_topics(wanted, {} if there is None else {ENTRIES: there}, n_brokers)


def actions(there: Found | None, n_brokers: int = 3) -> list[str]:
    return [step.action for step in plan_for(there, n_brokers).steps]


def test_production_asks_for_three_replicas_two_in_sync_and_no_unclean_election() -> None:
    (wanted,) = wanted_topics([SESSIONS], 3, production=True)
    assert (wanted.partitions, wanted.replicas, wanted.min_replicas) == (64, 3, 3)
    assert wanted.configs["min.insync.replicas"] == "2"
    assert wanted.configs["unclean.leader.election.enable"] == "false"


def test_development_takes_the_brokers_there_are() -> None:
    wanted = wanted_topics(TOPICS, 1)
    assert {each.replicas for each in wanted} == {1}
    assert all("min.insync.replicas" not in each.configs for each in wanted)


def test_remote_storage_is_asked_for_only_where_it_was_wanted() -> None:
    tiered = {each.name for each in wanted_topics(TOPICS, 3, tiered=True) if len(each.configs) > 6}
    assert tiered == {ENTRIES}
    assert not any("remote.storage.enable" in each.configs for each in wanted_topics(TOPICS, 3))


def test_what_is_as_declared_is_kept() -> None:
    assert actions(found()) == ["keep"]
    assert plan_for(found()).is_done


def test_what_is_missing_is_created_then_opened() -> None:
    assert actions(None) == ["create", "open"]
    assert actions(None, n_brokers=2) == ["refuse"]


@pytest.mark.parametrize(
    ("changed", "action"),
    [
        ({"partitions": 32}, "refuse"),
        ({"partitions": 128}, "refuse"),
        ({"replicas": 2}, "refuse"),
        ({"replicas": 5}, "keep"),
        ({"foreign": (3,)}, "refuse"),
        ({"unopened": (3, 4)}, "open"),
    ],
)
def test_a_difference_has_one_answer(changed: dict[str, object], action: str) -> None:
    assert actions(found(**changed)) == [action]


@pytest.mark.parametrize(
    ("name", "value", "action"),
    [
        ("min.insync.replicas", "1", "configure"),
        ("min.insync.replicas", "3", "keep"),
        ("retention.ms", "86400000", "configure"),
        ("max.message.bytes", "1048588", "configure"),
        ("max.message.bytes", "10485760", "keep"),
        ("cleanup.policy", "compact", "configure"),
        ("unclean.leader.election.enable", "true", "configure"),
        ("segment.ms", "1000", "keep"),
    ],
)
def test_a_configuration_may_be_more_generous_and_nothing_less(
    name: str, value: str, action: str
) -> None:
    assert actions(found(configs={**production_configs(SESSIONS), name: value})) == [action]


def writes(role_rules: tuple[Rule, ...]) -> set[str]:
    return {rule.name for rule in role_rules if rule.operation == "Write"}


def test_fleets_write_nothing_unless_they_append_by_themselves() -> None:
    assert rules("fleet") == ()
    assert writes(rules("fleet", direct=True)) == {ENTRIES}


def test_nobody_but_gateways_importers_and_operators_writes_grants() -> None:
    writers = {role for role in ROLES if "ombus.scope.grants" in writes(rules(role))}
    assert writers == {"gateway", "importer", "operator"}


def test_readers_write_nothing() -> None:
    assert writes(rules("reader")) == set()


def test_a_rule_is_a_command_that_names_its_principal() -> None:
    (line,) = commands(
        [Rule(role="worker", operation="Read", resource="group", name="ombus", pattern="prefixed")],
        {"worker": "User:alice"},
        "b:9092",
    )
    assert line == (
        "kafka-acls --bootstrap-server b:9092 --add --allow-principal 'User:alice' "
        "--operation Read --group ombus --resource-pattern-type prefixed"
    )


def test_a_connection_says_what_it_lacks_and_never_its_password() -> None:
    with pytest.raises(BadConnection, match="sasl-username"):
        Connection(bootstrap_servers="b:1", security_protocol="SASL_SSL")
    with pytest.raises(BadConnection, match="go together"):
        Connection(bootstrap_servers="b:1", ssl_certfile="c.pem")
    with pytest.raises(BadConnection, match="empty"):
        Connection(bootstrap_servers=" ")
    known = Connection(
        bootstrap_servers="b:1",
        security_protocol="SASL_SSL",
        sasl_username="alice",
        sasl_password="hunter2",
    )
    assert "hunter2" not in f"{known} {known!r}"
