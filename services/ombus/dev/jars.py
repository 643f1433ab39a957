"""The jars of Apache Kafka's broker, fetched once by Maven and kept in the user's cache."""

import hashlib
import os
import re
import shutil
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Final

from ombus.dev.errors import DevError
from ombus.dev.processes import require_tool

FETCH_WITHIN: Final = timedelta(minutes=10)
_TAIL_LINES: Final = 15
_VERSION: Final = re.compile(r"<kafka\.version>([^<]+)</kafka\.version>")


def project() -> Path:
    """Return the folder of the Maven project: in the package if installed, else the checkout's.

    Raises:
        DevError: it is in neither place.
    """
    here = Path(__file__)
    for folder in (here.parent / "maven", here.parents[3] / "infra" / "kafka"):
        if (folder / "pom.xml").is_file():
            return folder
    raise DevError(
        "infra/kafka/pom.xml", "is not there", "install ombus from a wheel, or work in a checkout"
    )


def kafka_version() -> str:
    """Return the release of Apache Kafka that the project names."""
    found = _VERSION.search((project() / "pom.xml").read_text("utf-8"))
    if found is None:
        raise DevError("infra/kafka/pom.xml", "names no kafka.version", "put the property back")
    return found[1]


def broker_jars() -> Path:
    """Return the folder with the jars, fetching them if they are not there yet.

    Raises:
        ToolMissing: there is no Maven.
        DevError: Maven failed; with the end of what it said.
    """
    pom = hashlib.sha256((project() / "pom.xml").read_bytes()).hexdigest()[:8]
    kept = _cache() / f"kafka-{kafka_version()}-{pom}"
    if kept.is_dir():
        return kept
    mvn = require_tool("mvn", "fetches the broker's jars", "maven")
    # Beside its place and then renamed: a run that is killed leaves nothing that looks whole.
    fetched = kept.with_name(f"{kept.name}.{os.getpid()}")
    shutil.rmtree(fetched, ignore_errors=True)
    fetched.mkdir(parents=True)
    shutil.copy(project() / "pom.xml", fetched)
    try:
        ran = subprocess.run(
            [mvn, "-B", "-q", "-f", str(fetched / "pom.xml"), "package", f"-Djars={fetched}"],
            capture_output=True,
            text=True,
            timeout=FETCH_WITHIN.total_seconds(),
            check=False,
        )
        if ran.returncode != 0:
            said = "\n  ".join((ran.stdout + ran.stderr).splitlines()[-_TAIL_LINES:])
            raise DevError("mvn", f"could not fetch Apache Kafka\n  {said}\n", "run it again")
        if not kept.is_dir():
            fetched.rename(kept)
    except subprocess.TimeoutExpired as error:
        fact = f"did not end within {FETCH_WITHIN}"
        raise DevError("mvn", fact, "look at the network and run it again") from error
    finally:
        shutil.rmtree(fetched, ignore_errors=True)
    return kept


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home).expanduser() / "ombus"
