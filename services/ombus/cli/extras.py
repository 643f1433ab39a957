"""Optional parts of the installation: what is missing is said by the name it is installed by."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def required(extra: str) -> Iterator[None]:
    """Import optional packages inside.

    Raises:
        BadSetting: one of them is not installed.
    """
    from ombus.settings import BadSetting

    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("ombus"):
            raise
        fact = f"is not installed: pip install 'ombus[{extra}]'"
        raise BadSetting(f"{error.name}", fact) from error
