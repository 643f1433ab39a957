"""``ombus serve`` and ``ombus token``: as processes and commands."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import msgspec
import pytest

from tests.cli.conftest import Cli, cli, folder
from tests.gateway.serving import MAX_WAIT_S

__all__ = ["cli", "folder"]


def test_a_token_is_created_listed_and_revoked(cli: Cli) -> None:
    made = cli("token", "create", "ci", "--role", "reader", "--sessions", "ci-*", "--json").json()
    assert made["token"].startswith(f"ombus_{made['id']}_")
    (row,) = cli("token", "list", "--json").lines()
    assert (row["name"], row["roles"], row["sessions"]) == ("ci", ["reader"], ["ci-*"])
    assert row["state"] == "valid"
    assert made["token"] not in cli("token", "list").out
    assert cli("token", "revoke", made["id"]).code == 0
    assert cli("token", "list", "--json").json()["state"] == "revoked"


def test_what_is_no_role_or_token_is_misuse(cli: Cli) -> None:
    assert cli("token", "create", "x", "--role", "king").code == 2
    assert cli("token", "revoke", "0123456789ab").code == 2
    assert cli("serve", "--host", "0.0.0.0").code == 2


def test_the_name_of_a_token_that_may_do_something_else_is_misuse(cli: Cli) -> None:
    assert cli("token", "create", "x", "--role", "reader").code == 0
    taken = cli("token", "create", "x", "--role", "publisher")
    assert (taken.code, taken.out) == (2, "")
    assert "`ombus token revoke " in taken.err


def test_serving_says_where_that_no_token_is_needed_and_ends_in_order(folder: Path) -> None:
    command = (sys.executable, "-m", "ombus.cli", "serve", "--port", "0", "--json")
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, env=dict(os.environ)) as process:
        assert process.stdout is not None
        said = msgspec.json.decode(process.stdout.readline())
        assert (said["ready"], said["tokens"]) == (True, False)
        entry = {"role": "user", "content": "hello"}
        url = f"{said['url']}/v1/sessions/s"
        answer = httpx.post(f"{url}/entries", json={"entries": [entry]}, timeout=MAX_WAIT_S)
        assert answer.status_code == 200
        with httpx.stream("GET", f"{url}/tail", timeout=MAX_WAIT_S) as stream:
            chunks = stream.iter_text()
            assert "open" in next(chunks)
            process.send_signal(signal.SIGTERM)
            for _ in chunks:
                pass
        _, err = process.communicate(timeout=MAX_WAIT_S)
        assert process.returncode == 0, err
        assert b"whoever reaches this loopback address may do everything" in err
        assert b"request.answered" in err
        assert b"hello" not in err


@pytest.mark.parametrize(
    "arguments",
    [("--beside",), ("--host", "0.0.0.0"), ("--role", "king"), ("--peer-secret-file", "none")],
)
def test_what_makes_no_sense_on_kafka_is_misuse(cli: Cli, arguments: tuple[str, ...]) -> None:
    kafka = ("--bootstrap-servers", "127.0.0.1:9", "--port", "0")
    assert cli("serve", *kafka, *arguments).code == 2


@pytest.mark.parametrize("arguments", [("--cert", "x.pem"), ("--key", "x.pem")])
def test_a_certificate_needs_its_key(cli: Cli, arguments: tuple[str, str]) -> None:
    assert cli("serve", *arguments).code == 2
