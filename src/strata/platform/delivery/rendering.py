"""Renders templates: in a process of its own with limits (``python -m`` this module), as others wrote them.

A template is rendered once for every set of values that it uses: one that only asks for ``node.role`` once a role, one
that asks for nothing of the node once. Knows nothing of overlays, and nothing of the fleet.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any

import msgspec

from strata.core.errors import BadRequest
from strata.core.extras import needs
from strata.platform.delivery.records import MOST_TEXT
from strata.provisioning import worker

if TYPE_CHECKING:
    from jinja2 import nodes
    from jinja2.sandbox import ImmutableSandboxedEnvironment

LIMITS = worker.Limits(memory=2 << 30, cpu=120, wall=180, file=1 << 20)
MOST_ANSWER = 512 << 20
MOST_ALL = 256 << 20
"""Bytes of all that templates come to, for all nodes together."""
MOST_RANGE = 10_000
MOST_SECONDS = 2.0
"""Processor time of one rendering."""
_DEEPEST = 100
"""How deeply expressions and blocks of a template may be nested."""
NODE_FIELDS = ("name", "location", "nid", "role", "architecture", "labels", "groups", "interfaces")
"""What templates can ask of ``node``."""
_BOUNDLESS = frozenset(("center", "expandtabs", "format", "format_map", "ljust", "rjust", "zfill"))
"""Methods of texts that make gigabytes of a few characters."""
_NO_FILTERS = ("center", "format", "pprint", "random")
"""The same as filters, and those whose answer is another every time."""


class Template(msgspec.Struct, frozen=True, kw_only=True):
    """A text to render."""

    place: str
    """What it is called in errors: its file, or where it stands in a document."""
    text: str
    inline: bool = False
    """It stands in a document: lines are counted from where it begins."""


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One template for some nodes, by their numbers."""

    template: int
    vars: int
    nodes: tuple[int, ...]


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is to be rendered."""

    templates: tuple[Template, ...]
    vars: tuple[Mapping[str, Any], ...]
    nodes: tuple[Mapping[str, Any], ...]
    tasks: tuple[Task, ...]
    strict: bool = True
    """What cannot be rendered for one node is an error; else that node has failed, and the others have not."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Different texts, and for every task which of them its nodes get; one for all of them where it is the same."""

    texts: tuple[str, ...]
    tasks: tuple[tuple[int, ...], ...]
    """-1: it cannot be rendered for that node."""
    failed: Mapping[int, str] = {}
    """Number of a node → why."""


async def render(question: Question, about: str) -> Answer:
    """Have it rendered; ``BadRequest`` names template, line and node."""
    if not question.tasks:
        return Answer(texts=(), tasks=())
    return await worker.ask(__name__, question, Answer, LIMITS, about=about, most=MOST_ANSWER)


class _TooLong(BaseException):
    """Not an ``Exception``: nothing in a template may take it for its own."""


class Renderer:
    """Renders what a question asks for. Runs in the worker."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._environment = _environment()
        self._texts: dict[str, int] = {}
        self._failed: dict[int, str] = {}
        self._size = 0

    def answer(self) -> Answer:
        """All of it; ``BadRequest`` says what is wrong with the first that cannot be rendered."""
        found = tuple(self._task(task) for task in self._question.tasks)
        return Answer(texts=tuple(self._texts), tasks=found, failed=self._failed)

    def _task(self, task: Task) -> tuple[int, ...]:
        template = self._question.templates[task.template]
        with _told(template, ""):
            source = self._environment.parse(template.text)
            uses = _uses(source)
            compiled = self._environment.from_string(source)
        if not uses:
            first = self._question.nodes[task.nodes[0]]
            return (self._rendered(template, compiled, {}, task.vars, first["name"]),)
        kept: dict[bytes, int] = {}
        why: dict[bytes, str] = {}
        found = []
        for number in task.nodes:
            node = {field: self._question.nodes[number][field] for field in uses}
            key = msgspec.json.encode(node, order="deterministic")
            if key not in kept:
                name = self._question.nodes[number]["name"]
                try:
                    kept[key] = self._rendered(template, compiled, node, task.vars, name)
                except BadRequest as error:
                    if self._question.strict:
                        raise
                    kept[key], why[key] = -1, str(error)
            if key in why:
                self._failed[number] = why[key]
            found.append(kept[key])
        return tuple(found)

    def _rendered(self, template: Template, compiled: Any, node: Mapping[str, Any], vars_: int, name: str) -> int:
        given = {"node": _Node(node), "vars": self._question.vars[vars_]}
        pieces: list[str] = []
        size = 0
        with _told(template, f" (for node {name})", compiled), _limited():
            written = compiled.root_render_func(compiled.new_context(given))
            for piece in written:
                size += len(piece)
                if size > MOST_TEXT:
                    line = compiled.get_corresponding_lineno(written.gi_frame.f_lineno)
                    raise _AtLine(f"comes to more than {MOST_TEXT >> 10} KiB", line)
                pieces.append(piece)
        text = "".join(pieces)
        if text not in self._texts:
            self._size += len(text)
            if self._size > MOST_ALL:
                raise BadRequest(f"all files of all nodes come to more than {MOST_ALL >> 20} MiB", where=template.place)
            self._texts[text] = len(self._texts)
        return self._texts[text]


class _Node:
    """What a template sees of a node: its fields, and nothing else."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.__dict__.update(fields)

    def __str__(self) -> str:
        return str(self.__dict__["name"])


