"""The golden lines, and JSON values to try the wire with."""

from pathlib import Path
from typing import Final

from hypothesis import strategies as st
from ombus_schemas.jsontext import JsonObject, JsonValue

GOLDEN: Final = Path(__file__).parent / "golden"
FILES: Final = tuple(sorted(path.name for path in GOLDEN.glob("*.jsonl")))


def lines_of(name: str) -> list[bytes]:
    """Return the records of one golden file."""
    return (GOLDEN / name).read_bytes().removesuffix(b"\n").split(b"\n")


ALL_LINES: Final = tuple(line for name in FILES for line in lines_of(name))


def texts() -> st.SearchStrategy[str]:
    """Texts with everything that has broken a codec: controls, halves of characters, escapes."""
    return st.text(max_size=12) | st.sampled_from(
        ["\ud83d", "\ude00x", '\\"', "\\\\", "[{", "\x00"]
    )


def values() -> st.SearchStrategy[JsonValue]:
    """JSON values as a decoder, or careless Python, may hold them."""
    return st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | texts(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts(), inner, max_size=4),
        max_leaves=12,
    )


def objects() -> st.SearchStrategy[JsonObject]:
    return st.dictionaries(texts(), values(), max_size=4)
