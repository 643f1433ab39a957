"""Process settings: where they come from, which wins, and what is refused by its path."""

from pathlib import Path

import pytest
from ombus.settings import BadSetting, load_settings, settings_files
from ombus.wiring_kafka import connection_for

from tests.cli.conftest import Cli


def test_flags_win_over_the_environment_over_the_project_over_the_user(tmp_path: Path) -> None:
    user, project = tmp_path / "user.toml", tmp_path / "project.toml"
    user.write_text('tenant = "user"\ndata = "u"\nlog-level = "debug"\nwait-seconds = 1\n')
    project.write_text('tenant = "project"\ndata = "p"\nlog-level = "error"\n')

    found = load_settings(
        {"data": "flag", "tenant": None},
        {"OMBUS_DATA": "env", "OMBUS_LOG_LEVEL": "warning"},
        [user, project],
    )

    assert (found.data, found.log_level) == ("flag", "warning")
    assert (found.tenant, found.wait_seconds) == ("project", 1.0)


def test_the_default_folder_is_the_users_data_home() -> None:
    assert load_settings({}, {}, []).folder == Path("~/.local/share/ombus").expanduser()
    assert load_settings({}, {"XDG_DATA_HOME": "/x"}, []).folder == Path("/x/ombus")


def test_values_of_the_environment_are_read_as_what_they_are() -> None:
    environ = {
        "OMBUS_PARTITIONS": "16",
        "OMBUS_LOG_JSON": "true",
        "OMBUS_WAIT_SECONDS": "0.5",
        "OMBUS_REDACT_ENV": "A, B",
        "A": "secret",
    }

    found = load_settings({}, environ, [])

    assert (found.partitions, found.log_json, found.wait_seconds) == (16, True, 0.5)
    assert found.redact_env == ("A", "B")
    assert "secret" in found.secrets


