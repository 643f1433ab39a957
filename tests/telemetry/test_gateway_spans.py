"""A request to the gateway is its caller's child, and what it appends is the request's."""

from pathlib import Path

import pytest

pytest.importorskip("opentelemetry.sdk", reason="spans need the extra otel")

from ombus.gateway.app import Gateway
from ombus.gateway.hosting import Host
from ombus.gateway.limits import Limits
from ombus.gateway.tokens import Tokens
from ombus.settings import load_settings
from ombus.wiring import open_engine
from ombus_schemas.headers import trace_of
from ombus_streams.runtime.telemetry import Telemetry
from starlette.testclient import TestClient

from tests.telemetry.spans import Recorded, id_of, links_of

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_a_traceparent_reaches_the_record_and_the_fold_links_to_it(tmp_path: Path) -> None:
    seen, settings = Recorded(), load_settings({"data": str(tmp_path)}, {}, [])
    engine = open_engine(settings, owns=True, telemetry=Telemetry(tracer=seen.tracer))
    host = Host(settings, engine, folds=True, threads=2)
    gateway = Gateway(host, Tokens(tmp_path), Limits(), is_open=True)
    body = {"entries": [{"id": "m1", "role": "user", "content": "hello"}]}

    with TestClient(gateway.app(), base_url="http://localhost") as http:
        said = http.post("/v1/sessions/s/entries", json=body, headers={"traceparent": CALLER})
        assert said.status_code == 200
        position = said.json()["position"]
        assert http.get(f"/v1/sessions/s/status?atLeast={position}").status_code == 200
        _, partition, offset = position.rsplit(":", 2)
        (record,) = engine.log.read(int(partition), int(offset), 1)
        forged = http.post(
            "/v1/sessions/s/entries", headers={"Host": "evil", "traceparent": CALLER}
        )
        assert forged.status_code == 401

    (request,) = seen.named("POST /v1/sessions/{session}/entries")
    assert request.parent is not None
    assert f"{request.parent.span_id:016x}" == CALLER.split("-")[2]
    assert f"{id_of(request)[0]:032x}" == CALLER.split("-")[1]
    (appended,) = seen.named("append")
    assert appended.parent is not None
    assert appended.parent.span_id == id_of(request)[1]
    context = trace_of(record.headers)
    assert context is not None
    assert context.traceparent.split("-")[2] == f"{id_of(appended)[1]:016x}"
    assert {id_of(appended)} in [links_of(span) for span in seen.named("fold")]
