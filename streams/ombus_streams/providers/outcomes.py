"""What tools did: the final state of each file, command and failure, never what a result says.

A result is the output of a program. Of it only exit codes, error messages, test counts and commit
ids are read; a sentence in it that speaks to a model is left where it is.
"""

import re
from collections.abc import Mapping
from typing import Final, Literal

import msgspec
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.records import Relevance

from ombus_streams.providers.lines import Kind, Line, clean, write

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
    r"less|node -[ep]|python3? -c)\b"
)
_EXIT: Final = re.compile(
    r"(?:exit(?:ed)?(?: with)?(?: code| status)?|exit_code\"?|exitCode\"?|returncode)[:= ]+"
    r"(-?\d{1,3})\b",
    re.I,
)
_ERROR: Final = re.compile(
    r"^.{0,80}?(?:\b\w*(?:Error|Exception)\b:?|\berror(?:\[\w+\]| TS\d+)?:|\bERR!|\bfatal:|"
    r"\bpanic(?:ked)?\b|command not found|No such file or directory|Permission denied|\bFAILED\b|"
    r"\bCannot (?:find|read)).*$",
    re.M,
)
_WENT_WRONG: Final = re.compile(
    r"\b(?:not (?:found|exist|allowed|permitted|a |an )|no such|no match\w*|denied|refused|"
    r"reject\w+|timed? ?out|invalid|unable|missing|abort\w*|unexpected|expected|unknown|"
    r"unsupported|failed|failure|(?:could|can|does|did|is|was)(?: not|n't)|exceed\w*|conflict\w*|"
    r"killed|too (?:large|many))\b",
    re.I,
)
"""What a tool says when it fails; other lines of it are prose and stay where they are."""
_TESTS: Final = re.compile(
    r"(?P<pytest>(?:\d+ \w+, )*\d+ (?:passed|failed)(?:, \d+ \w+)*(?: in [\d.]+s)?)|"
    r"(?P<cargo>test result: (?:ok|FAILED)\. \d+ passed; \d+ failed)|"
    r"(?P<jest>Tests:\s+[^\n]{0,80}\btotal\b)|"
    r"(?P<mocha>\b\d+ passing\b(?:[^\n]*\n\s*\d+ failing)?)|"
    r"(?P<unittest>Ran \d+ tests? in [\d.]+s\s+(?:OK|FAILED[^\n]*))|"
    r"(?P<node>ℹ pass \d+\s+ℹ fail \d+|# pass \d+\s+# fail \d+)"
)
_FAILED_TEST: Final = re.compile(r"^(?:FAILED|--- FAIL:|✖|×|not ok \d+ -)\s+(\S[^\n]{0,80})", re.M)
_BAD_COUNT: Final = re.compile(r"\b[1-9]\d* (?:failed|errors?|failing)|FAILED|\bfail [1-9]")
_COMMIT: Final = re.compile(r"^\[([\w./-]+)(?: \(root-commit\))? ([0-9a-f]{7,40})\] (.+)$", re.M)
_TO_A_MODEL: Final = re.compile(
    r"\b(?:ignore|disregard|forget) (?:all|any|the|your|previous|prior)|system prompt|"
    r"\binstructions?\b|\b(?:you (?:must|should|are now)|the user (?:wants|said|asked)|as an ai|"
    r"assistant:|user:|human:)",
    re.I,
)

