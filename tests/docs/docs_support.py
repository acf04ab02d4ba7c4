"""Reads the pages: their links, and the commands in their blocks with what is said about them.

A block is fenced with ``console`` (lines that begin with ``$ `` are commands, the rest is what they print) or ``sh``
(all lines are commands). Comments on the lines before it may say:

- ``run by: tests/FILE.py::TEST``, where this test takes the commands from here (``taken_from_pages``) and runs them; or
  ``run by: make TARGET`` (``TARGETS``), which does so, too;
- ``exit: CODE`` of each command, if it is not 0;
- ``only: CLUSTER`` where a page is for several kinds of clusters;
- ``on: KIND``: what runs when it is run, where that is not what the rest of the page is run beside;
- ``first: COMMANDS``: what the reader of the page has done before, or has anyway; they may stand on several lines;
- ``here: WORDS = OTHERS``: what stands for words of the page that are the reader's own, such as an id;
- ``typed: LINE``: what the reader answers each of them; ``stopped: SECONDS``: after which the reader interrupts them;
  ``seen: WORDS``: what the reader waits for the last one to say, and ends it then;
- ``as: ACCOUNT``: who runs them, if not whoever runs the rest (see ``person`` in ``docs_desk``).

``service: KIND`` anywhere in a page says what runs when its commands are run (see ``docs_desk``).
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"])
TUTORIAL = DOCS / "tutorial" / "first-fleet.md"
ZERO = DOCS / "tutorial" / "zero-to-cluster.md"
CLUSTERS = ("virtual", "simulated")
"""What that page may be run on."""
SIMULATED = "simulated"
"""What pages are run beside that do not say it."""
TARGETS = ("make test-deb", "make test-fresh")
"""They take what they run from the blocks that name them."""
MARK = "@@@ "
RUN = [*sorted(page for kind in ("how-to", "explanation") for page in (DOCS / kind).glob("*.md")), ROOT / "README.md"]
"""Pages whose commands are run, beside the tutorials."""

_SAID = ("run by", "exit", "only", "on", "first", "here", "typed", "stopped", "seen", "as")
_COMMENT = re.compile(rf"<!-- ({'|'.join(_SAID)}):\s*(.*?)\s*-->\Z", re.DOTALL)
_SERVICE = re.compile(r"^<!-- service: (\w+) -->$", re.MULTILINE)
_FENCE = re.compile(r"```(\w*)\s*\Z")
_LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")


class Command(NamedTuple):
    """A command line, and what the page shows that it prints (nothing: the page does not say)."""

    text: str
    shown: tuple[str, ...]


class Block(NamedTuple):
    """Commands that stand together."""

    page: Path
    line: int
    commands: tuple[Command, ...]
    run_by: str
    """The test that runs it instead, ``FILE::NAME``, or the target of make; empty: none."""
    exit: int
    only: str
    """The kind of cluster that it is for; empty: any."""
    service: str
    """What is to run beside it (see ``docs_desk``)."""
    first: tuple[str, ...]
    """Commands that come before it."""
    here: tuple[tuple[str, str], ...]
    """Words of the page, and what stands for them."""
    typed: tuple[str, ...]
    stopped: float
    """Seconds after which each is interrupted; 0: each ends by itself."""
    seen: str
    """What the last says before it is ended; empty: it ends by itself."""
    person: str
    """The account that runs them; empty: that of whoever runs the rest."""

    @property
    def place(self) -> str:
        """For messages."""
        return f"{self.page.name}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of commands of a page, in order."""
    text = page.read_text(encoding="utf-8")
    found = _SERVICE.search(text)
    service = found[1] if found else SIMULATED
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        fence = _FENCE.match(lines[number])
        if not fence:
            number += 1
            continue
        end = next(n for n in range(number + 1, len(lines)) if lines[n].startswith("```"))
        if fence[1] in ("console", "sh"):
            said = _said(lines[:number])
            yield Block(
                page,
                number + 1,
                tuple(_commands(fence[1], lines[number + 1 : end])),
                next(iter(said["run by"]), ""),
                int(next(iter(said["exit"]), 0)),
                next(iter(said["only"]), ""),
                next(iter(said["on"]), service),
                tuple(said["first"]),
                tuple((words, others) for words, _, others in (one.partition(" = ") for one in said["here"])),
                tuple(said["typed"]),
                float(next(iter(said["stopped"]), 0)),
                next(iter(said["seen"]), ""),
                next(iter(said["as"]), ""),
            )
        number = end + 1


