"""The elements of documents, found without decoding the document."""

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ombus.importers import elements as elements_module
from ombus.importers.elements import elements
from ombus_schemas.jsontext import JsonValue

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
documents = st.dictionaries(st.text(max_size=4), values, max_size=5) | st.lists(values, max_size=5)


def found(content: bytes) -> list[tuple[str, int, JsonValue]]:
    return [
        (at.key, at.index, json.loads(content[at.offset : at.offset + at.size]))
        for at in elements(io.BytesIO(content), 0, len(content))
    ]


def expected(document: JsonValue) -> list[tuple[str, int, JsonValue]]:
    if isinstance(document, list):
        return [("", index, item) for index, item in enumerate(document)]
    assert isinstance(document, dict)
    rows: list[tuple[str, int, JsonValue]] = []
    for key, value in document.items():
        if isinstance(value, list):
            rows += [(key, index, item) for index, item in enumerate(value)]
        else:
            rows.append((key, -1, value))
    return rows


@given(documents, st.sampled_from([None, 1]), st.booleans(), st.integers(1, 9))
def test_every_element_is_found_whatever_the_chunks(
    document: JsonValue, indent: int | None, ascii_only: bool, chunk: int
) -> None:
    content = json.dumps(document, indent=indent, ensure_ascii=ascii_only).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(elements_module, "_CHUNK_BYTES", chunk)

        assert found(content) == expected(document)


@given(documents, st.data())
def test_a_cut_document_gives_what_stands_before_the_cut(
    document: JsonValue, data: st.DataObject
) -> None:
    content = json.dumps(document).encode()
    cut = content[: data.draw(st.integers(0, len(content)))]

    whole = [
        (at.key, at.index, json.loads(cut[at.offset : at.offset + at.size]))
        for at in elements(io.BytesIO(cut), 0, len(cut))
        if at.complete
    ]

    assert whole == expected(document)[: len(whole)]


@given(st.binary(max_size=60))
def test_any_bytes_are_scanned(content: bytes) -> None:
    for at in elements(io.BytesIO(content), 0, len(content)):
        assert 0 <= at.offset <= at.offset + at.size <= len(content)
