"""The compose file, which no daemon here can start: what can be known about it without one."""

import json
import shlex
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # ships no types
from ombus.cli.app import app
from ombus.dev.jars import kafka_version
from ombus_schemas.jsontext import JsonObject, JsonValue
from typer.testing import CliRunner

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "infra" / "compose"


@pytest.fixture(scope="module")
def compose() -> JsonObject:
    found: JsonObject = yaml.safe_load((FOLDER / "compose.yaml").read_text("utf-8"))
    return found


@pytest.fixture(scope="module")
def services(compose: JsonObject) -> dict[str, JsonObject]:
    return {name: _object(service) for name, service in _object(compose["services"]).items()}


def _object(value: JsonValue) -> JsonObject:
    assert isinstance(value, dict)
    return value


def errors(compose: JsonObject) -> list[str]:
    schema = json.loads((Path(__file__).parent / "compose.schema.json").read_text("utf-8"))
    Draft202012Validator.check_schema(schema)
    return [str(error.message) for error in Draft202012Validator(schema).iter_errors(compose)]


def test_it_says_nothing_that_compose_does_not_know(compose: JsonObject) -> None:
    assert errors(compose) == []


def test_a_typing_error_is_found(compose: JsonObject) -> None:
    kafka: JsonObject = {"image": "apache/kafka:4", "enviroment": {}}
    (error,) = errors({**compose, "services": {"kafka": kafka}})
    assert "enviroment" in error


def test_what_is_waited_for_is_there_and_can_become_so(services: dict[str, JsonObject]) -> None:
    for service in services.values():
        for name, wait in _object(service.get("depends_on", {})).items():
            if _object(wait)["condition"] == "service_healthy":
                assert "healthcheck" in services[name]
            assert name in services


def test_volumes_that_are_mounted_are_declared(
    compose: JsonObject, services: dict[str, JsonObject]
) -> None:
    mounted: set[str] = set()
    for service in services.values():
        volumes = service.get("volumes", [])
        assert isinstance(volumes, list)
        mounted |= {str(each).partition(":")[0] for each in volumes}
    assert mounted == _object(compose["volumes"]).keys()


def test_the_broker_is_of_the_release_that_is_tested_without_docker(
    services: dict[str, JsonObject],
) -> None:
    assert services["kafka"]["image"] == f"apache/kafka:{kafka_version()}"


def test_every_listener_has_a_protocol_and_a_place(services: dict[str, JsonObject]) -> None:
    environment = _object(services["kafka"]["environment"])

    def names(variable: str) -> set[str]:
        return {part.partition(":")[0] for part in str(environment[variable]).split(",")}

    assert names("KAFKA_LISTENERS") == names("KAFKA_LISTENER_SECURITY_PROTOCOL_MAP")
    assert names("KAFKA_ADVERTISED_LISTENERS") == names("KAFKA_LISTENERS") - {"CONTROLLER"}


def test_the_image_holds_what_the_build_copies() -> None:
    for line in (FOLDER / "Dockerfile").read_text("utf-8").splitlines():
        if line.startswith("COPY "):
            *sources, _ = shlex.split(line)[1:]
            for source in sources:
                assert (ROOT / source).exists(), source


@pytest.mark.parametrize("name", ["topics", "workers"])
def test_the_commands_of_our_services_are_commands(
    services: dict[str, JsonObject], name: str
) -> None:
    command = services[name]["command"]
    assert isinstance(command, list)
    words = [str(word) for word in command]
    if words[0] == "worker":
        words = words[:1]
    shown = CliRunner().invoke(app, [*words, "--help"])
    assert shown.exit_code == 0, shown.output
