"""The one place where an entry can be refused: before it is appended.

What is on the log is a fact that folds accept for ever. So a client, a gateway and an importer pass
every entry through ``admit``, which hands back exactly what each reader will decode, or says why
not (design.md section 3).

Codes of ``Rejected``: ``schema``, ``unknown_field``, ``schema_version``, ``kind``, ``timestamp``,
``id``, ``reserved_id``, ``tenant``, ``session``, ``parent``, ``depth``, ``range``, ``oversize``,
``enc_reserved``, ``origin``, ``side``; of ``permissions``: ``forbidden``, ``body``.
"""

import re
from typing import Final

import msgspec

from ombus_schemas.codec import decode, encode
from ombus_schemas.concealment import conceal, conceal_text
from ombus_schemas.entries import SCHEMA_VERSION, Entry, Message
from ombus_schemas.errors import BadRecord, Rejected
from ombus_schemas.ids import (
    SYSTEM_TENANT,
    WORKER_ID_PREFIX,
    is_entry_id,
    is_key_part,
    is_tenant_id,
)
from ombus_schemas.jsontext import JsonObject, JsonValue
from ombus_schemas.limits import MAX_ENTRY_BYTES, MAX_INLINE_MEDIA_BYTES, MAX_OFFERED_BYTES
from ombus_schemas.media import with_references
from ombus_schemas.permissions import (
    ISSUED_NAMES,
    RESERVED_PREFIX,
    Role,
    check_body,
    may_have_worker_id,
)
from ombus_schemas.redaction import redact, redact_text

KINDS: Final = (
    "message",
    "event",
    "summary",
    "metadata",
    "model_change",
    "label",
    "custom",
    "compaction",
)


class Policy(msgspec.Struct, kw_only=True, frozen=True):
    """Who appends, and what must not get onto the log."""

    role: Role = "publisher"
    principal_id: str | None = None
    """Stamped as ``issuedBy`` on ownership, grants and revocations."""
    secrets: tuple[str, ...] = ()
    """Replaced as they stand here: ``secrets.needles`` gives a value's other forms as well."""
    patterns: bool | None = None
    """Whether the pattern set is looked for as well; ``None``: in what importers bring."""
    max_inline_media: int = MAX_INLINE_MEDIA_BYTES
    """Characters of base64 text that stay in the entry."""

    @property
    def conceals(self) -> bool:
        """Whether the pattern set is looked for."""
        return self.role == "importer" if self.patterns is None else self.patterns


def admit(offered: Entry | JsonObject, policy: Policy) -> Entry:
    """Return the entry as it may be appended and as it will be read back.

    Text content becomes one text block, lone surrogates U+FFFD, long media references, known
    secrets markers; the schema version and ``issuedBy`` are stamped. An absent ``parentId`` stays
    absent: whoever appends chains it. Admitting the result again changes nothing, but for secrets
    that the marker itself contains.

    Raises:
        Rejected: with one of the codes above; nothing else, whatever is offered. It names no
            secret, not even one that stands where an id or a field's name should.
    """
    try:
        return _admitted(offered, policy)
    except Rejected as error:
        safe = _without_secrets(error, policy.secrets)
        if safe is None:
            raise
        # The chain would be printed with it, and quotes what is not to be quoted.
        raise safe from None


def _admitted(offered: Entry | JsonObject, policy: Policy) -> Entry:
    entry = _read_back(_tree(offered))
    entry = _with_safe_content(_stamped(entry, policy), policy)
    _check_envelope(entry, policy.role)
    check_body(entry, policy.role)
    n_bytes = len(encode(entry))
    if n_bytes > MAX_ENTRY_BYTES:
        fact = f"holds {n_bytes:,} bytes, cap is {MAX_ENTRY_BYTES:,}: send it in parts"
        raise Rejected(
            "oversize", entry.id, "the entry", fact, limit=MAX_ENTRY_BYTES, actual=n_bytes
        )
    return entry


