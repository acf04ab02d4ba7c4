"""What the documentation shows is what happens: its commands run, its options exist, its links lead somewhere."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from docs_support import DOCS, HOW_TOS, PAGES, ROOT, TUTORIAL, Block, anchors, blocks, links, strata_words, unlike

from strata.cli.main import cli

MARK = "@@@ "
SECONDS = 100
"""For all commands of one page."""


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
            break
        assert rest, f"{place}: {context.command_path} needs a subcommand"
        found = command.get_command(context, rest[0])
        assert found is not None, f"{place}: there is no {context.command_path} {rest[0]}"
        context = click.Context(found, info_name=rest[0], parent=context)
        command, rest = found, rest[1:]


def test_an_option_that_does_not_exist_is_noticed() -> None:
    with pytest.raises(pytest.fail.Exception):
        accept(["node", "list", "--colour", "red"], "here")


def test_every_block_that_is_not_run_says_why() -> None:
    for block in every_block():
        if block.not_run is not None:
            assert len(block.not_run.split()) >= 4, f"{block.place} gives no reason: {block.not_run!r}"


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


class Desk:
    """A shell with ``strata`` and ``python`` in its path, in a directory where the documentation is at ``docs``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "docs").symlink_to(DOCS)
        binaries = directory / "bin"
        binaries.mkdir()
        for name, arguments in (("strata", "-m strata.cli"), ("python", "")):
            binary = binaries / name
            binary.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n', encoding="utf-8")
            binary.chmod(0o755)
        self.state = directory / "s"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("STRATA_")}
        self.environment = {
            **kept,
            "PATH": f"{binaries}:{os.environ.get('PATH', '')}:/usr/sbin",
            "PYTHONPATH": str(ROOT / "src"),
            "STRATA_STATE": str(self.state),
        }

    def up(self) -> None:
        """A small fleet, ready; or the one that is there, once it has settled after the page before."""
        self.shell(
            "strata status || strata up --simulated --nodes 32 --time-scale 40 --listen 127.0.0.1:0\n"
            'until [ -z "$(strata node list --folded state:converging)" ]; do sleep 0.1; done'
        )

    def down(self) -> None:
        """Nothing is left."""
        self.shell("strata down --delete")

    def shell(self, script: str) -> str:
        """What a script said; it must end well, and nothing that it started outlives it by accident."""
        said = self.directory / "said"
        with said.open("w") as out:
            process = subprocess.Popen(
                ["bash", "-c", script],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=self.directory,
                env=self.environment,
                start_new_session=True,
            )
            try:
                status = process.wait(SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                status = process.wait()
        text = said.read_text(encoding="utf-8", errors="replace")
        assert status == 0, f"ended with {status}:\n{text[-3000:]}"
        return text

    def page(self, page: Path) -> None:
        """Run every command of a page in order, in one shell; each must end, and print, as the page says."""
        script = ["trap 'kill $(jobs -p) 2>/dev/null' EXIT"]
        run = [block for block in blocks(page) if block.not_run is None]
        for block in run:
            for command in block.commands:
                script += [f"cat <<'@@'\n\n{MARK}{block.place}: {command.text}\n@@", command.text, "code=$?"]
                script.append(f'[ $code = {block.exit} ] || {{ echo "exit code $code, not {block.exit}"; exit 99; }}')
        printed = self.shell("\n".join(script)).replace(str(self.state), "STATE").split(MARK)[1:]
        commands = [command for block in run for command in block.commands]
        assert len(printed) == len(commands)
        for command, text in zip(commands, printed, strict=True):
            different = unlike(command.shown, text)
            assert not different, f"{page.name} shows otherwise: {different} in\n{text}"


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    # Not pytest's own directory: the path of a unix socket must be short.
    directory = Path(tempfile.mkdtemp(prefix="docs-"))
    desk = Desk(directory)
    try:
        yield desk
    finally:
        try:
            desk.down()
        finally:
            shutil.rmtree(directory)


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.parametrize("page", [*HOW_TOS, TUTORIAL], ids=lambda page: page.stem)
def test_the_commands_of_a_page_do_what_it_says(desk: Desk, page: Path) -> None:
    desk.up()
    desk.page(page)


@pytest.mark.server
@pytest.mark.slow
def test_a_command_that_fails_is_noticed(desk: Desk, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.md"
    wrong.write_text("```sh\nstrata node show\n```\n", encoding="utf-8")
    with pytest.raises(AssertionError, match="exit code 2, not 0"):
        desk.page(wrong)
