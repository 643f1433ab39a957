"""What tools did: the final state of each file, command and failure, never what a result says.

Calls say what was tried, ``results`` how it ended.
"""

import re
from collections.abc import Mapping
from typing import Final, Literal

import msgspec
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.records import Relevance

from ombus_streams.providers.lines import Kind, Line, clean, write
from ombus_streams.providers.results import (
    commit_of,
    counts_failures,
    error_line,
    exit_code,
    failed_tests,
    failure_line,
    quoted,
    test_counts,
    text_of,
)

Action = Literal["change", "create", "delete", "command", "read", "search", "delegate", "other"]

_NAMES: Final[tuple[tuple[str, Action], ...]] = (
    (r"^(?:recall|om[._:]|memory)", "other"),
    (r"todo|plan|think|finish|submit", "other"),
    (r"bash|shell|exec|terminal|command|^run$|run_|python|script|ipython", "command"),
    (r"^(?:write|create)|create_file|write_file|save", "create"),
    (r"delete|remove", "delete"),
    (r"edit|patch|replace|insert|update_file", "change"),
    (r"task|agent|delegate|spawn", "delegate"),
    (r"search|grep|glob|find|fetch|browse|web", "search"),
    (r"read|view|open|cat|^ls$|list", "read"),
)
"""Which tool does what, by its name; the first that fits."""
_ACTIONS: Final = tuple((re.compile(pattern, re.I), action) for pattern, action in _NAMES)
_PATH_KEYS: Final = ("path", "file_path", "filePath", "filename", "file", "notebook_path", "target")
_COMMAND_KEYS: Final = ("command", "cmd", "script", "code", "input")
_TASK_KEYS: Final = ("description", "task", "prompt", "query", "pattern", "url", "assignment")

