"""Who does a worker's work: explicit, with one fallback, and a reason when nobody can."""

from collections.abc import Mapping

import pytest
from msgspec import UNSET
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.settings import WorkerSettings
from ombus_streams.providers.scripted import Scripted
from ombus_streams.runtime.errors import NotConfigured
from ombus_streams.runtime.provider import WorkerName
from ombus_streams.runtime.roster import Assigned, Configured, Opening, ProviderSpec, WorkerSpec

SPECS = {
    "local": ProviderSpec(kind="openai", base_url="http://127.0.0.1:1/v1"),
    "claude": ProviderSpec(kind="anthropic", api_key_env="CLAUDE_KEY"),
    "words": ProviderSpec(kind="extractive"),
}
SESSION: JsonObject = {"provider": "claude", "model": "session-model"}


class Opened(Scripted):
    """Remembers what it was opened with."""

    def __init__(self, opening: Opening) -> None:
        super().__init__(name=opening.name, model=opening.model)
        self.opening = opening


def roster(
    workers: Mapping[WorkerName, WorkerSpec],
    specs: Mapping[str, ProviderSpec] = SPECS,
    **environ: str,
) -> Configured:
    return Configured(specs, workers, environ, Opened)


def named(assigned: Assigned) -> tuple[str, str]:
    return assigned.provider.name, assigned.provider.model


def test_the_workers_own_model_beats_the_settings_and_these_the_sessions() -> None:
    own = roster({"observer": WorkerSpec(provider="local", model="own")})
    bare = roster({"observer": WorkerSpec(provider="local")})
    said = WorkerSettings(model="of-settings")
    session: JsonObject = {"provider": "local", "model": "of-session"}

    assert named(own.assign("observer", said, session)) == ("local", "own")
    assert named(bare.assign("observer", said, session)) == ("local", "of-settings")
    assert named(bare.assign("observer", WorkerSettings(), session)) == ("local", "of-session")


@pytest.mark.parametrize(
    ("model", "found"),
    [
        ("local/qwen/7b", ("local", "qwen/7b")),
        ("qwen/7b", None),
        ({"provider": "local", "model": "m"}, ("local", "m")),
        ({"provider": "elsewhere", "model": "m"}, None),
        ({"model": 7}, None),
        (7, None),
        (UNSET, None),
    ],
)
def test_a_model_setting_may_name_its_provider(
    model: JsonValue, found: tuple[str, str] | None
) -> None:
    settings = WorkerSettings(model=model)

    if found is not None:
        assert named(roster({}).assign("observer", settings, None)) == found
        return
    with pytest.raises(NotConfigured) as missing:
        roster({}).assign("observer", settings, None)
    assert missing.value.reason == "missing_model"


def test_the_sessions_model_stands_in_unless_an_explicit_one_is_required() -> None:
    bare = roster({}, CLAUDE_KEY="k")
    assert named(bare.assign("observer", WorkerSettings(), SESSION)) == ("claude", "session-model")

    with pytest.raises(NotConfigured, match="no model"):
        bare.assign("observer", WorkerSettings(require_explicit_model=True), SESSION)
    strict = roster({"observer": WorkerSpec(require_explicit_model=True)}, CLAUDE_KEY="k")
    with pytest.raises(NotConfigured):
        strict.assign("observer", WorkerSettings(), SESSION)


def test_a_model_of_another_provider_is_no_model_of_this_one() -> None:
    local = roster({"observer": WorkerSpec(provider="local")}, CLAUDE_KEY="k")

    with pytest.raises(NotConfigured):
        local.assign("observer", WorkerSettings(), SESSION)


def test_a_credential_that_is_named_must_be_there() -> None:
    spec: Mapping[WorkerName, WorkerSpec] = {
        "observer": WorkerSpec(provider="claude", model="m"),
        "reflector": WorkerSpec(provider="claude", model="m", api_key_env="OTHER_KEY"),
    }
    found = roster(spec, CLAUDE_KEY="one", OTHER_KEY="two")
    keys: list[str | None] = []
    for worker in ("observer", "reflector"):
        provider = found.assign(worker, WorkerSettings(), None).provider
        assert isinstance(provider, Opened)
        keys.append(provider.opening.api_key)
    assert keys == ["one", "two"]

    with pytest.raises(NotConfigured, match="CLAUDE_KEY") as missing:
        roster(spec, CLAUDE_KEY="").assign("observer", WorkerSettings(), None)
    assert missing.value.reason == "missing_credentials"


def test_the_observers_provider_is_the_fallback_and_the_droppers_is_nobodys() -> None:
    observer = roster({"observer": WorkerSpec(provider="words")})
    dropper = roster({"dropper": WorkerSpec(provider="words")})

    assert named(observer.assign("dropper", WorkerSettings(), None)) == ("words", "")
    with pytest.raises(NotConfigured):
        dropper.assign("observer", WorkerSettings(), None)


def test_a_provider_is_opened_once() -> None:
    found = roster({"observer": WorkerSpec(provider="local", model="m")})

    first = found.assign("observer", WorkerSettings(), None).provider
    assert found.assign("observer", WorkerSettings(), None).provider is first


def test_settings_say_how_to_think_and_what_else_to_send() -> None:
    found = roster(
        {"observer": WorkerSpec(provider="words", instruction="short", thinking_level="low")}
    )
    said = WorkerSettings(
        thinking_level="high", provider_options={"temperature": 0}, instruction="In German."
    )

    assigned = found.assign("observer", said, None)
    assert assigned.options == {"temperature": 0, "thinkingLevel": "high"}
    assert assigned.instruction == "In German."
    plain = found.assign("observer", WorkerSettings(), None)
    assert (plain.options, plain.instruction) == ({"thinkingLevel": "low"}, "short")
