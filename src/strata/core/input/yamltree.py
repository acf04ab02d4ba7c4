"""YAML read as text, lists and mappings: ``off`` stays the word "off", and a key that occurs twice is an error.

A ``Document`` also knows where each of its values stands, and can be read into a typed record: what is wrong with it is
then said with file, line and column. ``documents`` reads files that hold many, however large and whoever wrote them.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any, TypeVar

import msgspec
import yaml

from strata.core.errors import BadRequest
from strata.core.input.forms import in_words

_LONGEST = 1_000_000
_DEEPEST = 50
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]")
_UNKNOWN_KEY = re.compile(r"Object contains unknown field `(.*)`\Z", re.DOTALL)
_T = TypeVar("_T")


def tree(text: str, source: str) -> Any:
    """What ``text`` says, every scalar as text; nothing at all is ``""``. Raises ``BadRequest`` that names the line."""
    return Document(text, source).data


class Document:
    """A YAML text. ``data`` is what it says, every scalar as text; nothing at all is ``""``."""

    def __init__(self, text: str, source: str) -> None:
        """Raises ``BadRequest`` that names the line."""
        self.source = source
        if len(text) > _LONGEST:
            raise BadRequest(f"{len(text)} characters; at most {_LONGEST} are read", where=source)
        with _told_apart(source):
            loader = _Loader(text)
            root: yaml.Node | None = loader.get_single_node()
            found = loader.construct_document(root) if root is not None else None
        self._root: Callable[[], yaml.Node | None] = lambda: root
        self.data: Any = "" if found is None else found

    @classmethod
    def of(cls, data: Any, source: str, root: Callable[[], yaml.Node | None]) -> Document:
        """One that was read already; ``root`` gives the tree that it was read from, for places."""
        found = cls.__new__(cls)
        found.source, found._root, found.data = source, root, data
        return found

    @property
    def line(self) -> int:
        """The line that it begins in."""
        root = self._root()
        return root.start_mark.line + 1 if root is not None else 1

    def saying(self, data: Any) -> Document:
        """The same, with every value at its place, but otherwise written."""
        return Document.of(data, self.source, self._root)

    def place(self, path: str, key: str = "") -> str:
        """Where the value at ``path`` stands (``hardware.syslog``, ``models[0]``), or the key ``key`` below it. Where
        there is no such value: the place of the nearest one above it."""
        found = self._find([step[1] or step[2] for step in _STEP.finditer(path)], key)
        return self._marked(found.start_mark) if found is not None else self.source

    def holds(self, path: str) -> bool:
        """Whether there is something at ``path``."""
        value = self.data
        for step in path.split("."):
            if not isinstance(value, dict) or step not in value:
                return False
            value = value[step]
        return True

    def read(self, kind: type[_T], hook: Callable[[type[Any], Any], Any] | None = None) -> _T:
        """The document as a ``kind``. A key without a value says the same as no key. ``hook`` makes what msgspec does
        not know from text, and raises ``ValueError``."""
        try:
            return msgspec.convert(_filled(self.data), kind, strict=False, dec_hook=hook)
        except msgspec.ValidationError as error:
            said, path = told(error)
            unknown = _UNKNOWN_KEY.match(said)
            words = in_words(said, kind, path)
            if not unknown and isinstance(found := self._value(path), str) and repr(found) not in words:
                words = f"found {found[:60]!r}; it {words}" if words.startswith("must ") else f"{words}: {found[:60]!r}"
            place = self.place(path, unknown[1] if unknown else "")
            raise BadRequest(words, where=f"{place}: {path}" if path else place) from None

    def _value(self, path: str) -> Any:
        """None: the path does not lead to one value. Of what is below any key, msgspec does not say below which."""
        value = self.data
        for step in _STEP.finditer(path):
            try:
                value = value[step[1]] if step[1] else value[int(step[2])]
            except (KeyError, IndexError, TypeError):
                return None
        return value

    def _find(self, steps: list[str], key: str = "") -> yaml.Node | None:
        node = self._root()
        for step in steps:
            if isinstance(node, yaml.SequenceNode):
                below = node.value[int(step)] if step.isdigit() and int(step) < len(node.value) else None
            else:
                below = next((value for name, value in _pairs(node) if name.value == step), None)
            if below is None:
                return node
            node = below
        return next((name for name, _ in _pairs(node) if name.value == key), node) if key else node

    def _marked(self, mark: yaml.Mark) -> str:
        return _marked(self.source, mark)


def documents(text: str, source: str) -> list[Document]:
    """Every document of ``text`` that says something; ``BadRequest`` names the line. Files that others wrote are read
    by this: an alias is an error (a few lines of them can stand for gigabytes), and nesting has an end."""
    with _told_apart(source):
        roots = [root for root in _roots(text) if not _says_nothing(root)]
        return [Document.of(_plain(root), source, partial(_itself, root)) for root in roots]


def read_before(text: str, source: str, found: Sequence[Any]) -> list[Document]:
    """The documents of a text of which it is known what they say. It is read again only when a place is asked for."""
    roots = cache(lambda: [root for root in _roots(text) if not _says_nothing(root)])
    return [Document.of(data, source, partial(_nth, roots, number)) for number, data in enumerate(found)]


def _itself(root: yaml.Node) -> yaml.Node:
    return root


def _nth(roots: Callable[[], list[yaml.Node]], number: int) -> yaml.Node:
    return roots()[number]


def _roots(text: str) -> Iterator[yaml.Node]:
    """The documents as trees. Made of events: the C library's own composer overruns the stack where nesting is deep."""
    loader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)(text)
    above: list[yaml.CollectionNode] = []
    keys: list[yaml.Node | None] = []
    while loader.check_event():
        event: Any = loader.get_event()
        mark: Any = event.start_mark
        node: yaml.Node
        if isinstance(event, yaml.ScalarEvent):
            node = yaml.ScalarNode("", event.value, mark)
        elif isinstance(event, yaml.SequenceStartEvent | yaml.MappingStartEvent):
            if len(above) == _DEEPEST:
                raise yaml.MarkedYAMLError(None, None, f"nested more than {_DEEPEST} deep", mark)
            kind = yaml.SequenceNode if isinstance(event, yaml.SequenceStartEvent) else yaml.MappingNode
            above.append(kind("", [], mark))
            keys.append(None)
            continue
        elif isinstance(event, yaml.CollectionEndEvent):
            node = above.pop()
            keys.pop()
        elif isinstance(event, yaml.AliasEvent):
            raise yaml.MarkedYAMLError(None, None, "an alias (*name) is not read: write it out", mark)
        else:
            continue
        if not above:
            yield node
        elif isinstance(above[-1], yaml.SequenceNode):
            above[-1].value.append(node)
        elif keys[-1] is None:
            keys[-1] = node
        else:
            above[-1].value.append((keys[-1], node))
            keys[-1] = None


