"""Flows and systems as people write them: YAML, with times that have units; errors name file, line and column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from strata.core.errors import BadRequest
from strata.core.input.forms import in_words
from strata.core.input.yamltree import Document, documents, told
from strata.core.texts import In, NoteText
from strata.core.units import Seconds, seconds
from strata.platform.flows.records import MOST_STEPS, FlowName, FlowSpec, FlowStep, Stage, SystemSpec, check

_T = TypeVar("_T", bound=msgspec.Struct)


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
    found: dict[str, FlowSpec] = {}
    for document in documents(text, source):
        written = document.read(WrittenFlow, _hook)
        if written.name in found:
            raise BadRequest(f"flow {written.name} is there twice", where=document.place("name"))
        steps = plain_steps(document, written.steps)
        found[written.name] = FlowSpec(steps=steps, description=written.description)
    return found


def read_system(text: str, source: str) -> SystemSpec:
    """The system in a text."""
    found = documents(text, source)
    if len(found) != 1:
        raise BadRequest("holds one document, with stages", where=source)
    written = found[0].read(WrittenSystem, _hook)
    return SystemSpec(stages=plain_stages(found[0], written.stages))


def plain_steps(document: Document, written: Sequence[FlowStep]) -> tuple[FlowStep, ...]:
    """The steps of a document, checked."""
    steps = tuple(_plain(document, f"steps[{at}]", step, FlowStep) for at, step in enumerate(written))
    check(steps, {step.name: document.place(f"steps[{at}]") for at, step in enumerate(steps)})
    return steps


def plain_stages(document: Document, written: Sequence[Stage]) -> tuple[Stage, ...]:
    """The stages of a document."""
    return tuple(_plain(document, f"stages[{at}]", stage, Stage) for at, stage in enumerate(written))


def _hook(kind: type[Any], value: Any) -> Any:
    return seconds(str(value))


def _plain(document: Document, path: str, written: msgspec.Struct, kind: type[_T]) -> _T:
    values = {name: getattr(written, name) for name in kind.__struct_fields__}
    try:
        return msgspec.convert({**values, "timeout": float(values["timeout"])}, kind)
    except msgspec.ValidationError as error:  # a time beyond its bounds: the one thing that was not checked yet
        said, below = told(error)
        raise BadRequest(in_words(said), where=document.place(f"{path}.{below}")) from None
