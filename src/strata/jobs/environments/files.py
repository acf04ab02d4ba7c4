"""Environments as people write them: YAML documents, with names."""

from __future__ import annotations

from strata.core.input.yamltree import Document
from strata.jobs.environments.records import EnvironmentName, EnvironmentSpec
from strata.platform.written import by_name


class WrittenEnvironment(EnvironmentSpec, frozen=True, kw_only=True, omit_defaults=True):
    """An environment with its name."""

    name: EnvironmentName


def read_environments(text: str, source: str) -> dict[str, EnvironmentSpec]:
    """The environments in a text, by name; ``BadRequest`` says what is wrong, with line and column."""

    def read(document: Document) -> tuple[str, EnvironmentSpec]:
        written = document.read(WrittenEnvironment)
        return written.name, EnvironmentSpec.of(written)

    return by_name(text, source, "environment", read)
