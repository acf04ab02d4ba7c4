"""The API as one ASGI application: routes, their rights, OpenAPI, errors. ``create_app`` builds it over a facade."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Litestar, Response
from litestar.di import Provide
from litestar.openapi import OpenAPIConfig
from litestar.openapi.spec import Components, SecurityScheme

import strata
from strata.api.front import Door, Front
from strata.api.http import AnyRequest, is_conditional
from strata.api.problem import MEDIA_TYPE, Problem, problem_of
from strata.api.rights import check_right, require_rights
from strata.api.routes import HANDLERS
from strata.api.services import Services, provide_who

_DESCRIPTION = """Strata's REST interface. Every error is `application/problem+json`: what was wrong, where, what to do.
Lists are paged by an opaque cursor. `HEAD` is answered wherever `GET` is, except on `/v1/watch`."""


def create_litestar(services: Services) -> Litestar:
    """The application without its front: what knows the routes and their documentation."""
    services.schema = openapi_schema()
    app = Litestar(
        route_handlers=HANDLERS,
        guards=[check_right],
        dependencies=_dependencies(services),
        exception_handlers={Exception: _to_problem},
        openapi_config=None,
        request_max_body_size=services.limits.body,
        logging_config=None,
    )
    require_rights(app, services.schema)
    return app


def openapi_schema() -> dict[str, Any]:
    """The OpenAPI 3.1 document of all routes."""
    # An application with documentation also gets a documentation site, which we do not serve: hence one of its own.
    documented = Litestar(
        route_handlers=HANDLERS,
        dependencies=_dependencies(None),
        openapi_config=OpenAPIConfig(
            title="Strata",
            version=strata.__version__,
            description=_DESCRIPTION,
            components=Components(
                security_schemes={
                    "token": SecurityScheme(type="http", scheme="bearer", description="strata_<id>_<secret>"),
                    "certificate": SecurityScheme(type="mutualTLS", description="From Strata's own CA."),
                }
            ),
            security=[{"token": []}, {"certificate": []}],
            use_handler_docstrings=True,
        ),
        logging_config=None,
    )
    return documented.openapi_schema.to_schema()


def _dependencies(services: Services | None) -> dict[str, Provide]:
    """What handlers may ask for by name; without services, only the names."""
    return {
        "facade": Provide(lambda: services and services.facade, sync_to_thread=False),
        "services": Provide(lambda: services, sync_to_thread=False),
        "who": Provide(provide_who, sync_to_thread=False),
    }


def create_app(services: Services, door: Door, litestar: Litestar | None = None) -> Front:
    """The application for one door. Give both doors the same ``litestar`` to build that once."""
    return Front(litestar or create_litestar(services), services, door)


def _to_problem(request: AnyRequest, error: Exception) -> Response[Problem]:
    problem = problem_of(error, conditional=is_conditional(request))
    headers = dict(getattr(error, "headers", None) or {})
    if problem.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    body = msgspec.json.encode(problem)
    return Response(body, status_code=problem.status, media_type=MEDIA_TYPE, headers=headers)  # type: ignore[arg-type]
