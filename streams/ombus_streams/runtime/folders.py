"""Folders that hold what sessions say: nobody but their owner looks into them."""

from pathlib import Path
from typing import Final

_OWNER_ALONE: Final = 0o700


def make_private(folder: Path) -> None:
    """Create a folder, and what is missing above it, for its owner alone.

    One that exists keeps its mode: whoever made it may share it.
    """
    try:
        folder.mkdir(_OWNER_ALONE, exist_ok=True)
    except FileNotFoundError:
        if folder.parent == folder:
            raise
        make_private(folder.parent)
        folder.mkdir(_OWNER_ALONE, exist_ok=True)
