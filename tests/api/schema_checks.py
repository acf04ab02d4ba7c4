"""Schemathesis over an application: what must hold of every answer, whatever was asked. Knows no service."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis import CheckContext
from schemathesis.checks import (
    allow_header_conformance,
    content_type_conformance,
    negative_data_rejection,
    not_a_server_error,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)
from schemathesis.generation.feedback import FeedbackSources
from schemathesis.pytest._test_builder import build_operation_test
from schemathesis.python._constants.orchestrator import make_constants_value_source

from strata.api.app import openapi_schema


def service_not_at_fault(ctx: CheckContext, response: schemathesis.Response, case: schemathesis.Case) -> bool | None:
    """No server error, but that a device failed: then it is said which, and how."""
    if response.status_code in (502, 504):
        problem = response.json()
        assert problem["title"] in ("Device error", "Outcome unknown"), problem
        assert problem["detail"], problem
        assert problem["where"], problem
        return None
    return not_a_server_error(ctx, response, case)


CHECKS = [
    unsupported_method,
    negative_data_rejection,
    allow_header_conformance,
    service_not_at_fault,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


def schema_of(app: Any) -> Any:
    """The OpenAPI document with an application behind it, which need not run yet."""
    schema = schemathesis.openapi.from_dict(openapi_schema())
    schema.app = app
    # Made-up credentials would be refused before anything else is looked at; bad ones have tests of their own.
    schema.config.generation.with_security_parameters = False
    return schema


def examples(count: int) -> settings:
    """So many requests per operation, the same ones every time."""
    return settings(
        max_examples=count, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )


class Operations:
    """All operations of a schema, each with the requests that Schemathesis makes up for it.

    Its own ``parametrize`` makes them up for all operations when tests are collected, which takes half a minute and
    happens in every worker, most of which run none of them.
    """

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._operations = {found.ok().label: found.ok() for found in schema.get_all_operations()}
        self.labels = list(self._operations)
        """``GET /v1/nodes``."""

    def ask(self, label: str, test: Callable[[schemathesis.Case], None]) -> None:
        """Call ``test`` with every request to the operation."""
        asked: Any = build_operation_test(
            config=self._schema.config,
            operation=self._operations[label],
            test_func=test,
            given_kwargs={},
            feedback=self._feedback,
        )
        asked()

    @cached_property
    def _feedback(self) -> FeedbackSources:
        return FeedbackSources(constants_value_source=make_constants_value_source(self._schema))


def ask_and_check(case: schemathesis.Case) -> None:
    """Send one request: no server error, and nothing that the document does not say."""
    case.call_and_validate(checks=CHECKS, timeout=120)  # whoever waits for a busy machine has found no fault
