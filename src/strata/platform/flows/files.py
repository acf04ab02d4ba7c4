"""Flows and systems as people write them: YAML, with times that have units; errors name file, line and column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta
from msgspec.structs import asdict

from strata.core.errors import BadRequest
from strata.core.input.yamltree import Document, documents
from strata.core.texts import In, NoteText
from strata.core.units import Seconds
from strata.platform.flows.records import MOST_STEPS, FlowName, FlowSpec, FlowStep, Stage, SystemSpec, check
from strata.platform.written import by_name, plain, times


class _Step(FlowStep, frozen=True, kw_only=True, omit_defaults=True):
    timeout: Seconds = msgspec.field(default_factory=lambda: Seconds(3600))


class WrittenFlow(In, frozen=True, kw_only=True):
    """A flow with its name."""

    name: FlowName
    steps: Annotated[tuple[_Step, ...], Meta(min_length=1, max_length=MOST_STEPS)]
    description: NoteText = ""


class _Stage(Stage, frozen=True, kw_only=True, omit_defaults=True):
    timeout: Seconds = msgspec.field(default_factory=lambda: Seconds(3600))


class WrittenSystem(In, frozen=True, kw_only=True):
    """A system."""

    stages: Annotated[tuple[_Stage, ...], Meta(min_length=1, max_length=MOST_STEPS)]


def read_flows(text: str, source: str) -> dict[str, FlowSpec]:
    """The flows in a text, by name."""

    def read(document: Document) -> tuple[str, FlowSpec]:
        written = document.read(WrittenFlow, times)
        steps = plain_steps(document, written.steps)
        return written.name, FlowSpec(steps=steps, description=written.description)

    return by_name(text, source, "flow", read)


def read_system(text: str, source: str) -> SystemSpec:
    """The system in a text."""
    found = documents(text, source)
    if len(found) != 1:
        raise BadRequest("holds one document, with stages", where=source)
    written = found[0].read(WrittenSystem, times)
    return SystemSpec(stages=plain_stages(found[0], written.stages))


def plain_steps(document: Document, written: Sequence[FlowStep]) -> tuple[FlowStep, ...]:
    """The steps of a document, checked."""
    steps = tuple(plain(document, asdict(step), FlowStep, f"steps[{at}]") for at, step in enumerate(written))
    check(steps, {step.name: document.place(f"steps[{at}]") for at, step in enumerate(steps)})
    return steps


def plain_stages(document: Document, written: Sequence[Stage]) -> tuple[Stage, ...]:
    """The stages of a document."""
    return tuple(plain(document, asdict(stage), Stage, f"stages[{at}]") for at, stage in enumerate(written))
