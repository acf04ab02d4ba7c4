"""Plain ``qsub`` runs in the site's default image, by the JSV and the starter method in a real Grid Engine."""

from __future__ import annotations

import asyncio
import re
import shlex
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from docs.docs_support import taken_from_pages
from strata.jobs.native import program
from support.grid_engine import GridEngineCluster, grid_engine
from support.native import AS_USER, as_user, give, small_image

pytestmark = pytest.mark.slow


class Site:
    """Two images and a policy about them, with the two scripts that Grid Engine calls."""

    def __init__(self, folder: Path) -> None:
        self.images, self.policy, self.out = folder / "images", folder / "containers.conf", folder / "out"
        self.out.mkdir()
        give(self.out)
        for name in ("one", "two"):
            (small_image(self.images / name) / "etc/mark").write_text(f"{name}\n")
        self.program = Path(shutil.copy(program("strata-grid-engine"), folder))
        for role in ("submit", "start"):
            script = folder / role
            script.write_text(f'#!/bin/sh\nexec {self.program} {role} {self.policy} "$@"\n')
            script.chmod(0o755)
        self.folder = folder
        self.promote("one")

    def promote(self, image: str, *, opt_out: str = "no") -> None:
        """The default from now on."""
        self.policy.write_text(
            f"images = {self.images}\ndefault = {image}\nimage second = two\nopt-out = {opt_out}\nbind = {self.out}\n"
        )


@pytest.fixture
def site(runner: Path, folder: Path) -> Site:
    return Site(folder)


class Cluster:
    """A Grid Engine that is set up as the how-to says."""

    def __init__(self, site: Site, engine: GridEngineCluster) -> None:
        self._site, self._engine = site, engine

    async def set_up(self) -> None:
        for show, change, name, old, new in (
            (("-sq", "main.q"), "-Mq", "main.q", "starter_method", f"{self._site.folder}/start"),
            (("-sconf",), "-Mconf", "global", "jsv_url", f"script:{self._site.folder}/submit"),
        ):
            text = re.sub(rf"(?m)^({old}) .*", rf"\1 {new}", await self._engine.config(*show))
            (self._site.folder / name).write_text(text)
            assert "modified" in await self._engine.config(change, str(self._site.folder / name))

    async def submit(self, name: str, *command: str) -> str:
        """A job of a user, whose output is to be in the file of that name."""
        out = ("-q", "main.q", "-j", "y", "-o", f"{self._site.out}/{name}", "-wd", str(self._site.out))
        return await self.run("qsub", *out, *command)

    async def run(self, *command: str) -> str:
        return await self._engine.run(*AS_USER, *command)

    def said(self, name: str) -> str:
        """What a job has printed, which has ended."""
        return (self._site.out / name).read_text()


@asynccontextmanager
async def cluster(site: Site) -> AsyncIterator[Cluster]:
    directory = site.folder / "engine"
    directory.mkdir()
    async with grid_engine(directory) as engine:
        made = Cluster(site, engine)
        await made.set_up()
        yield made


@pytest.mark.server
async def test_a_plain_qsub_runs_in_the_image_that_was_the_default_when_it_was_submitted(site: Site) -> None:
    script = site.out / "job.sh"
    script.write_text('#!/bin/nothing\ncat /etc/mark; id -u; pwd; echo "$# $2 $STRATA_IMAGE"\n')
    async with cluster(site) as engine:
        waiting = re.search(r"Your job (\d+)", await engine.submit("waiting", "-h", "-b", "y", "cat", "/etc/mark"))
        assert "exited with exit code 0" in await engine.submit("script", "-sync", "y", str(script), "a", "b c")
        # The shell of the queue starts a script, whatever its first line says.
        assert engine.said("script").splitlines() == ["one", "65534", str(site.out), f"2 b c {site.images}/one"]

        site.promote("two")
        assert "exited with exit code 0" in await engine.submit("new", "-sync", "y", "-b", "y", "cat", "/etc/mark")
        assert waiting is not None
        await engine.run("qrls", waiting[1])
        deadline = time.monotonic() + 120
        while not (site.out / "waiting").exists() or not engine.said("waiting"):
            assert time.monotonic() < deadline, await engine.run("qstat", "-j", waiting[1])
            await asyncio.sleep(0.1)
        assert (engine.said("waiting"), engine.said("new")) == ("one\n", "two\n")

        third = await engine.submit("third", "-v", "STRATA_IMAGE=third", "-b", "y", "true")
        assert "Unable to run job: strata: there is no image third; there are: second" in third
        none = ("-v", "STRATA_IMAGE=none", "-sync", "y", "-b", "y", "ls", "/etc/mark")
        assert "this site has every job run in an image" in await engine.submit("none", *none)
        site.promote("one", opt_out="yes")
        assert "exited with exit code 2" in await engine.submit("none", *none)
        assert "No such file or directory" in engine.said("none")

        commands = taken_from_pages(
            "tests/jobs/test_gridengine_images.py::"
            "test_a_plain_qsub_runs_in_the_image_that_was_the_default_when_it_was_submitted"
        )
        script.write_text("cat /etc/mark 2>&1\n")
        for number, command in enumerate(commands):
            words = shlex.split(command.replace("job.sh", str(script)), comments=True)
            await engine.submit(f"page{number}", "-sync", "y", *words[1:])
        assert [engine.said(f"page{number}") for number in range(2)] == ["one\n", "two\n"]
        assert "No such file or directory" in engine.said("page2")


@pytest.mark.parametrize(
    ("asked", "code", "said"),
    [
        ("", 0, "one\n"),
        ("second", 0, "two\n"),
        ("none", 125, "strata: this site has every job run in an image"),
        ("/etc", 125, "strata: image /etc is not below"),
    ],
)
def test_the_starter_asks_the_policy_once_more(site: Site, asked: str, code: int, said: str) -> None:
    environment = {"PATH": "/bin", **({"STRATA_IMAGE": asked} if asked else {})}
    done = as_user([site.folder / "start", "cat", "/etc/mark"], env=environment)
    assert done.returncode == code, done.stderr
    assert (done.stdout + done.stderr).startswith(said)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", ": images = FOLDER is missing, an absolute path"),
        ("images = /i\nopt-out = maybe\n", " line 2: opt-out is yes, no, or numbers of groups, not maybe"),
        ("images = /i\n\nbinds = /x\n", " line 3: nobody knows binds; there are images, default, image NAME, opt-out"),
        ("images\n", " line 1: a line is NAME = VALUE"),
    ],
)
def test_a_policy_that_is_wrong_says_where(site: Site, text: str, why: str) -> None:
    site.policy.write_text(text)
    refused = as_user([site.folder / "start", "true"])
    assert refused.returncode == 125
    assert refused.stderr.startswith(f"strata: {site.policy}{why}")


def test_a_policy_that_others_than_root_can_write_is_refused(site: Site) -> None:
    for harm in (lambda: site.policy.chmod(0o666), lambda: give(site.policy).chmod(0o644)):
        harm()
        refused = as_user([site.folder / "start", "true"])
        assert (refused.returncode, "others than root can write it" in refused.stderr) == (125, True)