def _said(lines: list[str]) -> dict[str, list[str]]:
    """What the comments at the end of these lines say, in order, by what it is about."""
    said: dict[str, list[str]] = {kind: [] for kind in _SAID}
    end = len(lines)
    while end and lines[end - 1].endswith("-->"):
        begin = max(number for number in range(end) if lines[number].startswith("<!-- "))
        found = _COMMENT.match("\n".join(lines[begin:end]))
        if not found:
            break
        said[found[1]].insert(0, found[2])
        end = begin
    return said


def shown_files(page: Path) -> list[str]:
    """The blocks of a page that are no commands: files."""
    found = re.findall(r"^```(\w+)\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [text for kind, text in found if kind not in ("console", "sh")]


def _commands(kind: str, lines: list[str]) -> Iterator[Command]:
    if kind == "sh":
        yield from (Command(line, ()) for line in lines if line.strip())
        return
    starts = [number for number, line in enumerate(lines) if line.startswith("$ ")]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        yield Command(lines[start][2:], tuple(line for line in lines[start + 1 : end] if line.strip()))


def run_on(page: Path, cluster: str = "simulated", *, service: str | None = None) -> list[Block]:
    """The blocks of a page that are run on such a cluster beside such a service (None: any), in order."""
    found = (block for block in blocks(page) if not block.run_by)
    return [block for block in found if block.only in ("", cluster) and service in (None, block.service)]


def run_beside(service: str) -> list[Path]:
    """The pages that have commands to run beside such a service; ``ZERO`` brings up a fleet of its own."""
    pages = [*RUN, TUTORIAL] if service == SIMULATED else [*RUN, TUTORIAL, ZERO]
    return [page for page in pages if run_on(page, service=service)]


def script(run: Sequence[Block]) -> str:
    """A shell script of all commands, in one shell: it ends with 99 where one does not end as its block says.

    Before what a command prints comes a line that begins with ``MARK``.
    """
    lines = ["trap 'kill $(jobs -p) 2>/dev/null' EXIT"]
    for block in run:
        for first in block.first:
            lines += [f"{{\n{first}\n}} || {{ echo {shlex.quote(f'before {block.place}: {first}')} failed; exit 99; }}"]
        for command in block.commands:
            lines += [f"cat <<'@@'\n\n{MARK}{block.place}: {command.text}\n@@", as_run(command.text, block), "code=$?"]
            lines.append(f'[ $code = {block.exit} ] || {{ echo "exit code $code, not {block.exit}"; exit 99; }}')
    return "\n".join(lines)


def as_run(text: str, block: Block) -> str:
    """A command of a block as it is run: with what stands for the reader's own words, typed, and stopped."""
    last = text == block.commands[-1].text
    text = replaced(text, block)
    if block.person:
        text = f"person {block.person} {shlex.quote(text)}"
    if block.seen and last:
        text = f"seeing {shlex.quote(block.seen)} {text}"
    if block.typed:
        text = f"typing {' '.join(map(shlex.quote, block.typed))} -- {text}"
    if block.stopped:
        # Interrupted, as a person does, is how it is to end: 124 says that it was, 130 that it said so itself.
        text = f"timeout -s INT {block.stopped:g} bash -c {shlex.quote('exec ' + text)}; [ $? = 124 ]"
    return text


def differences(run: Sequence[Block], printed: str) -> list[str]:
    """Where what such a script printed is not like what the page shows."""
    commands = [command for block in run for command in block.commands]
    texts = printed.split(MARK)[1:]
    if len(texts) != len(commands):
        return [f"{len(texts)} of {len(commands)} commands were run"]
    compared = ((unlike(command.shown, text), text) for command, text in zip(commands, texts, strict=True))
    return [f"{different} in\n{text}" for different, text in compared if different]


def unlike(shown: Sequence[str], printed: str) -> str:
    """How what was printed differs from what a page shows; empty: it is alike.

    Numbers, ids and spaces do not matter. Which lines come may depend on time: headings must be there, and one more.
    """
    found = {_masked(line) for line in printed.splitlines()}
    headings = [line for line in shown if re.fullmatch(r"[A-Z#][A-Z ]+", line)]
    missing = [line for line in headings if _masked(line) not in found]
    if missing:
        return f"no heading {missing[0]!r}"
    rest = [line for line in shown if line not in headings]
    if rest and not any(_masked(line) in found for line in rest):
        return f"nothing like {rest[0]!r}"
    return ""


def _masked(line: str) -> str:
    return " ".join(re.sub(r"\b[0-9a-f]{16}\b|\d+", "0", line).split())


def replaced(text: str, block: Block) -> str:
    """A command of a block with what stands for the reader's own words."""
    for words, others in block.here:
        text = text.replace(words, others)
    return text


def claimed(runner: str) -> list[Block]:
    """All blocks that say ``run by:`` this, in the order of the pages."""
    return [block for page in PAGES for block in blocks(page) if block.run_by == runner]


def taken_from_pages(runner: str) -> list[str]:
    """The commands of all blocks that say ``run by:`` this (``tests/FILE.py::TEST``), as they are run."""
    found = [as_run(command.text, block) for block in claimed(runner) for command in block.commands]
    assert found, f"no page says 'run by: {runner}'"
    return found


def not_taken(block: Block) -> str:
    """What is wrong with what a block says of who runs it; empty: that takes its commands from here."""
    if block.run_by in TARGETS:
        return ""
    path, _, name = block.run_by.partition("::")
    if not (ROOT / path).is_file():
        return f"there is no {path}"
    nodes = list(ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))))
    tests = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    if name not in tests or not name.startswith("test_"):
        return f"{path} has no test {name}"
    taken = {
        argument.value
        for node in nodes
        if isinstance(node, ast.Call) and ast.unparse(node.func) == taken_from_pages.__name__
        for argument in node.args
        if isinstance(argument, ast.Constant)
    }
    return "" if block.run_by in taken else f"{path} does not take what {name} runs from the pages"


