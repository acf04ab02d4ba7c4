"""Environments as people write them: YAML documents, with names."""

from __future__ import annotations

from strata.core.errors import BadRequest
from strata.core.input.yamltree import documents
from strata.jobs.environments.records import EnvironmentName, EnvironmentSpec


class WrittenEnvironment(EnvironmentSpec, frozen=True, kw_only=True, omit_defaults=True):
    """An environment with its name."""

    name: EnvironmentName


def read_environments(text: str, source: str) -> dict[str, EnvironmentSpec]:
    """The environments in a text, by name; ``BadRequest`` says what is wrong, with line and column."""
    found: dict[str, EnvironmentSpec] = {}
    for document in documents(text, source):
        written = document.read(WrittenEnvironment)
        if written.name in found:
            raise BadRequest(f"environment {written.name} is there twice", where=document.place("name"))
        found[written.name] = EnvironmentSpec.of(written)
    return found
