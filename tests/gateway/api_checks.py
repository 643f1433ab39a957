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
    detail = problem.get("detail", "")
    if problem["code"] == "bad_request" and not _is_whole_by_the_schema_alone(case.body, detail):
        raise Failure(
            operation=case.operation.label,
            title="what fits the document cannot be read",
            message=detail,
        )


def _is_whole_by_the_schema_alone(body: object, detail: str) -> bool:
    """Say whether the field that does not fit is ``1.0``: a JSON Schema takes it for an integer."""
    found = [body]
    for name in detail.partition("`$.")[2].rstrip("`").replace("[...]", ".*").split("."):
        held = [each for each in found if isinstance(each, dict)]
        found = [value for each in held for key, value in each.items() if name in ("*", key)]
    return any(isinstance(each, float) and each.is_integer() for each in found)
