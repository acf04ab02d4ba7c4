"""Projects."""

from __future__ import annotations

from litestar import Response, delete, get, put
from litestar.params import JSONBody

from strata.api.http import AnyRequest, expected_revision, revision_tag
from strata.api.rights import needs
from strata.api.services import Asked, NamePath
from strata.core.texts import ListOf
from strata.jobs.projects import records as a
from strata.jobs.projects.service import ProjectService

_TAG = "projects"


@get("/v1/projects", tags=[_TAG], **needs("read", "project"))
async def list_projects(ask: Asked) -> ListOf[a.ProjectView]:
    """All projects, with what they use."""
    return await ask.of(ProjectService).all(ask.who)


@get("/v1/projects/{name:str}", tags=[_TAG], **needs("read", "project", 404))
async def show_project(ask: Asked, name: NamePath) -> Response[a.ProjectView]:
    """One of them."""
    view = await ask.of(ProjectService).show(ask.who, name)
    return Response(view, headers={"ETag": revision_tag(view.revision)})


@put("/v1/projects/{name:str}", tags=[_TAG], **needs("change", "project", 404, 409, 412, body=True))
async def put_project(
    request: AnyRequest, ask: Asked, name: NamePath, data: JSONBody[a.ProjectSpec]
) -> Response[a.ProjectView]:
    """Make a project, or change one. Jobs that are under way go on. `If-Match` is honoured."""
    expected = await expected_revision(request, lambda: ask.of(ProjectService).show(ask.who, name))
    view = await ask.of(ProjectService).put(ask.who, name, data, expected)
    return Response(view, headers={"ETag": revision_tag(view.revision)})


@delete("/v1/projects/{name:str}", tags=[_TAG], **needs("delete", "project", 404, 409, 412))
async def delete_project(request: AnyRequest, ask: Asked, name: NamePath) -> None:
    """Remove one: its jobs are no longer counted. `If-Match` is honoured."""
    expected = await expected_revision(request, lambda: ask.of(ProjectService).show(ask.who, name))
    await ask.of(ProjectService).delete(ask.who, name, expected)


HANDLERS = [list_projects, show_project, put_project, delete_project]
