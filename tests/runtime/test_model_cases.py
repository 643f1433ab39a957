"""Faults other systems had with their models (cases B02, B03, B10, B11, B13, B15, B16)."""

from collections.abc import Sequence

from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_streams.memory.reading import visible
from ombus_streams.memory.tokens import branch_tokens
from ombus_streams.providers.scripted import Scripted, call
from ombus_streams.runtime.dispatch import Dispatch
from ombus_streams.runtime.interpreter import Interpreter
from ombus_streams.runtime.provider import ModelRequest, Text, ToolCall, TurnEvent, TurnFailed
from ombus_streams.runtime.roster import Fixed
from ombus_streams.runtime.staff import Staff
from structlog.testing import capture_logs

from tests.support.engine import Driver, diligent, worker
from tests.support.sessions import chat, settings


def contents(driver: Driver) -> list[str]:
    session = driver.session()
    leaf = session.leaf(session.head.default_segment)
    return [item.content for item in visible(session, leaf).observations]


def fact(content: JsonValue, sources: Sequence[JsonValue], **more: JsonValue) -> ToolCall:
    return call("record_observation", content=content, sourceEntryIds=list(sources), **more)


def once(*events: TurnEvent) -> Scripted:
    return Scripted(lambda request: () if request.n_calls else events)


def test_b02_what_a_model_refuses_is_halved_until_it_fits_and_nothing_is_left_out() -> None:
    asked: list[float] = []

    def small(request: ModelRequest) -> list[object]:
        tokens = branch_tokens(request.material.sources)
        asked.append(tokens)
        if tokens > 2_000:
            return [TurnFailed(message="prompt is too long", code=400, is_refusal=True)]
        return diligent(request)

    driver = Driver(worker(small))
    driver.append(*(chat(f"m{n}", f"m{n - 1}" if n else None, tokens=1_000) for n in range(30)))
    driver.settle()

    assert [line.split(".")[0] for line in contents(driver)] == [f"mark-m{n}" for n in range(30)]
    assert len(asked) < 383


def test_b03_a_stream_that_breaks_after_a_call_is_not_asked_again_by_the_retry_layer() -> None:
    first: list[TurnEvent] = [fact("half", ["m0"]), TurnFailed(message="reset", code="ECONNRESET")]
    whole: list[TurnEvent] = [fact("all", ["m0", "m1"])]
    script = iter([first, whole])
    provider = Scripted(lambda request: () if request.n_calls else next(script))
    driver = Driver(provider)
    staff = Staff(Fixed({"observer": provider}), Dispatch(driver.clock))
    driver.interpreter = Interpreter(staff, driver.clock)
    driver.tell(settings("s", None, observe=20), chat("m0", None), chat("m1", "m0", tokens=20))
    assert contents(driver) == []
    assert len(provider.requests) == 1

    driver.clock.at_ms += 60_000
    driver.settle()

    assert contents(driver) == ["all"]


def test_b10_ids_out_of_range_are_turned_away_counted_and_named_once() -> None:
    provider = once(fact("kept", ["zzz", "m0", "m9"]), fact("lost", ["of-another-session"]))
    driver = Driver(provider)
    with capture_logs() as events:
        driver.tell(settings("s", None, observe=5), chat("m0", None), chat("m9", "m0"))

    (judged, *_) = [event for event in events if event["event"] == "run.judged"]
    assert judged["rejections"] == {"unknown_id": 2, "no_known_id": 1}
    assert "kept" in contents(driver)
    assert "lost" not in contents(driver)
    answers = [
        block["result"]
        for message in provider.requests[1].messages
        if message["role"] == "tool"
        for block in message["content"]  # type: ignore[union-attr]
        if isinstance(block, dict)
    ]
    assert answers == [
        {"ok": True, "rejected": {"unknown_id": ["zzz", "m9"]}},
        {"ok": True, "rejected": {"no_known_id": ["of-another-session"]}},
    ]


def test_b11_one_bad_item_costs_itself_alone() -> None:
    bad: JsonObject = {"content": "", "sourceEntryIds": ["m0"]}
    items = [
        *(ToolCall(id=f"c{n}", name="record_observation",
                   arguments={"content": f"good {n}", "sourceEntryIds": ["m0"]}) for n in range(4)),
        ToolCall(id="c5", name="record_observation", arguments=bad),
        ToolCall(id="c6", name="record_observation",
                 arguments={"content": "urgent", "sourceEntryIds": ["m0"], "relevance": "urgent"}),
    ]  # fmt: skip
    driver = Driver(once(*items))
    driver.tell(settings("s", None, observe=5), chat("m0", None))

    assert contents(driver) == ["good 0", "good 1", "good 2", "good 3", "urgent"]


def test_b13_prose_instead_of_a_call_is_an_empty_result_and_closes_the_question() -> None:
    provider = Scripted(lambda _: [Text('```json\n[{"content":"x"}]\n```')])
    driver = Driver(provider)
    driver.tell(settings("s", None, observe=5), chat("m0", None))
    driver.tell(chat("m1", "m0", tokens=1))

    assert contents(driver) == []
    assert driver.session().leaf(1).coverage_id is not None


def test_b15_the_prompt_and_a_harness_reminder_are_never_a_memory() -> None:
    reminder = "<system-reminder>Run the tests</system-reminder>"
    echo = "Leave out greetings, thinking aloud, plans that were replaced, and steps whose result"
    provider = once(fact(reminder, ["m0"]), fact(f"{echo} you record", ["m0"]))
    driver = Driver(provider)
    driver.tell(
        settings("s", None, observe=5),
        chat("m0", None),
        chat("r", "m0", reminder, origin="injected"),
    )

    assert contents(driver) == []
    assert all(source.id != "r" for ask in provider.requests for source in ask.material.sources)


def test_b16_a_memory_block_that_comes_back_as_a_message_is_not_observed_again() -> None:
    block = "# Observational Memory\n## Observations\n- [abcdef012345] (high) The user likes tea"
    provider = once(fact("The user likes tea", ["b"]), fact(block, ["m0"]))
    driver = Driver(provider)
    driver.tell(
        settings("s", None, observe=5),
        chat("b", None, block, origin="summary"),
        chat("m0", "b", "thanks"),
    )

    assert contents(driver) == []
    assert [s.id for s in provider.requests[0].material.sources] == ["m0"]
