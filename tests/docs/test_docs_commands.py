"""What the documentation shows is what happens: its commands run, its options exist, its links lead somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from docs_desk import Desk, Machine, Site, sitting_at
from docs_support import (
    CLUSTERS,
    DOCS,
    PAGES,
    ROOT,
    SIMULATED,
    TARGETS,
    ZERO,
    Block,
    anchors,
    blocks,
    claimed,
    in_sentences,
    links,
    not_taken,
    run_beside,
    run_on,
    strata_words,
    unlike,
)

from fresh import package, run
from strata.cli.main import cli
from support.terminal import picture, seen

TERMINAL = {
    "terminal-status": [["strata", "status"], ["strata", "node", "list", "--group-by", "state"]],
    "terminal-top": [["strata", "top", "--once"]],
    "terminal-why": [["strata", "node", "why", "n00007"]],
}
"""Picture → the commands that it shows."""
DESKS = tuple(kind.service for kind in (Desk, Machine, Site))
"""What pages are run beside, by the tests here and in ``test_docs_machines``."""


def every_block() -> list[Block]:
    return [block for page in PAGES for block in blocks(page)]


# ---- without a service ----


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_pages_and_headings_that_exist(page: Path) -> None:
    for target in links(page):
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"{page.relative_to(ROOT)} points to {target}"
        if anchor and found.suffix == ".md":
            assert anchor in anchors(found), f"{page.relative_to(ROOT)} points to {target}"


def test_every_command_shown_is_one_that_the_command_line_accepts() -> None:
    seen = 0
    for block in every_block():
        for command in block.commands:
            for words in strata_words(command.text):
                accept(words, f"{block.place}: {command.text}")
                seen += 1
    assert seen > 80


def test_every_command_named_in_a_sentence_is_one_too() -> None:
    """A sentence may name a group of commands alone, or an option without its value."""
    seen = 0
    for page in (page for page in PAGES if page.parent.name != "decisions" and page.name != "CHANGELOG.md"):
        for named in in_sentences(page):
            for words in strata_words(named):
                seen += 1
                try:
                    accept(words, f"{page.name}: {named}")
                except pytest.fail.Exception as error:
                    if not str(error).endswith(("needs a subcommand", "requires an argument.")):
                        raise
    assert seen > 200


def accept(words: list[str], place: str) -> None:
    """Fail unless click takes these words; values that the shell would put in, and files, are not looked at."""
    command: click.Command = cli
    context = click.Context(cli, info_name="strata")
    rest = list(words)
    while True:
        parser = command.make_parser(context)
        parser.allow_interspersed_args = not isinstance(command, click.Group)
        try:
            _, rest, _ = parser.parse_args(args=list(rest))
        except click.UsageError as error:
            pytest.fail(f"{place}: {error.format_message()}")
        if not isinstance(command, click.Group):
            if rest and not command.allow_extra_args:
                pytest.fail(f"{place}: {context.command_path} takes no {' '.join(rest)}")
            break
        if not rest:
            pytest.fail(f"{place}: {context.command_path} needs a subcommand")
        found = command.get_command(context, rest[0])
        assert found is not None, f"{place}: there is no {context.command_path} {rest[0]}"
        context = click.Context(found, info_name=rest[0], parent=context)
        command, rest = found, rest[1:]


def test_an_option_that_does_not_exist_is_noticed() -> None:
    with pytest.raises(pytest.fail.Exception):
        accept(["node", "list", "--colour", "red"], "here")


def test_an_argument_that_a_command_does_not_take_is_noticed() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"strata status takes no site\.yaml"):
        accept(["status", "site.yaml"], "here")


def test_every_block_is_run_by_the_pages_runner_or_by_a_test_that_takes_its_commands_from_the_page() -> None:
    desks = [(page, kind) for kind in DESKS for page in run_beside(kind)]
    here = {block.place for page, kind in desks for block in run_on(page, service=kind)}
    here |= {block.place for cluster in CLUSTERS for block in run_on(ZERO, cluster, service=SIMULATED)}
    elsewhere = {block.place: not_taken(block) for block in every_block() if block.run_by}
    assert {block.place for block in every_block()} - {*here, *elsewhere} == set()
    assert {place: wrong for place, wrong in elsewhere.items() if wrong} == {}
    assert len(here) > 290 and len(elsewhere) > 30


def test_commands_are_in_blocks_that_are_run_and_in_no_others() -> None:
    """A prompt in a block of another kind is one that nobody would run."""
    for page in PAGES:
        kinds = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
        strange = [
            kind for kind, text in kinds if kind not in ("console", "sh") and re.search(r"^\$ ", text, re.MULTILINE)
        ]
        assert not strange and not {"bash", "shell"} & {kind for kind, _ in kinds}, page.name


def test_a_block_that_nobody_runs_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    this = str(Path(__file__).relative_to(ROOT))
    known = test_an_option_that_does_not_exist_is_noticed.__name__
    for named, wrong in (
        ("tests/docs/test_nothing.py::test_nothing", "there is no tests/docs/test_nothing.py"),
        (f"{this}::test_nothing", f"{this} has no test test_nothing"),
        (f"{this}::{known}", f"{this} does not take what {known} runs from the pages"),
        (f"{this}::{known}, {this}::{known}", f"{this} has no test {known}, {this}::{known}"),
        ("make nothing", "there is no make nothing"),
    ):
        page.write_text(f"<!-- run by: {named} -->\n```sh\nstrata status\n```\n", encoding="utf-8")
        (block,) = blocks(page)
        assert not_taken(block) == wrong and run_on(page) == []


def test_a_make_target_that_runs_blocks_runs_all_that_name_it() -> None:
    named = [command.text for block in claimed(package.TARGET) for command in block.commands]
    assert sorted("\n".join(package.shown()).splitlines()) == sorted(named)
    assert run.TARGETS == ("up", "down", "test")
    assert {package.TARGET, run.TARGET} == set(TARGETS)


def test_a_block_may_be_run_beside_something_else_than_its_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```sh\ntrue\n```\n<!-- on: none -->\n```sh\nfalse\n```\n", encoding="utf-8")
    texts = {kind: [block.commands[0].text for block in run_on(page, service=kind)] for kind in (SIMULATED, "none")}
    assert texts == {SIMULATED: ["true"], "none": ["false"]}


def test_commands_are_found_behind_other_words() -> None:
    line = 'until strata status > a 2>&1; do sleep 1; done && strata node show "$(cat x | strata y)" | grep a'
    assert list(strata_words(line)) == [["status"], ["node", "show", "VALUE"]]


def test_what_is_printed_must_be_like_what_is_shown() -> None:
    shown = ("NAME  STATE", "n1  ready")
    assert not unlike(shown, "NAME STATE\nn22   ready\n")
    assert unlike(shown, "NAME GROUPS\nn1 ready\n") == "no heading 'NAME  STATE'"
    assert unlike(shown, "NAME STATE\nn1 faulted\n") == "nothing like 'n1  ready'"


@pytest.mark.slow
def test_the_pages_made_from_the_code_are_up_to_date() -> None:
    made = subprocess.run(
        [sys.executable, str(DOCS / "generate.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr


# ---- with a service ----


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    yield from sitting_at(Desk)


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.timeout(1800)  # one page builds six minimal operating systems, some beside much else
@pytest.mark.parametrize("page", run_beside(SIMULATED), ids=lambda page: page.stem)
def test_the_commands_of_a_page_do_what_it_says(desk: Desk, page: Path) -> None:
    desk.up()
    desk.page(page)


@pytest.mark.server
@pytest.mark.slow
def test_the_terminal_is_pictured_as_people_see_it(desk: Desk, tmp_path: Path) -> None:
    """``make pictures`` keeps what is made here."""
    folder = Path(os.environ.get("STRATA_PICTURES") or tmp_path)
    desk.up()
    desk.shell("strata node hold n00007 --reason 'DIMM 3 is being replaced' && strata node set n00007 image=demo-2")
    try:
        for name, commands in TERMINAL.items():
            told = [(" ".join(words), seen(words, desk.environment, desk.directory)) for words in commands]
            (folder / f"{name}.svg").write_text(picture(told, " ".join(commands[0])), encoding="utf-8")
    finally:
        desk.shell("strata node set n00007 --unset image && strata node release n00007")
    drawn = {name: (folder / f"{name}.svg").read_text(encoding="utf-8") for name in TERMINAL}
    assert "DIMM" in drawn["terminal-why"] and "held" in drawn["terminal-status"] and "held" in drawn["terminal-top"]
    for text in drawn.values():
        assert "url(http" not in text and "@font-face" not in text
        assert len(set(re.findall(r"fill: (#[0-9a-f]{6})", text))) > 1, "it has no colours"


@pytest.mark.server
@pytest.mark.slow
def test_a_command_that_fails_is_noticed(desk: Desk, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.md"
    wrong.write_text("```sh\nstrata node show\n```\n", encoding="utf-8")
    with pytest.raises(AssertionError, match="exit code 2, not 0"):
        desk.page(wrong)
