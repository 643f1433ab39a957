"""Where the connection to Kafka comes from: flags over environment over files."""

from pathlib import Path

import pytest
from ombus.settings import BadSetting, load_settings
from ombus.wiring_kafka import connection_for


def file(tmp_path: Path, text: str, name: str = "ombus.toml") -> Path:
    path = tmp_path / name
    path.write_text(text, "utf-8")
    return path


def test_a_flag_wins_over_the_environment_and_that_over_files(tmp_path: Path) -> None:
    weak = file(tmp_path, '[kafka]\nbootstrap-servers = "a:1"\nclient-id = "weak"\n', "weak.toml")
    strong = file(tmp_path, '[kafka]\nbootstrap-servers = "b:1"\n', "strong.toml")
    environ = {"OMBUS_KAFKA_BOOTSTRAP_SERVERS": "c:1", "OMBUS_DATA": "/elsewhere"}
    assert connection_for({}, [weak, strong]).bootstrap_servers == "b:1"
    assert connection_for({}, [weak, strong]).client_id == "weak"
    assert connection_for(environ, [weak, strong]).bootstrap_servers == "c:1"
    assert connection_for(environ, [weak, strong], "d:1").bootstrap_servers == "d:1"


def test_the_password_may_lie_in_a_file_of_its_own(tmp_path: Path) -> None:
    secret = file(tmp_path, "hunter2\n", "secret")
    found = connection_for(
        {
            "OMBUS_KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
            "OMBUS_KAFKA_SASL_USERNAME": "alice",
            "OMBUS_KAFKA_SASL_PASSWORD_FILE": str(secret),
        },
        [],
        "b:1",
    )
    assert found.sasl_password == "hunter2"


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, "ombus dev kafka up"),
        ({"OMBUS_KAFKA_BOOTSTRAP": "b:1"}, "is not set"),
        ({"OMBUS_KAFKA_BOOTSTRAP_SERVERS": "b:1", "OMBUS_KAFKA_SASL": "x"}, "sasl is no setting"),
        (
            {"OMBUS_KAFKA_BOOTSTRAP_SERVERS": "b:1", "OMBUS_KAFKA_SECURITY_PROTOCOL": "TLS"},
            "does not fit",
        ),
        (
            {"OMBUS_KAFKA_BOOTSTRAP_SERVERS": "b:1", "OMBUS_KAFKA_SECURITY_PROTOCOL": "SASL_SSL"},
            "sasl-username",
        ),
    ],
)
def test_what_makes_no_sense_is_named(environ: dict[str, str], said: str) -> None:
    with pytest.raises(BadSetting, match=said):
        connection_for(environ, [])


def test_the_other_settings_are_not_disturbed_by_it(tmp_path: Path) -> None:
    project = file(tmp_path, 'tenant = "acme"\n[kafka]\nbootstrap-servers = "b:1"\n')
    settings = load_settings({}, {"OMBUS_KAFKA_CLIENT_ID": "x"}, [project])
    assert settings.tenant == "acme"
