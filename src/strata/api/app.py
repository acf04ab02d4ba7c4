"""The API as one ASGI application: routes, their rights, OpenAPI, errors. ``create_app`` builds it over a facade."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import msgspec
from litestar import Litestar, Response
from litestar.di import Provide
from litestar.handlers import HTTPRouteHandler
from litestar.openapi import OpenAPIConfig
from litestar.openapi.spec import Components, SecurityScheme

import strata
from strata.api.front import Door, Front
from strata.api.http import AnyRequest, StrictRequest, is_conditional, taken_types
from strata.api.named import routes_of
from strata.api.problem import MEDIA_TYPE, Problem, problem_of
from strata.api.rights import check_right, require_rights
from strata.api.services import Limits, provide_ask
from strata.fleet.services import Services
from strata.rooms import route_modules

_DESCRIPTION = """Strata's REST interface. Every error is `application/problem+json`: what was wrong, where, what to do.
Lists are paged by an opaque cursor. `HEAD` is answered wherever `GET` is, except on `/v1/watch`."""


_LIST = re.compile(r"\bListOf(?:_(?:\w+\.)*|\[)(\w+?)[_\]](?!\w)")
_DEPENDENCIES = {"ask": Provide(provide_ask)}


def routes() -> list[HTTPRouteHandler]:
    """The routes of all rooms."""
    return [route for module in route_modules() for route in routes_of(module)]


@cache
def create_litestar(body_limit: int) -> Litestar:
    """The application behind the front. It holds no service: each request brings the one that it is for."""
    app = Litestar(
        route_handlers=routes(),
        request_class=StrictRequest,
        guards=[check_right],
        dependencies=_DEPENDENCIES,
        exception_handlers={Exception: _to_problem},
        openapi_config=None,
        request_max_body_size=body_limit,
        logging_config=None,
    )
    # Made when somebody first asks for it: it takes as long as everything else in the start of the service.
    app.state.openapi = openapi_schema
    require_rights(app)
    return app


@cache
def openapi_schema() -> dict[str, Any]:
    """The OpenAPI 3.1 document of all routes."""
    # An application with documentation also gets a documentation site, which we do not serve: hence one of its own.
    documented = Litestar(
        route_handlers=routes(),
        dependencies=_DEPENDENCIES,
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
    schema: dict[str, Any] = _in_our_words(documented.openapi_schema.to_schema())
    return schema


def _in_our_words(part: Any) -> Any:
    """Litestar writes a union as ``oneOf``; ours may overlap (a page of whole nodes is one of partial nodes too). It
    names a list of a kind by the module that has the kind, which is nothing to clients."""
    if isinstance(part, dict):
        return {"anyOf" if key == "oneOf" else _named(key): _in_our_words(value) for key, value in part.items()}
    if isinstance(part, list):
        return [_in_our_words(item) for item in part]
    return _named(part) if isinstance(part, str) else part


def _named(text: str) -> str:
    return _LIST.sub(lambda found: f"ListOf{found[1][0].upper()}{found[1][1:]}", text)


def create_app(services: Services, door: Door) -> Front:
    """The application for one door."""
    return Front(create_litestar(services.get(Limits).body), services, door)


def _to_problem(request: AnyRequest, error: Exception) -> Response[Problem]:
    problem = problem_of(error, conditional=is_conditional(request), taken=taken_types(request))
    headers = dict(getattr(error, "headers", None) or {})
    if problem.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    body = msgspec.json.encode(problem)
    return Response(body, status_code=problem.status, media_type=MEDIA_TYPE, headers=headers)  # type: ignore[arg-type]
