"""S9, S24, and row 1 of design.md section 12."""

from hypothesis import given
from hypothesis import strategies as st
from ombus_schemas.jsontext import utf8_length
from ombus_streams.memory.redact import MARKER
from ombus_streams.memory.render import ADVISORY, MAX_BYTES, OutlineLine, render_memory

from tests.support.ledgers import memory, observation, reflection


def test_reflections_stand_before_observations_in_input_order() -> None:
    text = render_memory(
        [observation(2, "b", relevance="high"), observation(1, "a")], [reflection(7, "r")]
    )

    assert text.split("\n") == [
        "# Observational Memory",
        ADVISORY,
        "",
        "## Reflections",
        f"- [{memory(7)}] r",
        "",
        "## Observations",
        f"- [{memory(2)}] (high) b",
        f"- [{memory(1)}] (medium) a",
    ]


def test_the_advisory_stands_where_its_policy_says() -> None:
    empty = {policy: render_memory([], [], advisory=policy) for policy in ("always", "when_any")}

    assert ADVISORY in empty["always"]
    assert empty["when_any"].startswith("# Observational Memory\n## Reflections")
    assert ADVISORY in render_memory([observation(1)], [], advisory="when_any")
    assert ADVISORY not in render_memory([observation(1)], [], advisory="never")


def test_an_empty_label_still_prints_its_dash() -> None:
    text = render_memory([], [], outline=[OutlineLine("session"), OutlineLine("t/1", "")])

    assert "## Scope Outline\n- session\n- t/1 — \n\n## Reflections" in text


def test_a_secret_is_gone_before_the_cut_could_halve_it() -> None:
    whole = render_memory([observation(1, "key sk-12345678")], [])
    cap = len(whole) - 4

    text = render_memory([observation(1, "key sk-12345678")], [], (), ["sk-12345678"], cap)

    assert "sk-" not in text
    assert utf8_length(text) <= cap


def test_redaction_never_makes_the_block_longer_than_its_cap() -> None:
    text = render_memory([observation(1, "a" * 50)], [], secrets=["a"], max_bytes=400)

    assert utf8_length(text) == 400
    assert MARKER in text


def test_nobody_can_raise_the_hard_cap() -> None:
    text = render_memory([observation(1, "x" * MAX_BYTES)], [], max_bytes=10 * MAX_BYTES)

    assert utf8_length(text) == MAX_BYTES


@given(st.text(st.characters(codec=None, exclude_characters="\n"), min_size=1), st.integers(0, 500))
def test_a_render_fits_its_cap_whatever_is_in_it(content: str, cap: int) -> None:
    assert utf8_length(render_memory([observation(1, content)], [], max_bytes=cap)) <= cap