_FIELDS: Final = frozenset(field.encode_name for field in msgspec.structs.fields(Entry))
_MESSAGE_FIELDS: Final = frozenset(field.encode_name for field in msgspec.structs.fields(Message))
_WORDS: Final = ("event", "data", "metadata", "summary", "label", "model", "previousModel")
_MAY_HOLD_MEDIA: Final = frozenset({"event", "data", "metadata", "content"})
_TIMESTAMP: Final = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?", re.ASCII
)
_encode_tree: Final = msgspec.json.Encoder().encode


def _tree(offered: Entry | JsonObject) -> JsonObject:
    """Return the members of what is offered, message content as a list of blocks."""
    if isinstance(offered, Entry):
        try:
            tree: JsonObject = msgspec.to_builtins(offered)
        except RecursionError as error:
            raise Rejected("depth", offered.id, "the entry", "is nested too deep") from error
        except (TypeError, ValueError) as error:
            raise Rejected("schema", offered.id, "the entry", f"is no JSON: {error}") from error
    else:
        tree = dict(offered)
        _refuse_unknown(tree, _FIELDS, _id_of(tree), "")
    message = tree.get("message")
    if isinstance(message, dict):
        _refuse_unknown(message, _MESSAGE_FIELDS, _id_of(tree), "message.")
        tree["message"] = {**message, "content": _blocks(message.get("content"))}
    return tree


def _refuse_unknown(members: JsonObject, known: frozenset[str], named: str, prefix: str) -> None:
    for name in members:
        if name not in known:
            fact = "is no field of ours: use metadata or data"
            raise Rejected("unknown_field", named, f"{prefix}{name}", fact)


def _blocks(content: JsonValue) -> JsonValue:
    match content:
        case None | "":
            return []
        case str():
            return [_text_block(content)]
        case list():
            return [_text_block(item) if isinstance(item, str) else item for item in content]
        case _:
            return content


