"""Follows one session with a plain Kafka client and the published schemas. Imports nothing of ours.

``python plain_consumer.py BOOTSTRAP TOPIC TENANT/SESSION COUNT SCHEMAS``: one line of JSON for each
entry of the session, then the names of the modules that were loaded.
"""

import asyncio
import json
import sys
from pathlib import Path

from aiokafka import AIOKafkaConsumer
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # ships no types


async def follow(bootstrap: str, topic: str, key: str, count: int, schemas: Path) -> None:
    schema = json.loads((schemas / "entry.schema.json").read_text("utf-8"))
    declared = json.loads((schemas / "asyncapi.json").read_text("utf-8"))
    assert any(
        channel["address"] == "ombus.session.entries" for channel in declared["channels"].values()
    )
    validator = Draft202012Validator(schema)
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    try:
        n_seen = 0
        while n_seen < count:
            record = await asyncio.wait_for(consumer.getone(), 60)
            if record.key != key.encode():
                continue
            n_seen += 1
            headers = dict(record.headers)
            entry = json.loads(record.value)
            validator.validate(entry)
            assert headers["ce_id"].decode() == entry["id"]
            data = entry.get("data") or {}
            is_observed = data.get("type") == "om.observations.recorded"
            observations = data["observations"] if is_observed else []
            shown = {
                "id": entry["id"],
                "type": headers["ce_type"].decode(),
                "observations": [each["content"] for each in observations],
            }
            print(json.dumps(shown))
    finally:
        await consumer.stop()
    print(json.dumps(sorted(sys.modules)))


if __name__ == "__main__":
    bootstrap, topic, key, count, schemas = sys.argv[1:]
    asyncio.run(follow(bootstrap, topic, key, int(count), Path(schemas)))
