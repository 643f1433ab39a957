"""Certificates of a test's own, for servers on loopback."""

import shutil
import subprocess
from pathlib import Path

import pytest


def self_signed(folder: Path) -> tuple[Path, Path]:
    """Return the files of a key and of its certificate, made by openssl; skip without it."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not on the path")
    key, certificate = folder / "key.pem", folder / "cert.pem"
    made = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -addext subjectAltName=IP:127.0.0.1"
    named = ["-subj", "/CN=ombus test", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*made.split(), *named], check=True, capture_output=True)
    return key, certificate