_PATCHED: Final = re.compile(r"^\*\*\* (?:Update|Add|Delete) File: (.+)$", re.M)
_SYMBOL: Final = re.compile(
    r"\b(?:def|class|function|func|fn|interface|type|struct|enum|trait|const|let)\s+"
    r"([A-Za-z_]\w{2,})"
)
_LEADING_CD: Final = re.compile(r"^\s*cd\s+\S+\s*(?:&&|;)\s*")
_TAIL: Final = re.compile(r"\s*(?:2>&1|2>/dev/null|\|\s*(?:tail|head)\b[^|]*|\|\|\s*true)\s*$")
_LOOKING: Final = re.compile(
    r"^(?:ls|cat|grep|rg|find|head|tail|sed -n|pwd|echo|wc|which|tree|file|stat|type|sleep|env|"
    r"git (?:status|diff|log|show|branch|remote|grep|blame|rev-parse)|du|df|ps|date|man|jq|awk|"
    r"less|node -[ep]|python3? -c|Get-(?:Content|ChildItem|Item|Location)|Test-Path|"
    r"Select-String|dir)\b",
    re.I,
)
MAX_NAMED_PATHS: Final = 8


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call as the transcript has it."""

    entry_id: str
    name: str
    arguments: JsonValue


class _State(msgspec.Struct, kw_only=True):
    """Where one file, command or tool stands after all its calls so far."""

    kind: Kind
    parts: tuple[str, ...]
    relevance: Relevance
    place: int
    source_ids: list[str] = []
    n: int = 0
    n_failed: int = 0
    names: dict[str, None] = {}


class Outcomes:
    """The calls of one span, folded: one state per thing, the last one counts."""

    def __init__(self) -> None:
        self._calls: dict[str, Call] = {}
        self._states: dict[str, _State] = {}
        self._read: dict[str, tuple[str, int]] = {}

    def called(self, entry_id: str, block: JsonObject) -> None:
        """Remember a ``tool_call`` block; one without a result is no outcome."""
        call_id = block.get("id")
        if isinstance(call_id, str):
            self._calls[call_id] = Call(
                entry_id=entry_id, name=str(block.get("name")), arguments=block.get("arguments")
            )

    def answered(self, entry_id: str, place: int, block: JsonObject) -> None:
        """Fold a ``tool_result`` block."""
        name = str(block.get("name"))
        call = self._calls.pop(str(block.get("toolCallId")), None)
        is_error = bool(block.get("error"))
        text = text_of(block.get("error") if is_error else block.get("result"))
        arguments = call.arguments if call is not None else None
        said = arguments if isinstance(arguments, dict) else {}
        action = _action(name if call is None else call.name, said)
        sources = [entry_id] if call is None else [call.entry_id, entry_id]
        if action == "command":
            self._ran(_command(arguments), text, is_error, sources, place)
        elif is_error or (call is None and exit_code(text) not in (None, 0)):
            self._broke(name, _subject(arguments), text, sources, place)
        elif action in ("change", "create", "delete"):
            self._wrote(action, said, arguments, sources, place)
        elif action == "read":
            for path in _paths(said)[:1]:
                self._read.setdefault(path, (sources[0], place))
        elif action in ("search", "delegate") and (subject := _subject(arguments, _TASK_KEYS)):
            state = self._state(f"{name} {subject}", "ran", sources, place)
            state.parts, state.relevance = (name, subject), "low"

    def lines(self) -> list[Line]:
        """Return one line per thing, in its last state."""
        found = [_line(state) for state in self._states.values()]
        known = {state.parts[0] for state in self._states.values()}
        fresh = [path for path in self._read if path not in known]
        for start in range(0, len(fresh), MAX_NAMED_PATHS):
            paths = fresh[start : start + MAX_NAMED_PATHS]
            found.append(
                Line(
                    kind="read",
                    content=write("read", ", ".join(paths)),
                    source_ids=tuple(dict.fromkeys(self._read[path][0] for path in paths)),
                    relevance="low",
                    place=self._read[paths[-1]][1],
                )
            )
        return found

    def _state(self, key: str, kind: Kind, sources: list[str], place: int) -> _State:
        state = self._states.pop(key, None)
        if state is None:
            state = _State(kind=kind, parts=(), relevance="low", place=place)
        # The latest sources come first: they are what the line says.
        state.source_ids = list(dict.fromkeys(sources + state.source_ids))[:6]
        state.kind, state.place, state.n = kind, place, state.n + 1
        self._states[key] = state
        return state

    def _ran(self, command: str, text: str, is_error: bool, sources: list[str], place: int) -> None:
        if not command:
            return
        code = exit_code(text)
        failed = is_error or code not in (None, 0)
        commit, tests = commit_of(text), test_counts(text)
        if commit and not failed and "git" in command:
            state = self._state(f"commit {commit.hash}", "committed", sources, place)
            state.parts = (f"{commit.hash} on {commit.branch}: {commit.subject}",)
            state.relevance = "high"
            return
        if tests:
            state = self._state(f"$ {command}", "tests", sources, place)
            failed = failed or counts_failures(tests)
            named = failed_tests(text) if failed else []
            state.parts = (quoted(command), "; ".join([clean(tests), *named]))
            state.relevance = "high"
            state.n_failed += failed
            return
        error = error_line(text)
        is_looking = bool(_LOOKING.match(command))
        if is_looking and code in (None, 0, 1) and not (is_error and code is None):
            # Looking is no outcome, and finding nothing is no failure.
            self._states.pop(f"$ {command}", None)
            return
        state = self._state(f"$ {command}", "failed" if failed else "ran", sources, place)
        outcome = "" if code is None else f"exit {code}"
        if failed:
            state.n_failed += 1
            said = error or failure_line(text, is_last_first=True)
            outcome = ", ".join(part for part in (outcome, said) if part) or "failed"
            is_idle = is_looking or "abort" in outcome.lower()
            state.relevance = "low" if is_idle else "high"
        else:
            outcome = outcome or "ok"
            if error:
                outcome, state.relevance = f"{outcome}, {error}", "medium"
            else:
                state.relevance = "medium" if state.n_failed else "low"
        state.parts = (quoted(command), outcome)

    def _broke(self, name: str, subject: str, text: str, sources: list[str], place: int) -> None:
        state = self._state(f"{name} {subject}", "failed", sources, place)
        what = quoted(f"{name} {subject}".strip())
        state.parts = (what, error_line(text) or failure_line(text) or "failed")
        state.relevance = "medium"
        state.n_failed += 1

    def _wrote(
        self,
        action: Action,
        said: JsonObject,
        arguments: JsonValue,
        sources: list[str],
        place: int,
    ) -> None:
        kinds: dict[Action, Kind] = {"create": "created", "delete": "deleted"}
        for path in _paths(said) or _PATCHED.findall(_command(arguments)):
            known = self._states.get(path)
            kind = kinds.get(action, "changed")
            if known is not None and known.kind == "created" and kind == "changed":
                kind = "created"
            state = self._state(path, kind, sources, place)
            texts = (said.get(key) for key in ("newText", "new_string", "new_str", "content"))
            for text in texts:
                if isinstance(text, str):
                    state.names.update(dict.fromkeys(_SYMBOL.findall(text[:8_000])[:6]))
            state.parts, state.relevance = (path,), "medium"
            # What failed on this file before is settled by the change that worked.
            self._settle(path)

    def _settle(self, path: str) -> None:
        for key in [key for key in self._states if key.endswith(f" {path}")]:
            if self._states[key].kind == "failed":
                del self._states[key]


def _line(state: _State) -> Line:
    parts = state.parts
    if state.kind in ("changed", "created"):
        times = f" ({state.n} times)" if state.n > 1 else ""
        names = ", ".join(list(state.names)[-5:])
        parts = (f"{parts[0]}{times}{': ' if names else ''}{names}",)
    elif state.kind in ("ran", "tests") and state.n_failed and state.n > state.n_failed:
        parts = (*parts[:-1], f"{parts[-1]} (after {state.n_failed} failed)")
    elif state.kind == "failed" and state.n_failed > 1:
        parts = (*parts[:-1], f"{parts[-1]} ({state.n_failed} times)")
    return Line(
        kind=state.kind,
        content=write(state.kind, *parts),
        source_ids=tuple(state.source_ids),
        relevance=state.relevance,
        place=state.place,
        score=state.n / 10,
    )


def _action(name: str, said: Mapping[str, JsonValue]) -> Action:
    verb = said.get("command")
    if isinstance(verb, str) and _paths(said) and " " not in verb:
        # One tool for all of a file's life: its command says which.
        name = verb
    for pattern, action in _ACTIONS:
        if pattern.search(name):
            return action
    return "other"


def _paths(said: Mapping[str, JsonValue]) -> list[str]:
    found = (said.get(key) for key in _PATH_KEYS)
    return [clean(value) for value in found if isinstance(value, str) and value.strip()][:1]


def _command(arguments: JsonValue) -> str:
    value: JsonValue = arguments
    if isinstance(arguments, dict):
        value = next((arguments[key] for key in _COMMAND_KEYS if key in arguments), None)
    if isinstance(value, list):
        value = str(value[-1]) if value else ""
    if not isinstance(value, str):
        return ""
    if value.startswith("*** Begin Patch"):
        return value
    command = _LEADING_CD.sub("", value.strip().split("\n")[0])
    while (shorter := _TAIL.sub("", command)) != command:
        command = shorter
    return clean(command)


def _subject(arguments: JsonValue, keys: tuple[str, ...] = (*_PATH_KEYS, *_TASK_KEYS)) -> str:
    if not isinstance(arguments, dict):
        return ""
    for key in keys:
        value = arguments.get(key)
        if isinstance(value, str) and value.strip():
            return quoted(clean(value.strip().split("\n")[0]))
    return ""