def _text_block(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _read_back(tree: JsonObject) -> Entry:
    """Return what a reader would decode: plain JSON, no surrogates, null for what is no number."""
    try:
        try:
            raw = _encode_tree(tree)
        except UnicodeEncodeError:
            raw = _encode_tree(_whole(tree))
        return decode(raw, MAX_OFFERED_BYTES)
    except RecursionError as error:
        raise Rejected("depth", _id_of(tree), "the entry", "is nested too deep") from error
    except BadRecord as error:
        raise Rejected(
            error.reason, _id_of(tree), "the entry", f"is none: {error.detail}"
        ) from error
    except (TypeError, ValueError, OverflowError) as error:
        raise Rejected("schema", _id_of(tree), "the entry", f"is no JSON: {error}") from error


def _whole(value: JsonValue) -> JsonValue:
    """Return ``value`` with U+FFFD for every half of a character that stands alone."""
    match value:
        case str():
            raw = value.encode("utf-16-le", "surrogatepass")
            return raw.decode("utf-16-le", "replace")
        case list():
            return [_whole(item) for item in value]
        case dict():
            return {str(_whole(key)): _whole(item) for key, item in value.items()}
        case _:
            return value


def _stamped(entry: Entry, policy: Policy) -> Entry:
    if entry.schema_version not in (0, SCHEMA_VERSION):
        fact = f"is {entry.schema_version}, this release writes {SCHEMA_VERSION}"
        raise Rejected("schema_version", entry.id, "schemaVersion", fact)
    data = entry.data
    if isinstance(data, dict) and entry.data_type in ISSUED_NAMES and policy.role != "importer":
        data = {key: value for key, value in data.items() if key != "issuedBy"}
        if policy.principal_id is not None:
            data["issuedBy"] = policy.principal_id
    elif entry.schema_version == SCHEMA_VERSION:
        return entry
    return msgspec.structs.replace(entry, schema_version=SCHEMA_VERSION, data=data)


def _with_safe_content(entry: Entry, policy: Policy) -> Entry:
    """Return ``entry`` with references for media and markers for secrets; ids are left alone."""
    tree: JsonObject = msgspec.to_builtins(entry)
    is_ours = entry.data_type.startswith(RESERVED_PREFIX) or entry.kind == "compaction"
    changed: JsonObject = {
        name: _safe(name, tree[name], policy, is_ours and name == "data")
        for name in _WORDS
        if name in tree
    }
    message = tree.get("message")
    if isinstance(message, dict):
        safe: JsonObject = {
            name: _safe(name, message[name], policy, False)
            for name in ("content", "metadata")
            if name in message
        }
        changed["message"] = {**message, **safe}
    same = {name: tree[name] for name in changed}
    return entry if changed == same else msgspec.convert({**tree, **changed}, Entry)


def _safe(name: str, value: JsonValue, policy: Policy, is_body: bool) -> JsonValue:
    if name in _MAY_HOLD_MEDIA:
        value = with_references(value, policy.max_inline_media)
    if is_body:
        return _redacted_body(value, policy) if _may_change(policy) else value
    if policy.conceals:
        return conceal(value, policy.secrets)
    return redact(value, policy.secrets, max_depth=None) if any(policy.secrets) else value


def _may_change(policy: Policy) -> bool:
    return policy.conceals or any(policy.secrets)


def _redacted_body(value: JsonValue, policy: Policy) -> JsonValue:
    """Redact the words of a body of ours; its keys and the ids in it are the contract."""
    match value:
        case str() if policy.conceals:
            return conceal_text(value, policy.secrets)
        case str():
            return redact_text(value, policy.secrets)
        case list():
            return [_redacted_body(item, policy) for item in value]
        case dict():
            return {
                key: item if _names_something(key) else _redacted_body(item, policy)
                for key, item in value.items()
            }
        case _:
            return value


def _names_something(key: str) -> bool:
    return key in _REFERENCES or key.endswith(("Id", "Ids"))


_REFERENCES: Final = frozenset(
    {"type", "id", "ids", "refs", "base", "through", "seen", "cause", "relevance", "reason"}
)


def _check_envelope(entry: Entry, role: Role) -> None:
    if not is_key_part(entry.tenant_id):
        raise Rejected("tenant", entry.id, "tenantId", "is no tenant id")
    if not is_tenant_id(entry.tenant_id) and role != "operator":
        raise Rejected("tenant", entry.id, "tenantId", f"{SYSTEM_TENANT} is reserved")
    if not is_key_part(entry.session_id):
        raise Rejected("session", entry.id, "sessionId", "is no session id")
    if entry.id.startswith(WORKER_ID_PREFIX) and not may_have_worker_id(entry, role):
        fact = f"begins with {WORKER_ID_PREFIX}, which is for workers"
        raise Rejected("reserved_id", entry.id, "id", fact)
    if isinstance(entry.parent_id, str) and not is_entry_id(entry.parent_id):
        raise Rejected("parent", entry.id, "parentId", "is no entry id")
    if entry.expected_leaf is not None and not is_entry_id(entry.expected_leaf):
        raise Rejected("parent", entry.id, "expectedLeaf", "is no entry id")
    if entry.kind not in KINDS:
        raise Rejected("kind", entry.id, "kind", f"must be one of {', '.join(KINDS)}")
    if entry.kind == "message" and entry.message is None:
        raise Rejected("schema", entry.id, "message", "is missing in an entry of that kind")
    if entry.timestamp and _TIMESTAMP.fullmatch(entry.timestamp) is None:
        raise Rejected("timestamp", entry.id, "timestamp", "is no ISO 8601 instant")
    if entry.enc is not None:
        raise Rejected("enc_reserved", entry.id, "enc", "is reserved")
    if entry.side and entry.message is not None:
        raise Rejected("side", entry.id, "side", "is refused on an entry with a message")
    if entry.origin == "worker" and role not in ("worker", "importer"):
        raise Rejected("origin", entry.id, "origin", "worker is for workers to claim")


def _without_secrets(error: Rejected, secrets: tuple[str, ...]) -> Rejected | None:
    """Return the refusal without secrets, or ``None`` if neither it nor its causes hold one."""
    said: BaseException | None = error
    chain: list[str] = []
    while said is not None:
        chain.append(str(said))
        said = said.__cause__
    if all(conceal_text(text, secrets) == text for text in chain):
        return None
    return Rejected(
        error.code,
        conceal_text(error.entry_id, secrets),
        conceal_text(error.where, secrets),
        conceal_text(error.detail, secrets),
        limit=error.limit,
        actual=error.actual,
    )


def _id_of(tree: JsonObject) -> str:
    entry_id = tree.get("id")
    return entry_id if isinstance(entry_id, str) else ""
