"""Projects."""

from __future__ import annotations

from strata.api.named import Named
from strata.jobs.projects.service import ProjectService

_PROJECTS = Named("/v1/projects", ProjectService, "project", tag="projects", current=ProjectService.show)
_PROJECTS.list(ProjectService.all, "All projects, with what they use.")
_PROJECTS.show(ProjectService.show, "One of them.")
_PROJECTS.put(
    ProjectService.put, "Make a project, or change one. Jobs that are under way go on. `If-Match` is honoured."
)
_PROJECTS.delete(ProjectService.delete, "Remove one: its jobs are no longer counted. `If-Match` is honoured.")
