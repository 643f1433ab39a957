"""What is fuzzed: a target takes any bytes and may raise nothing but a failed assertion."""

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
from ombus.importers import FORMATS, Imported, open_transcripts
from ombus_schemas.admission import Policy, admit
from ombus_schemas.codec import decode, decode_record, encode
from ombus_schemas.concealment import conceal_bytes
from ombus_schemas.errors import BadRecord, Rejected
from ombus_schemas.facts import fact_of
from ombus_schemas.records import compaction_of, folded_of, record_of

Target = Callable[[bytes], None]

SEEDS: Final = (
    b'{"id":"e1","sessionId":"s","tenantId":"t","parentId":null,"kind":"message","schemaVersion":1,'
    b'"message":{"role":"user","content":[{"type":"text","text":"hi"}]}}',
    b'{"id":"e2","sessionId":"s","tenantId":"t","parentId":"e1","kind":"custom","schemaVersion":1,'
    b'"side":true,"data":{"type":"om.observations.recorded","observations":[{"id":"000000000001",'
    b'"content":"c","timestamp":"t","relevance":"low","sourceEntryIds":["e1"],"tokenCount":1}]}}',
    b'{"type":"session","version":3,"id":"a","timestamp":"2026-01-01T00:00:00Z","cwd":"/"}\n'
    b'{"type":"message","id":"b","parentId":null,"message":{"role":"user","content":"x"}}\n',
    b'{"type":"user","uuid":"u","parentUuid":null,"sessionId":"s","message":{"role":"user",'
    b'"content":"x"}}\n{"type":"summary","summary":"s","leafUuid":"u"}\n',
    b'{"messages":[{"role":"user","content":"x"},{"role":"tool","content":[{"type":"text"}]}]}',
    b'{"history":[{"role":"user","content":"x"}],"trajectory":[{"action":"a","observation":"o"}]}',
    b"api_key: sk-AbCdEfGh1234567890 eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc\n",
)


def codec(raw: bytes) -> None:
    """Decoding raises ``BadRecord`` or nothing; what is decoded is encoded the same for ever."""
    try:
        entry = decode(raw)
    except BadRecord:
        return
    again = encode(entry)
    assert encode(decode(again)) == again
    for read in (fact_of, record_of, folded_of, compaction_of):
        read(entry)
    with suppress(BadRecord):
        decode_record(f"{entry.tenant_id}/{entry.session_id}".encode("utf-8", "replace"), raw)


def admission(raw: bytes) -> None:
    """Admission raises ``Rejected`` or nothing; what it admits is admitted again, unchanged."""
    try:
        tree = msgspec.json.decode(raw)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return
    if not isinstance(tree, dict):
        return
    for role in ("publisher", "importer", "worker"):
        policy = msgspec.convert({"role": role, "secrets": ("s3cret",), "patterns": True}, Policy)
        try:
            entry = admit(tree, policy)
        except Rejected:
            continue
        assert admit(entry, policy) == entry


def redaction(raw: bytes) -> None:
    """Dead letters' bytes are redacted whatever they are; JSON stays JSON."""
    concealed = conceal_bytes(raw, ("s3cret",))
    try:
        msgspec.json.decode(raw)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return
    msgspec.json.decode(concealed)


def importers(raw: bytes) -> None:
    """Every format reads any file to its end; what it imports is admitted or refused."""
    if not raw:
        return
    name = ("", *FORMATS)[raw[0] % (len(FORMATS) + 1)] or None
    _FILE.write_bytes(raw[1:])
    policy = Policy(role="importer")
    for transcript in open_transcripts(_FILE, tenant="t", format=name):
        for item in transcript:
            if isinstance(item, Imported):
                with suppress(Rejected):
                    admit(item.entry, policy)


TARGETS: Final[dict[str, Target]] = {
    each.__name__: each for each in (codec, admission, redaction, importers)
}
_FILE: Final = Path(tempfile.gettempdir()) / f"ombus-fuzz-{os.getpid()}.jsonl"


def corpus(target: Target) -> tuple[bytes, ...]:
    """Return what a target begins with; an importer's first byte names the format."""
    if target is not importers:
        return SEEDS
    return tuple(bytes([first]) + seed for first in range(len(FORMATS) + 1) for seed in SEEDS)
