"""Projects."""

from __future__ import annotations

from strata.api.named import Named
from strata.jobs.projects.service import ProjectService

_PROJECTS = Named("/v1/projects", ProjectService, "project", tag="projects", current=ProjectService.show)
_PROJECTS.list(ProjectService.all)
_PROJECTS.show(ProjectService.show)
_PROJECTS.put(ProjectService.put)
_PROJECTS.delete(ProjectService.delete)
