"""Invented transcripts of a coding agent, in the shapes importers make."""

from ombus_schemas.entries import Entry, Origin
from ombus_schemas.jsontext import JsonObject, JsonValue

from tests.support.ledgers import message


def user(entry_id: str, text: str, origin: Origin | None = None) -> Entry:
    return message(entry_id, text, origin=origin)


def said(entry_id: str, *blocks: str | JsonObject) -> Entry:
    return message(entry_id, *blocks, role="assistant")


def called(entry_id: str, call_id: str, name: str, **arguments: JsonValue) -> Entry:
    block: JsonObject = {"type": "tool_call", "id": call_id, "name": name, "arguments": arguments}
    return said(entry_id, block)


def answered(
    entry_id: str, call_id: str, name: str, result: JsonValue = "", error: JsonValue = None
) -> Entry:
    block: JsonObject = {"type": "tool_result", "toolCallId": call_id, "name": name}
    block.update({"error": error} if error is not None else {"result": result})
    return message(entry_id, block, role="tool")


def ran(n: int, command: str, output: JsonValue = "", error: JsonValue = None) -> list[Entry]:
    return [
        called(f"c{n}", f"t{n}", "bash", command=command),
        answered(f"r{n}", f"t{n}", "bash", output, error),
    ]


def edited(n: int, path: str, new: str = "", error: JsonValue = None) -> list[Entry]:
    return [
        called(f"c{n}", f"t{n}", "edit", path=path, oldText="x", newText=new),
        answered(f"r{n}", f"t{n}", "edit", f"Successfully replaced text in {path}.", error),
    ]


def working_day() -> list[Entry]:
    """A session with a rule, failures that are settled, finished work and small talk."""
    return [
        user("u1", "Please add a --json flag to the status command. Never print secrets."),
        said("a1", "Let me look at the command first."),
        called("c1", "t1", "read", path="src/app/status.py"),
        answered("r1", "t1", "read", "def status():\n    print('ok')\n" * 400),
        *edited(2, "src/app/status.py", "def render_json(view):\n    ..."),
        *ran(3, "pytest tests/test_status.py -q", "1 failed, 11 passed in 0.52s\nexit code 1"),
        said("a2", "The test failed because render_json returns bytes."),
        *edited(4, "src/app/status.py", "def render_json(view):\n    return dumps(view)"),
        *ran(5, "pytest tests/test_status.py -q", "12 passed in 0.48s"),
        *ran(
            6, "git commit -am 'status: --json'", "[main 4f1c2aa] status: --json\n 1 file changed"
        ),
        said("a3", "Done! Added the `--json` flag to `ombus status`; all 12 tests pass."),
        user("u2", "thanks"),
        user("u3", "No, the key must be called `n_active`, not `active`."),
        said("a4", "You're right. Fixed: the key is now `n_active`."),
    ]
