"""S17 and S15: settings and worker limits."""

import pytest
from hypothesis import given
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.resolution import (
    REMOVED_KEYS,
    composed_overrides,
    resolve_settings,
    resolve_worker_limits,
)
from ombus_schemas.settings import (
    HARD_WORKER_LIMITS,
    MemorySettings,
    SettingOutOfRange,
    SettingRemoved,
    SharedScope,
    WorkerLimits,
    chunk_max_tokens,
    settings_json,
)

from tests.support.ledgers import json_values


def test_nothing_said_means_the_defaults() -> None:
    assert resolve_settings() == MemorySettings()
    assert resolve_settings(None, {"unknown": 1}) == MemorySettings()


def test_an_override_group_replaces_the_whole_group_also_with_null() -> None:
    provider: JsonObject = {"context": {"recentMessages": 3, "compactAfterTokens": 5}}

    assert resolve_settings(provider).context.recent_messages == 3
    assert resolve_settings(provider, {"context": None}) == MemorySettings()
    replaced = resolve_settings(provider, {"context": {"recentMessages": 0}})
    assert replaced.context.recent_messages == 0
    assert replaced.context.compact_after_tokens == 81_000


@pytest.mark.parametrize("value", [0, -1, "7", True, None, 10**400, float("inf"), float("nan")])
def test_a_threshold_that_makes_no_sense_is_the_default(value: JsonValue) -> None:
    said: JsonObject = {"observation": {"messageTokens": value}}

    assert resolve_settings(said).observation.message_tokens == 10_000


def test_the_droppers_target_is_the_pools_unless_it_is_said() -> None:
    pool: JsonObject = {"context": {"observationsPoolTargetTokens": 7}}

    assert resolve_settings(pool).dropper.target_tokens == 7
    assert resolve_settings({**pool, "dropper": {"targetTokens": 5}}).dropper.target_tokens == 5
    assert resolve_settings({**pool, "dropper": {"targetTokens": 0}}).dropper.target_tokens == 7


@pytest.mark.parametrize("key", REMOVED_KEYS)
def test_a_removed_key_is_refused_with_its_replacement(key: str) -> None:
    for sources in ({"provider": {key: None}}, {"overrides": {key: 1}}):
        with pytest.raises(SettingRemoved) as caught:
            resolve_settings(**sources)
        assert key in str(caught.value)
        assert all(name in str(caught.value) for name in REMOVED_KEYS[key])


@pytest.mark.parametrize("value", [None, 0, 1.5, "3", True])
def test_a_page_limit_that_is_no_count_is_refused(value: JsonValue) -> None:
    with pytest.raises(SettingOutOfRange):
        resolve_settings({"retrieval": {"pageLimit": value}})


def test_truth_is_the_references() -> None:
    truths: list[JsonValue] = [[], {}, "false", 1]
    lies: list[JsonValue] = ["", 0, None, float("nan"), False]

    assert all(resolve_settings({"passive": value}).passive for value in truths)
    assert not any(resolve_settings({"passive": value}).passive for value in lies)


def test_through_the_composed_entry_point_no_group_of_the_provider_counts() -> None:
    provider: JsonObject = {"observation": {"messageTokens": 7}, "passive": True}
    options: JsonObject = {
        "context": {"recentMessages": 2},
        "overrides": {"context": {"recentMessages": 3, "compactAfterTokens": 9}},
    }

    settings = resolve_settings(provider, composed_overrides(options))

    assert settings.observation.message_tokens == 10_000
    assert settings.passive
    assert settings.context.recent_messages == 2
    assert settings.context.compact_after_tokens == 9


def test_a_chunk_is_what_is_said_else_a_share_of_the_window_else_the_default() -> None:
    assert chunk_max_tokens(resolve_settings({"observerChunkMaxTokens": 5}), 100) == 5
    assert chunk_max_tokens(MemorySettings(), 100_000) == 20_000
    assert chunk_max_tokens(MemorySettings()) == 60_000


def test_declared_scopes_keep_their_order_and_invalid_ones_stay_to_be_denied() -> None:
    said: JsonObject = {"sharedScopes": {"b": {"ownerSessionId": "own"}, "a b": None}}

    assert resolve_settings(said).shared_scopes == (
        SharedScope(scope_id="b", owner_session_id="own"),
        SharedScope(scope_id="a b", owner_session_id=""),
    )
    assert [scope.is_valid for scope in resolve_settings(said).shared_scopes] == [True, False]


def test_limits_hold_up_to_their_hard_caps_and_not_above() -> None:
    assert resolve_worker_limits({"maxTurns": None, "maxToolCalls": 1}) == WorkerLimits(
        max_tool_calls=1
    )
    assert resolve_worker_limits({"maxErrorBytes": 8_192}).max_error_bytes == 8_192
    for value in (0, HARD_WORKER_LIMITS.max_turns + 1, 1.5, True, "3"):
        with pytest.raises(SettingOutOfRange, match="maxTurns"):
            resolve_worker_limits({"maxTurns": value})


@given(json_values(), json_values())
def test_resolving_what_was_resolved_changes_nothing(group: JsonValue, value: JsonValue) -> None:
    said: JsonObject = {
        "observation": group,
        "context": {"recentMessages": value, "observationsPoolMaxTokens": value},
        "dropper": {"targetTokens": value, "policy": value},
        "passive": value,
        "observerChunkMaxTokens": value,
    }
    settings = resolve_settings(said)

    assert resolve_settings(settings_json(settings)) == settings