def _says_nothing(root: yaml.Node) -> bool:
    return isinstance(root, yaml.ScalarNode) and not root.value


def _plain(node: yaml.Node) -> Any:
    """What a node says: text, lists and mappings."""
    if isinstance(node, yaml.ScalarNode):
        return node.value
    if isinstance(node, yaml.SequenceNode):
        return [_plain(one) for one in node.value]
    assert isinstance(node, yaml.MappingNode)
    _check_keys(node)
    return {key.value: _plain(value) for key, value in node.value}


@contextlib.contextmanager
def _told_apart(source: str) -> Iterator[None]:
    """What YAML's own errors say, as ``BadRequest`` with the place."""
    try:
        yield
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        raise BadRequest(f"not YAML: {error.problem}", where=_marked(source, mark) if mark else source) from None
    except (yaml.YAMLError, RecursionError) as error:
        raise BadRequest(f"not YAML: {str(error)[:120]}", where=source) from None


def _marked(source: str, mark: yaml.Mark) -> str:
    return f"{source}, line {mark.line + 1}, column {mark.column + 1}"


def told(error: msgspec.ValidationError) -> tuple[str, str]:
    """What msgspec says is wrong, and at which path (``hardware.syslog``; empty: the whole; of a key, its mapping)."""
    said, _, path = str(error).partition(" - at `")
    return said, path.rstrip("`").removeprefix("key` in `").removeprefix("$").removeprefix(".")


def _pairs(node: yaml.Node | None) -> list[tuple[yaml.Node, yaml.Node]]:
    return node.value if isinstance(node, yaml.MappingNode) else []


def _filled(data: Any) -> Any:
    """Without keys that have no value, in the mapping and in those right below it."""
    if not isinstance(data, dict):
        return data or {}
    return {key: _filled_section(value) for key, value in data.items() if value != ""}


def _filled_section(data: Any) -> Any:
    return {key: value for key, value in data.items() if value != ""} if isinstance(data, dict) else data


class _Loader(yaml.BaseLoader):
    """Makes text, lists and mappings; a key that occurs twice is an error, not the last one's win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        _check_keys(node)
        return super().construct_mapping(node, deep)


def _check_keys(node: yaml.MappingNode) -> None:
    seen: set[str] = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise yaml.MarkedYAMLError(None, None, "a key must be plain text", key.start_mark)
        if key.value in seen:
            raise yaml.MarkedYAMLError(None, None, f"key {key.value[:60]!r} occurs twice", key.start_mark)
        seen.add(key.value)
