"""Where a process is told its secrets: a file, variables of the environment, one switch."""

from pathlib import Path

import pytest
from ombus.secrets import Concealing, load_secrets
from ombus.settings import BadSetting, load_settings
from ombus_schemas.redaction import MARKER, redact_text


def test_file_and_environment_are_looked_for_in_every_form(tmp_path: Path) -> None:
    file = tmp_path / "secrets.txt"
    file.write_text('value of the file\n"two\\nlines"\n', "utf-8")
    environ = {"OMBUS_SECRETS_FILE": str(file), "OMBUS_REDACT_ENV": "KEY,UNSET", "KEY": "a+b/c=="}
    settings = load_settings({}, environ, [])
    assert load_secrets(file) == ("value of the file", "two\nlines")
    text = "value%20of%20the%20file two\\nlines a%2Bb%2Fc%3D%3D"
    assert redact_text(text, settings.secrets) == f"{MARKER} {MARKER} {MARKER}"
    assert settings.redact_patterns


def test_the_pattern_set_can_be_switched_off_for_appends() -> None:
    assert not load_settings({}, {"OMBUS_REDACT_PATTERNS": "false"}, []).redact_patterns


def test_a_value_that_cannot_be_looked_for_is_refused_without_being_named(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="the value of KEY"):
        load_settings({}, {"OMBUS_REDACT_ENV": "KEY", "KEY": "abc"}, [])
    file = tmp_path / "secrets.txt"
    with pytest.raises(BadSetting, match="cannot be read"):
        load_settings({}, {"OMBUS_SECRETS_FILE": str(file)}, [])
    file.write_text("fine value\nxyz\n", "utf-8")
    with pytest.raises(BadSetting, match="line 2") as refused:
        load_settings({}, {"OMBUS_SECRETS_FILE": str(file)}, [])
    assert "xyz" not in str(refused.value)


def test_a_log_line_is_concealed_whatever_its_values_are() -> None:
    event = {"event": "x", "n": 1, "at": Path("/known-value"), "rest": ({"known-value": None},)}
    shown = Concealing(["known-value"])(None, "info", event)
    assert shown == {"event": "x", "n": 1, "at": f"/{MARKER}", "rest": [{MARKER: None}]}