def _environment() -> ImmutableSandboxedEnvironment:
    with needs("jinja2", "delivery", "rendering templates", BadRequest):
        import jinja2.debug  # noqa: F401 - what it imports by itself when something goes wrong
        from jinja2 import StrictUndefined
        from jinja2.exceptions import SecurityError
        from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Sandbox(ImmutableSandboxedEnvironment):
        """Where arithmetic cannot make a text or a number that is larger than a file may be."""

        intercepted_binops = frozenset(("*", "**", "%"))

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            if operator == "**":
                raise SecurityError("there is no ** in templates")
            if operator == "%" and isinstance(left, str):
                raise SecurityError("texts are not formatted by %: write {{ them }} out, or join them by ~")
            if operator == "*":
                for one, other in ((left, right), (right, left)):
                    if isinstance(one, int) and hasattr(other, "__len__") and len(other) * one > MOST_TEXT:
                        raise SecurityError(f"* makes more than {MOST_TEXT >> 10} KiB")
                if isinstance(left, int) and isinstance(right, int) and abs(left) > 2**63:
                    raise SecurityError("a number of more than 64 bits")
            return super().call_binop(context, operator, left, right)

        def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
            return super().is_safe_attribute(obj, attr, value) and attr not in _BOUNDLESS

    found = Sandbox(
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finished,
    )
    found.globals = {"range": _range}
    for name in _NO_FILTERS:
        del found.filters[name]
    return found


def _finished(value: Any) -> Any:
    """What is written is the same wherever it is rendered: no object whose text is its place in memory."""
    from jinja2 import Undefined

    if value is None or isinstance(value, str | int | float | list | tuple | dict | range | _Node | Undefined):
        return value
    raise TypeError(f"a {type(value).__name__} cannot be written into a file")


def _range(*bounds: int) -> range:
    found = range(*bounds)
    if len(found) > MOST_RANGE:
        raise BadRequest(f"a range of {len(found)}; at most {MOST_RANGE}")
    return found


def _uses(source: nodes.Template) -> tuple[str, ...]:
    """The fields of the node that a template asks for."""
    from jinja2 import nodes

    _check_depth(source)
    for other in source.find_all((nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)):
        raise _AtLine("a template stands alone: there is no include, import or extends", other.lineno)
    found: set[str] = set()
    plain = 0
    asked: list[nodes.Getattr | nodes.Getitem] = [*source.find_all(nodes.Getattr), *source.find_all(nodes.Getitem)]
    for one in asked:
        if not isinstance(one.node, nodes.Name) or one.node.name != "node":
            continue
        if isinstance(one, nodes.Getitem) and not isinstance(one.arg, nodes.Const):
            continue
        name = one.attr if isinstance(one, nodes.Getattr) else one.arg.value  # type: ignore[attr-defined]
        if name not in NODE_FIELDS:
            raise _AtLine(f"a node has no {str(name)[:40]!r}; it has {', '.join(NODE_FIELDS)}", one.lineno)
        found.add(str(name))
        plain += 1
    if plain < sum(name.name == "node" for name in source.find_all(nodes.Name)):
        return NODE_FIELDS  # it hands the node on, so it may use all of it
    return tuple(field for field in NODE_FIELDS if field in found)


def _check_depth(source: nodes.Template) -> None:
    """So that compiling it does not overrun the stack."""
    level: list[nodes.Node] = [source]
    for _ in range(_DEEPEST):
        level = [below for one in level for below in one.iter_child_nodes()]
        if not level:
            return
    raise _AtLine(f"nested more than {_DEEPEST} deep", level[0].lineno)


class _AtLine(Exception):
    def __init__(self, what: str, line: int) -> None:
        super().__init__(what)
        self.line = line


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    """End a rendering that takes too long."""

    def over(number: int, frame: FrameType | None) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGVTALRM, over)
    signal.setitimer(signal.ITIMER_VIRTUAL, MOST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@contextlib.contextmanager
def _told(template: Template, whom: str, compiled: Any = None) -> Iterator[None]:
    """What goes wrong in a template, as ``BadRequest`` with its place and line."""
    from jinja2.exceptions import SecurityError, TemplateError, TemplateSyntaxError, UndefinedError

    hint = ""
    try:
        yield
        return
    except _AtLine as error:
        what, line = str(error), error.line
    except TemplateSyntaxError as error:
        what, line = error.message or "is no template", error.lineno
    except BadRequest as error:
        what, line = error.detail, _line(error, compiled)
    except SecurityError as error:
        what, line = str(error), _line(error, compiled)
    except UndefinedError as error:
        what, line = str(error), _line(error, compiled)
        hint = "for what may be missing: {{ x | default('…') }}"
    except _TooLong as error:
        what, line = f"takes more than {MOST_SECONDS:g} s to render", _line(error, compiled)
    except MemoryError as error:
        what, line = "takes more memory than there is", _line(error, compiled)
    except RecursionError as error:
        what, line = "calls itself without end, or is nested too deep", _line(error, compiled)
    except (TemplateError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        what, line = f"{type(error).__name__}: {str(error)[:200]}", _line(error, compiled)
    at = f"{template.place}, line {line}" + (" of the template" if template.inline else "") if line else template.place
    raise BadRequest(f"{what[:300]}{whom}", where=at, hint=hint)


def _line(error: BaseException, compiled: Any) -> int:
    """The line of the template that an error comes from: the innermost; 0 where none is known."""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if compiled is not None and trace.tb_frame.f_code.co_filename == "<template>":
            line = compiled.get_corresponding_lineno(trace.tb_lineno)
        trace = trace.tb_next
    return line


def answer(question: Question) -> Answer:
    """What the worker does."""
    return Renderer(question).answer()


if __name__ == "__main__":
    with contextlib.suppress(BadRequest):
        _environment()  # as nobody, it may not be able to read the library any more; where it is missing, that is told
    worker.answer(Question, answer, nobody=lambda _: True)