_INNER = r"\$\((?:[^()]|\([^()]*\))*\)"
_REDIRECT = re.compile(r"\d?>&\d|\d?[<>]{1,2}\s*\S+")
_KEYWORDS = ("until", "while", "do", "then", "if")


def strata_words(command: str) -> Iterator[list[str]]:
    """The arguments of every ``strata`` in a command line. What the shell would put in is the word VALUE."""
    plain = re.sub(_INNER, "VALUE", re.sub(f'"{_INNER}"', "VALUE", command))
    lexer = shlex.shlex(_REDIRECT.sub(" ", plain), posix=True, punctuation_chars=";|&")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in (*lexer, ";"):
        if not set(word) <= set(";|&"):
            words += [] if not words and word in _KEYWORDS else [word]
            continue
        if words[:1] == ["strata"]:
            yield words[1:]
        words = []


def in_sentences(page: Path) -> Iterator[str]:
    """The ``strata`` commands that a page names in its sentences, but for those with ``|`` or ``...`` in them."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    yield from (found for found in re.findall(r"`(strata [^`|]+)`", text.replace("\n", " ")) if "..." not in found)


def links(page: Path) -> Iterator[str]:
    """Where a page points, except to other sites."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in _LINK.findall(text):
        if not target.startswith(("http://", "https://")):
            yield target


@cache
def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as they are made for Markdown."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    found = set()
    for heading in re.findall(r"^#{1,6} (.+)$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        found.add(re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-"))
    return found
