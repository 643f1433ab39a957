"""The AsyncAPI 3.0 document: topics with their cut and retention, messages, headers."""

from datetime import timedelta
from typing import Final

from ombus_schemas.entries import SCHEMA_VERSION
from ombus_schemas.headers import APPENDED_AT, ORIGIN_HEADER, SCHEMA_VERSION_HEADER
from ombus_schemas.jsontext import JsonObject
from ombus_schemas.topics import (
    DEAD_LETTERS,
    PRODUCTION_REPLICAS,
    SUPERVISION,
    TOPICS,
    Topic,
    configs,
)

BINDING_VERSION: Final = "0.5.0"
"""Of the Kafka bindings."""


def document(entry_file: str, supervision_file: str) -> JsonObject:
    """Return the document; payloads are the schemas in the files of these names beside it."""
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "ombus",
            "version": f"{SCHEMA_VERSION}.0.0",
            "description": "Observational memory on the bus: every topic and what it carries.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "channels": {_channel_id(topic): _channel(topic) for topic in TOPICS},
        "operations": {
            f"receive.{_channel_id(topic)}": {
                "action": "receive",
                "channel": {"$ref": f"#/channels/{_channel_id(topic)}"},
                "summary": f"Follow {topic.name}.",
            }
            for topic in TOPICS
        },
        "components": {
            "messages": {
                "entry": _message("entry", "One session entry.", entry_file),
                "supervisionEvent": _message(
                    "supervisionEvent", "One event of a delegation.", supervision_file
                ),
                "deadLetter": {
                    "name": "deadLetter",
                    "title": "A record that is no entry, byte for byte, with the reason beside it.",
                    "contentType": "application/octet-stream",
                },
            }
        },
    }


def _channel_id(topic: Topic) -> str:
    first, *rest = topic.name.removeprefix("ombus.").replace("-", ".").split(".")
    return first + "".join(word.capitalize() for word in rest)


def _channel(topic: Topic) -> JsonObject:
    carried = {SUPERVISION: "supervisionEvent", DEAD_LETTERS: "deadLetter"}
    message = carried.get(topic.name, "entry")
    settings = configs(topic)
    retention = topic.retention
    return {
        "address": topic.name,
        "description": f"{topic.carries} Keyed by {topic.key}.",
        "messages": {message: {"$ref": f"#/components/messages/{message}"}},
        "bindings": {
            "kafka": {
                "topic": topic.name,
                "partitions": topic.partitions,
                "replicas": PRODUCTION_REPLICAS,
                "topicConfiguration": {
                    "cleanup.policy": [settings["cleanup.policy"]],
                    "retention.ms": -1
                    if retention is None
                    else retention // timedelta(milliseconds=1),
                    "max.message.bytes": int(settings["max.message.bytes"]),
                },
                "bindingVersion": BINDING_VERSION,
            }
        },
    }


def _message(name: str, title: str, file: str) -> JsonObject:
    return {
        "name": name,
        "title": title,
        "contentType": "application/json",
        "headers": _headers(),
        "payload": {"$ref": f"./{file}"},
        "bindings": {
            "kafka": {
                "key": {"type": "string", "description": "tenant/session"},
                "bindingVersion": BINDING_VERSION,
            }
        },
    }


def _headers() -> JsonObject:
    text: JsonObject = {"type": "string"}
    return {
        "type": "object",
        "description": "Values are UTF-8 text.",
        "properties": {
            "ce_specversion": {"const": "1.0"},
            "ce_id": text,
            "ce_source": text,
            "ce_type": text,
            "ce_time": text,
            "content-type": {"const": "application/json"},
            SCHEMA_VERSION_HEADER: text,
            ORIGIN_HEADER: text,
            APPENDED_AT: {**text, "pattern": "^[0-9]{1,15}$"},
            "traceparent": text,
            "tracestate": text,
        },
    }