MAX_READ_CHARS: Final = 6_000
"""Of one result, head and tail each: where programs say how they ended."""
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
        text = _ends(_text(block.get("error") if is_error else block.get("result")))
        arguments = call.arguments if call is not None else None
        said = arguments if isinstance(arguments, dict) else {}
        action = _action(name if call is None else call.name, said)
        sources = [entry_id] if call is None else [call.entry_id, entry_id]
        if action == "command":
            self._ran(_command(arguments), text, is_error, sources, place)
        elif is_error or (call is None and _is_failure(text)):
            self._broke(name, _subject(arguments), text, sources, place)
        elif action in ("change", "create", "delete"):
            self._wrote(action, said, arguments, sources, place)
        elif action == "read":
            for path in _paths(said)[:1]:
                self._read.setdefault(path, (sources[0], place))
        elif action in ("search", "delegate") and (subject := _subject(arguments)):
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
        code = _exit_code(text)
        failed = is_error or code not in (None, 0)
        commit, tests = _COMMIT.search(text), _last(_TESTS, text)
        if commit and not failed and "git" in command and not _TO_A_MODEL.search(commit[3]):
            state = self._state(f"commit {commit[2]}", "committed", sources, place)
            state.parts, state.relevance = (f"{commit[2]} on {commit[1]}: {commit[3]}",), "high"
            return
        if tests:
            state = self._state(f"$ {command}", "tests", sources, place)
            failed = failed or bool(_BAD_COUNT.search(tests))
            named = [clean(item) for item in _FAILED_TEST.findall(text)[:2] if failed]
            named = [item for item in named if not _TO_A_MODEL.search(item)]
            state.parts = (_cut(command), "; ".join([clean(tests), *named]))
            state.relevance = "high"
            state.n_failed += failed
            return
        error = _error_line(text)
        is_looking = bool(_LOOKING.match(command))
        if is_looking and code in (None, 0, 1) and not (is_error and code is None):
            # Looking is no outcome, and finding nothing is no failure.
            self._states.pop(f"$ {command}", None)
            return
        state = self._state(f"$ {command}", "failed" if failed else "ran", sources, place)
        outcome = "" if code is None else f"exit {code}"
        if failed:
            state.n_failed += 1
            said = error or _failure_line(text, is_last_first=True)
            outcome = ", ".join(part for part in (outcome, said) if part) or "failed"
            is_idle = is_looking or "abort" in outcome.lower()
            state.relevance = "low" if is_idle else "high"
        else:
            outcome = outcome or "ok"
            if error:
                outcome, state.relevance = f"{outcome}, {error}", "medium"
            else:
                state.relevance = "medium" if state.n_failed else "low"
        state.parts = (_cut(command), outcome)

    def _broke(self, name: str, subject: str, text: str, sources: list[str], place: int) -> None:
        state = self._state(f"{name} {subject}", "failed", sources, place)
        what = _cut(f"{name} {subject}".strip())
        state.parts = (what, _error_line(text) or _failure_line(text) or "failed")
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


def _subject(arguments: JsonValue) -> str:
    if not isinstance(arguments, dict):
        return ""
    for key in (*_PATH_KEYS, *_TASK_KEYS):
        value = arguments.get(key)
        if isinstance(value, str) and value.strip():
            return _cut(clean(value.strip().split("\n")[0]))
    return ""


def _text(value: JsonValue) -> str:
    match value:
        case str():
            return value
        case list():
            return "\n".join(part for part in map(_text, value[:20]) if part)
        case dict():
            parts = [_text(value[key]) for key in _TEXT_KEYS if key in value]
            code = next((value[key] for key in _CODE_KEYS if key in value), None)
            if isinstance(code, int) and not isinstance(code, bool):
                parts.append(f"exit code {code}")
            return "\n".join(part for part in parts if part)
        case _:
            return ""


_TEXT_KEYS: Final = ("text", "content", "output", "stdout", "stderr", "message", "error", "result")
_CODE_KEYS: Final = ("exitCode", "exit_code", "returncode", "code")


def _ends(text: str) -> str:
    if len(text) <= 2 * MAX_READ_CHARS:
        return text
    return f"{text[:MAX_READ_CHARS]}\n{text[-MAX_READ_CHARS:]}"


def _exit_code(text: str) -> int | None:
    found = _last(_EXIT, text[-400:] if len(text) > 800 else text)
    code = re.search(r"-?\d+$", found) if found else None
    return int(code[0]) if code else None


def _is_failure(text: str) -> bool:
    return bool(text) and _exit_code(text) not in (None, 0)


def _error_line(text: str) -> str:
    lines = [clean(match[0]) for match in _ERROR.finditer(text)]
    # What npm says is that something failed, not what.
    lines.sort(key=lambda line: line.startswith("npm "))
    # A traceback names its error last, a compiler its first error first.
    if "Traceback (most recent call last)" in text:
        lines.reverse()
    return next((_cut(line) for line in lines if not _TO_A_MODEL.search(line)), "")


def _failure_line(text: str, is_last_first: bool = False) -> str:
    """Return a line that says what went wrong without the word error, or nothing."""
    lines = text.split("\n")
    for raw in reversed(lines) if is_last_first else lines:
        line = clean(raw)
        if _WENT_WRONG.search(line) and not (_EXIT.search(line) or _TO_A_MODEL.search(line)):
            return _cut(line)
    return ""


def _last(pattern: re.Pattern[str], text: str) -> str:
    found = ""
    for match in pattern.finditer(text):
        found = match[0]
    return found


def _cut(text: str) -> str:
    return text if len(text) <= 140 else text[:139].rsplit(" ", 1)[0] + "…"
