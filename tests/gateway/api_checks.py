"""Schemathesis's check of what must be taken, for an API whose documents name things on a log.

A schema cannot say which leaf, position or parent there is, so such a refusal keeps the contract.
``bad_request`` says that a request cannot be read: then the schema must have said so, too.
"""

import json
from typing import Any

import schemathesis
from schemathesis import Case
from schemathesis.core.failures import Failure
from schemathesis.generation import GenerationMode


@schemathesis.check
def what_fits_is_read(
    ctx: schemathesis.CheckContext, response: schemathesis.Response, case: Case[Any]
) -> None:
    """A request that fits the document is never answered with ``bad_request``."""
    is_meant = case.meta is not None and case.meta.generation.mode is GenerationMode.POSITIVE
    if not is_meant or response.status_code != 400:
        return
    problem = json.loads(response.content)
    if problem["code"] == "bad_request":
        raise Failure(
            operation=case.operation.label,
            title="what fits the document cannot be read",
            message=problem.get("detail", ""),
        )