@pytest.mark.parametrize(
    ("text", "path", "fact"),
    [
        ('dta = "x"', "dta", "is no setting: perhaps data; there are data, tenant, "),
        ("[kafak]", "kafak", "perhaps [kafka]; "),
        ("[x]", "x", "[supervision], [kafka], [redis]"),
        ("[rabbit]\nx = 1", "rabbit", "is no setting"),
        ("data = 3", "data", "does not fit: it takes text"),
        ('data = ""', "data", "is empty"),
        ('tenant = "_system"', "tenant", "is no tenant id"),
        ("partitions = 0", "partitions", "is no whole number"),
        ("wait-seconds = -1", "wait-seconds", "is no number of seconds"),
        ('log-level = "loud"', "log-level", "is none of"),
        ('secrets = ["x"]', "secrets", "is no setting"),
        ("observational-memory = 3", "observational-memory", "is no table"),
        ("[observational-memory]\nobserveAfterTokens = 1", "observational-memory", "was removed"),
        ("[observational-memory]\nagentMaxTurns = 0", "observational-memory", "agentMaxTurns"),
        ("data = ", "", "is no TOML"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_path(
    tmp_path: Path, text: str, path: str, fact: str
) -> None:
    file = tmp_path / "ombus.toml"
    file.write_text(text)

    with pytest.raises(BadSetting) as raised:
        load_settings({}, {}, [file])

    assert raised.value.path.startswith(str(file))
    assert path in raised.value.path
    assert fact in str(raised.value)


def test_an_unknown_variable_is_refused_by_its_name() -> None:
    with pytest.raises(BadSetting, match="OMBUS_DTA is no setting: perhaps OMBUS_DATA; there are"):
        load_settings({}, {"OMBUS_DTA": "x"}, [])


def test_groups_of_the_projects_memory_settings_replace_those_of_the_user(tmp_path: Path) -> None:
    user, project = tmp_path / "user.toml", tmp_path / "project.toml"
    user.write_text(
        "[observational-memory.context]\nrecentMessages = 3\n"
        "[observational-memory.observation]\nmessageTokens = 5\n"
    )
    project.write_text("[observational-memory.context]\ncompactAfterTokens = 9\n")

    memory = load_settings({}, {}, [user, project]).memory

    assert memory is not None
    assert (memory.context.recent_messages, memory.context.compact_after_tokens) == (8, 9)
    assert memory.observation.message_tokens == 5


def test_files_are_the_users_and_the_projects_or_the_one_that_is_named(tmp_path: Path) -> None:
    user, project = tmp_path / "home" / "ombus" / "config.toml", tmp_path / "ombus.toml"
    user.parent.mkdir(parents=True)
    user.touch()
    project.touch()
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "home")}

    assert settings_files(environ, tmp_path) == [user, project]
    assert settings_files({**environ, "OMBUS_CONFIG": str(project)}, tmp_path) == [project]
    with pytest.raises(BadSetting, match="is no file"):
        settings_files({"OMBUS_CONFIG": str(tmp_path / "none.toml")}, tmp_path)


def test_a_bad_setting_ends_a_command_as_misuse(cli: Cli, tmp_path: Path) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text("dta = 1\n")

    done = cli("--config", bad, "sessions")

    assert done.code == 2
    assert done.err.startswith("ombus: ")
    assert "dta is no setting" in done.err
    assert "Traceback" not in done.err


TABLES = """
[models]
max-runs = 3
[providers.local]
kind = "openai"
base-url = "http://me:hunter2@host/v1"
[supervision.limits]
activeChildren = 4
[supervision.children.scout]
[kafka]
bootstrap-servers = "b:1"
sasl-password = "hunter2"
sasl-pasword = "hunter2"
sasl-password-file = "word"
[redis]
url = "redis://me:hunter2@b"
"""


def test_what_the_tables_say_is_shown_without_its_secrets(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("ombus.toml").write_text(TABLES)
    monkeypatch.setenv("OMBUS_KAFKA_CLIENT_ID", "me")
    monkeypatch.setenv("OMBUS_REDIS_PASSWORD", "hunter2")

    done = cli("settings", "--json")

    shown = {each["key"]: (each["value"], each["origin"]) for each in done.json()["settings"]}
    project = str(Path("ombus.toml").resolve())
    assert shown["models.max-runs"] == (3, project)
    assert shown["supervision.limits.activeChildren"] == (4, project)
    assert shown["supervision.children.scout"] == ({}, project)
    assert shown["kafka.bootstrap-servers"] == ("b:1", project)
    assert shown["kafka.sasl-password-file"] == ("word", project)
    assert shown["kafka.client-id"] == ("me", "environment OMBUS_KAFKA_CLIENT_ID")
    assert shown["redis.password"] == ("(hidden)", "environment OMBUS_REDIS_PASSWORD")
    assert "hunter2" not in done.out + cli("settings").out


def test_without_tables_none_are_shown(cli: Cli) -> None:
    shown = {each["key"].partition(".")[0] for each in cli("settings", "--json").json()["settings"]}

    assert shown.isdisjoint({"models", "providers", "supervision", "kafka", "redis"})


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        ({"OMBUS_KAFKA_SASL": "hunter2"}, "environment OMBUS_KAFKA_SASL: kafka.sasl is no setting"),
        (
            {"OMBUS_KAFKA_SECURITY_PROTOCOL": "hunter2"},
            "kafka.security-protocol does not fit: it takes one of PLAINTEXT, ",
        ),
        ({"OMBUS_KAFKA_SASL_PASSWORD_FILE": "none"}, "kafka.sasl-password-file: none cannot be"),
        ({"OMBUS_KAFKA_SECURITY_PROTOCOL": "SASL_SSL"}, "needs sasl-username and sasl-password"),
    ],
)
def test_a_connection_that_makes_no_sense_is_refused_without_repeating_a_value(
    environ: dict[str, str], told: str
) -> None:
    with pytest.raises(BadSetting) as raised:
        connection_for(environ, [], "b:1")

    assert told in str(raised.value)
    assert "hunter2" not in str(raised.value)
