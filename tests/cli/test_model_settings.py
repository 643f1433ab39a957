"""Providers, workers and budgets in settings files, and who wins when several speak of memory."""

from pathlib import Path

import pytest
from ombus.memory_settings import FILES, SESSION, WRITTEN_BY, opening
from ombus.settings import BadSetting, ProcessSettings, load_settings
from ombus.wiring import SystemClock, staff_of
from ombus_schemas.jsontext import JsonObject
from ombus_schemas.resolution import resolve_settings

MODELS = """
[providers.local]
kind = "openai"
base-url = "http://127.0.0.1:1/v1"
model = "m"
api-key-env = "LOCAL_KEY"

[workers.observer]
provider = "local"

[models]
tokens-per-day = 1_000
"""


def loaded(tmp_path: Path, *files: str, **environ: str) -> ProcessSettings:
    paths: list[Path] = []
    for number, text in enumerate(files):
        paths.append(tmp_path / f"{number}.toml")
        paths[-1].write_text(text)
    return load_settings({"data": str(tmp_path)}, environ, paths)


def test_tables_say_who_works_and_what_it_may_cost(tmp_path: Path) -> None:
    settings = loaded(tmp_path, MODELS, LOCAL_KEY="sk-12345678")

    assert settings.models.workers["observer"].provider == "local"
    assert settings.models.caps.max_tokens_per_day == 1_000
    assert settings.models.ahead is not None
    assert "sk-12345678" in settings.secrets  # a credential is a secret without being told
    staff_of(settings, SystemClock(), {})  # nothing is imported or connected to by being configured


def test_without_a_provider_nothing_is_prepared_and_nothing_is_imported(tmp_path: Path) -> None:
    assert loaded(tmp_path, "").models.ahead is None


@pytest.mark.parametrize(
    ("text", "place", "fact"),
    [
        ('[providers.x]\nkind = "magic"', "providers.x.kind", "it takes one of anthropic, "),
        ('[providers.x]\nmodel = "m"', "providers.x.kind", "is not set: it takes one of "),
        (
            '[providers.x]\nkind = "openai"\napi-key = "sk-in-a-file"',
            "providers.x.api-key",
            "is no setting: perhaps api-key-env; there are kind, ",
        ),
        ('[workers.painter]\nprovider = "x"', "workers.painter", "there are observer, reflector, "),
        ('[models.observer]\nmodel = "m"', "models.observer", "there are max-runs, "),
        ('[models]\nmax-runs = "many"', "models.max-runs", "it takes a whole number"),
        ("models = 3", "models", "is no table"),
        ("[callbacks]\nseconds = true", "callbacks.seconds", "it takes a number"),
        ("[supervision]\nlimits = 3", "supervision.limits", "it takes a table, each value a whole"),
        ("[supervision.limits]\nsteps = 0", "supervision.limits:", "steps is 0"),
        (
            "[supervision.children.a]\nallow = 3",
            "supervision.children.a.allow",
            "it takes a list, each text",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_by_file_and_path(
    tmp_path: Path, text: str, place: str, fact: str
) -> None:
    with pytest.raises(BadSetting) as raised:
        loaded(tmp_path, text, "")

    assert raised.value.path == f"{tmp_path / '0.toml'}: {place}"
    assert fact in raised.value.fact
    assert "$" not in str(raised.value)
    assert "sk-in-a-file" not in str(raised.value)


def test_the_environment_may_say_passive_and_files_go_before_it(tmp_path: Path) -> None:
    quiet = loaded(tmp_path, OMBUS_PASSIVE="true")
    loud = loaded(tmp_path, "[observational-memory]\npassive = false", OMBUS_PASSIVE="1")

    assert quiet.memory is not None
    assert quiet.memory.passive
    assert loud.memory is not None
    assert not loud.memory.passive
    with pytest.raises(BadSetting, match="OMBUS_PASSIVE"):
        loaded(tmp_path, OMBUS_PASSIVE="maybe")
    with pytest.raises(BadSetting):
        loaded(tmp_path, OMBUS_DEBUG_LOG="true")


def test_the_projects_file_goes_before_the_users(tmp_path: Path) -> None:
    settings = loaded(
        tmp_path,
        "[observational-memory.observation]\nmessageTokens = 1\nthinkingLevel = 'low'\n"
        "[observational-memory.reflection]\nobservationTokens = 2",
        "[observational-memory.observation]\nmessageTokens = 3",
    )

    assert settings.memory is not None
    assert settings.memory.observation.message_tokens == 3
    assert settings.memory.observation.thinking_level is not None  # unset: the group is replaced
    assert settings.memory.reflection.observation_tokens == 2


FROM_FILES: JsonObject = {"observation": {"messageTokens": 5}, "passive": True}


def test_a_session_that_said_nothing_gets_what_the_files_say() -> None:
    written = opening(FROM_FILES, {})

    assert written is not None
    assert resolve_settings(written) == resolve_settings(FROM_FILES)
    assert written[WRITTEN_BY] == FILES
    assert opening(FROM_FILES, written) is None  # nothing differs any more


def test_what_the_session_said_goes_before_the_files_now_and_later() -> None:
    session: JsonObject = {"passive": False}
    written = opening(FROM_FILES, session)
    assert written is not None
    assert written[SESSION] == session
    assert not resolve_settings(written).passive
    assert resolve_settings(written).observation.message_tokens == 5

    later = opening({"observation": {"messageTokens": 7}, "passive": True}, written)
    assert later is not None
    assert not resolve_settings(later).passive
    assert resolve_settings(later).observation.message_tokens == 7


def test_files_that_fall_silent_leave_the_session_its_own_word() -> None:
    written = opening(FROM_FILES, {"passive": False})
    assert written is not None

    silent = opening({}, written)
    assert silent is not None
    assert resolve_settings(silent).observation.message_tokens == 10_000
    assert opening({}, {"passive": True}) is None
