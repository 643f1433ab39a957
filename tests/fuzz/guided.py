"""Coverage-guided fuzzing, ``make fuzz``: ``python -m tests.fuzz.guided codec -max_total_time=60``.

Atheris is no dependency: the make target installs it. The arguments after the target are
libFuzzer's.
"""

import importlib
import sys
import tempfile
from pathlib import Path


def main(arguments: list[str]) -> None:
    """Fuzz the target that is named first, from its seeds."""
    atheris = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["ombus", "ombus_schemas"]):
        targets = importlib.import_module("tests.fuzz.targets")
    target = targets.TARGETS[arguments[1]]
    with tempfile.TemporaryDirectory() as folder:
        for n, seed in enumerate(targets.corpus(target)):
            (Path(folder) / str(n)).write_bytes(seed)
        atheris.Setup([arguments[0], folder, *arguments[2:]], target)
        atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv)
