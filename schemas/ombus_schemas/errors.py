"""Errors of the wire contract.

* ContractError         terminal, all of them: the same bytes never pass
  x BadRecord           bytes on a topic that are no entry: to the dead letters
  x Rejected            refused at admission, with a stable code; the caller can mend it
"""


class ContractError(Exception):
    """A record that breaks the contract. Retrying the same bytes cannot help."""


class BadRecord(ContractError):
    """A record that is no entry; the position moves past it once it is in the dead letters.

    ``reason`` is a stable code: ``null``, ``oversize``, ``depth``, ``range``, ``json``,
    ``schema``, ``id`` or ``key``. ``detail`` never holds bytes of the record.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail

    def __str__(self) -> str:
        return f"bad record ({self.reason}): {self.detail}"


class Rejected(ContractError):
    """An entry that admission refuses; nothing was appended.

    ``code`` is stable and listed in ``admission``; ``where`` names the field.
    """

    def __init__(
        self,
        code: str,
        entry_id: str,
        where: str,
        detail: str,
        *,
        limit: int | None = None,
        actual: int | None = None,
    ) -> None:
        super().__init__(code, entry_id, where, detail)
        self.code, self.entry_id, self.where, self.detail = code, entry_id, where, detail
        self.limit, self.actual = limit, actual

    def __str__(self) -> str:
        return f"entry {self.entry_id or '(without id)'}: {self.where} {self.detail} [{self.code}]"
