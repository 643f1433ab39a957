"""A branch as a page: what is remembered, and what was said, each linked to the other.

Every memory has an anchor ``m-<id>`` and links to the entries it rests on, every entry an anchor
``e-<id>`` and links to what was made of it: recall, with a mouse. What was invalidated is withheld.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from ombus_schemas.codec import decode
from ombus_schemas.entries import Entry
from ombus_schemas.jsontext import JsonObject, json_text
from ombus_schemas.records import Observation, Reflection
from ombus_streams.memory.head import LeafHead
from ombus_streams.memory.items import ACTIVE, observations, reflections
from ombus_streams.memory.session import Session, chain

_UNFIT: Final = re.compile(r"[^A-Za-z0-9_-]")
_TICKS: Final = re.compile(r"`{3,}")
_MARKUP: Final = re.compile(r"([\\`*_\[\]<>#|&])")
_ORDER: Final = ("critical", "high", "medium", "low")


def export_markdown(session: Session, leaf: LeafHead) -> Iterator[bytes]:
    """Yield the page of a leaf in pieces."""
    held = tuple(row.item for row in observations(session, leaf, *ACTIVE))
    lines = tuple(row.item for row in reflections(session, leaf, "visible", "hidden"))
    made = _made_of(held)
    yield _text(f"# Session {_plain(session.session_id)}\n")
    n_branches = sum(not session.leaf(each).conflict for each in session.segments())
    yield _text(
        f"\nBranch that ends at [{_plain(leaf.tip_id)}](#{_anchor(leaf.tip_id)}), one of "
        f"{n_branches:,}. {len(lines):,} reflections, {len(held):,} observations.\n"
    )
    yield from map(_text, _reflections(lines))
    yield from map(_text, _observations(held))
    yield _text("\n## Transcript\n")
    withheld = {
        name for row in session.invalidations() if row.reason != "corrected" for name in row.ids
    }
    for _, row in chain(session, leaf.lineage):
        entry = decode(row.value)
        if entry.data_type.startswith("om."):
            continue
        yield _text(_entry(entry, made.get(entry.id, ()), is_withheld=entry.id in withheld))


def _made_of(held: Sequence[Observation]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for item in held:
        for source in item.source_entry_ids:
            found.setdefault(source, []).append(item.id)
    return found


def _reflections(lines: Sequence[Reflection]) -> Iterator[str]:
    if lines:
        yield "\n## Reflections\n\n"
    for item in lines:
        rests = " ".join(f"[{each}](#m-{each})" for each in item.supporting_observation_ids)
        yield f'- <a id="m-{item.id}"></a>`{item.id}` {_plain(item.content)} ← {rests}\n'


def _observations(held: Sequence[Observation]) -> Iterator[str]:
    if held:
        yield "\n## Observations\n"
    for relevance in _ORDER:
        items = [item for item in held if item.relevance == relevance]
        if items:
            yield f"\n### {relevance.capitalize()}\n\n"
        for item in items:
            rests = " ".join(
                f"[{_plain(each)}](#{_anchor(each)})" for each in item.source_entry_ids
            )
            yield (
                f'- <a id="m-{item.id}"></a>`{item.id}` {_plain(item.timestamp)} '
                f"{_plain(item.content)} ← {rests}\n"
            )


def _entry(entry: Entry, memory: Sequence[str], *, is_withheld: bool) -> str:
    who = entry.message.role if entry.message is not None else entry.kind
    if entry.origin is not None:
        who = f"{who} ({entry.origin})"
    head = f'\n<a id="{_anchor(entry.id)}"></a>\n### {_plain(who)} · {_plain(entry.id)}\n'
    if entry.timestamp:
        head += f"\n{_plain(entry.timestamp)}\n"
    body = "\nWithheld: this entry was invalidated.\n" if is_withheld else "".join(_said(entry))
    links = ""
    if memory:
        links = "\nRemembered in " + " ".join(f"[{each}](#m-{each})" for each in memory) + "\n"
    return head + body + links


def _said(entry: Entry) -> Iterator[str]:
    if entry.message is not None:
        for block in entry.message.content:
            yield _block(block)
        return
    if entry.summary:
        yield _fenced(entry.summary, "")
    if entry.label:
        yield f"\nLabel: {_plain(entry.label)}\n"
    model = entry.model
    if model:
        yield f"\nModel: {_plain(json_text(model))}\n"
    if entry.kind in ("custom", "event", "metadata"):
        yield _fenced(json_text(entry.data if entry.data is not None else entry.event), "json")


def _block(block: JsonObject) -> str:
    text = block.get("text")
    match block.get("type"):
        case "text" if isinstance(text, str):
            return _fenced(text, "")
        case "thinking" if isinstance(text, str):
            return "\nThinking:\n" + _fenced(text, "") if text else "\nThinking, not shown.\n"
        case "tool_call":
            call = f"\nCalls {_plain(str(block.get('name')))} ({_plain(str(block.get('id')))}):\n"
            return call + _fenced(json_text(block.get("arguments")), "json")
        case "tool_result":
            is_error = "error" in block
            result = block.get("error" if is_error else "result")
            said = result if isinstance(result, str) else json_text(result)
            what = "Error" if is_error else "Result"
            named = f"{_plain(str(block.get('name')))} ({_plain(str(block.get('toolCallId')))})"
            return f"\n{what} of {named}:\n" + _fenced(said, "")
        case _:
            return _fenced(msgspec.json.encode(block).decode(), "json")


def _fenced(text: str, language: str) -> str:
    """Return the text as it is, between fences longer than any in it."""
    longest = max((len(found) for found in _TICKS.findall(text)), default=2)
    fence = "`" * (longest + 1)
    end = "" if text.endswith("\n") else "\n"
    return f"\n{fence}{language}\n{text}{end}{fence}\n"


def _plain(text: str) -> str:
    """Return the text on one line, with nothing in it that Markdown or HTML would read."""
    return (
        _MARKUP.sub(r"\\\1", " ".join(text.split())).replace("\\<", "&lt;").replace("\\&", "&amp;")
    )


def _anchor(entry_id: str) -> str:
    """Return the anchor of an entry; ids differ after it, since what is unfit becomes its code."""
    return "e-" + _UNFIT.sub(lambda found: f".{ord(found[0]):x}.", entry_id)


def _text(text: str) -> bytes:
    return text.encode("utf-8", "replace")
