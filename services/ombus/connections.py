"""What files and environment say of a connection: ``[kafka]`` and ``[redis]``, and who said it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from ombus_schemas.jsontext import JsonValue

from ombus.settings import BadSetting, read_file
from ombus.tables import BadTable, read_table, unknown

FILE: Final = "-file"
"""Ends the name of a setting that says where a secret lies: how secrets are mounted."""

Kind = TypeVar("Kind", bound=msgspec.Struct)


class Said(msgspec.Struct, frozen=True):
    """The settings of one table."""

    table: str
    values: dict[str, JsonValue]
    sources: dict[str, str]
    """Per setting: the file, or ``environment NAME``."""

    def read_as(self, kind: type[Kind], secrets: Sequence[str], *, is_text: bool = False) -> Kind:
        """Return the connection; see ``read_table``.

        Each of ``secrets`` may lie in a file of its own, named by a setting that ends in ``-file``.

        Raises:
            BadSetting: as it says; it repeats no value.
        """
        files = {f"{secret}{FILE}": secret for secret in secrets}
        known = (*(field.encode_name for field in msgspec.structs.fields(kind)), *files)
        values: dict[str, JsonValue] = {}
        for key, value in self.values.items():
            if key not in known:
                raise BadSetting(self._where(key), unknown(key, known))
            if key in files:
                values[files[key]] = _word_in(Path(str(value)).expanduser(), self._where(key))
            else:
                values.setdefault(key, value)
        try:
            return read_table(kind, values, self.table, is_text=is_text)
        except BadTable as error:
            key = error.place.removeprefix(self.table).removeprefix(".")
            raise BadSetting(self._where(key), error.fact) from error

    def _where(self, key: str) -> str:
        source = self.sources.get(key)
        return f"{source}: {self.table}.{key}" if source else f"[{self.table}]"


def said_of(table: str, environ: Mapping[str, str], files: Sequence[Path]) -> Said:
    """Return what is said of ``table``: ``OMBUS_TABLE_*`` wins over files, these go weakest first.

    Raises:
        BadSetting: a file cannot be read, or what it says is no table.
    """
    found = Said(table, {}, {})
    for file in files:
        content = read_file(file).get(table, {})
        if not isinstance(content, dict):
            raise BadSetting(f"{file}: {table}", "is no table")
        found.values.update(content)
        found.sources.update(dict.fromkeys(content, str(file)))
    prefix = f"OMBUS_{table.upper()}_"
    for name, text in environ.items():
        if name.startswith(prefix):
            key = name.removeprefix(prefix).lower().replace("_", "-")
            found.values[key], found.sources[key] = text, f"environment {name}"
    return found


def _word_in(file: Path, where: str) -> str:
    try:
        return file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadSetting(f"{where}: {file}", "cannot be read as text") from error
