"""Plain ``srun`` and ``sbatch`` run in the site's default image, by the plugin in a real Slurm of two nodes."""

from __future__ import annotations

import asyncio
import re
import shlex
import shutil
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from docs.docs_support import taken_from_pages
from support.native import AS_USER, USER, compiled, copy_into, give, open_folder, small_image
from support.slurm import Slurm

pytestmark = [pytest.mark.slow, pytest.mark.server]

NODES = ("n1", "n2")
MPI = ("openmpi/lib/openmpi3/mca_*.so", "pmix2/lib/pmix/*.so")
"""What Open MPI loads as it runs, which ``ldd`` does not know."""


class Site:
    """Two images in a folder, a policy about them, and a Slurm whose users meet both."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.images = folder / "images"
        self.out = give(_made(folder / "out"))
        self._policy = folder / "containers.conf"
        for name in ("one", "two"):
            small_image(self.images / name)
            (self.images / name / "etc/mark").write_text(f"{name}\n")
        for name in ("strata_spank.so", "strata-run"):
            shutil.copy(programs / name, folder)
        plugins = folder / "plugstack.conf"
        plugins.write_text(f"required {folder}/strata_spank.so policy={self._policy}\n")
        # Both nodes are this machine; what PMIx makes for a step on each must not meet.
        self.tmp = _made(folder / "tmp")
        for node in NODES:
            _made(self.tmp / node).chmod(0o1777)
        more = f"PlugStackConfig={plugins}\nTmpFS={self.tmp}/%n"
        self.slurm = Slurm(_made(folder / "slurm"), "", more, real=NODES)
        self.promote("one")

    def promote(self, image: str, *, opt_out: str = "no") -> None:
        """The default from now on."""
        text = (
            f"images = {self.images}\ndefault = {image}\nopt-out = {opt_out}  # why\n"
            f"image first = one\nimage second = {self.images}/two\nbind = {self.tmp}\nbind = {self.out}\n"
        )
        new = self._policy.with_suffix(".new")
        new.write_text(text)
        new.rename(self._policy)

    def run(self, *command: str, user: bool = True) -> str:
        """What a command of Slurm prints, as a user's."""
        return asyncio.run(self.slurm.run(*(AS_USER if user else ()), *command)).strip()

    def batch(self, script: str, *options: str) -> Path:
        """Where the output of a batch job will be."""
        out = self.out / f"{time.monotonic_ns()}"
        submitted = self.run("sbatch", "--parsable", "-o", str(out), *options, "--wrap", script)
        assert submitted.isdigit(), submitted
        self.job = submitted
        return out

    def job_ends(self, job: str) -> str:
        """Wait for it: how Slurm says that it ended."""
        deadline = time.monotonic() + 120
        while True:
            told = self.run("scontrol", "-o", "show", "job", job)
            if re.search(r"JobState=(COMPLETED|FAILED|CANCELLED)", told):
                return told
            assert time.monotonic() < deadline, told
            time.sleep(0.1)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


@pytest.fixture(scope="module")
def running(runner: Path) -> Iterator[Site]:
    with open_folder() as folder:
        site = Site(folder, runner)
        try:
            site.slurm.start()
            site.slurm.start_nodes()
            for node in NODES:
                asyncio.run(site.slurm.until_state(node, "idle"))
            yield site
        finally:
            site.slurm.stop_nodes()
            site.slurm.stop()


@pytest.fixture
def site(running: Site) -> Site:
    running.promote("one")
    return running


def test_a_plain_srun_runs_in_the_default_image_as_its_user(site: Site) -> None:
    said = "cat /etc/mark; id -u; pwd; echo $STRATA_IMAGE"
    # A directory that the nodes have and the image has not.
    found = site.run("srun", "-N2", "--chdir=/var/lib/dpkg", "sh", "-c", said, "--export=NONE")
    assert sorted(found.splitlines()) == sorted(["one", "65534", "/", f"{site.images}/one"] * 2)


def test_a_plain_sbatch_runs_in_the_default_image_whatever_it_exports(site: Site) -> None:
    out = site.batch("cat /etc/mark; cat $0", "--export=NONE")
    assert "JobState=COMPLETED" in site.job_ends(site.job)
    assert out.read_text().startswith("one\n#!/bin/sh\n")


def test_a_new_default_is_the_next_jobs_and_a_job_that_waits_keeps_its_own(site: Site) -> None:
    before = site.batch("cat /etc/mark", "--hold")
    waiting = site.job
    site.promote("two")
    after = site.batch("cat /etc/mark")
    site.job_ends(site.job)
    site.run("scontrol", "release", waiting)
    site.job_ends(waiting)
    assert (before.read_text(), after.read_text()) == ("one\n", "two\n")
    assert site.run("srun", "cat", "/etc/mark") == "two"


def test_a_step_runs_in_what_its_job_was_given(site: Site) -> None:
    gate, ready = site.out / "gate", site.out / "ready"
    script = f"touch {ready}; while [ ! -e {gate} ]; do sleep 0.1; done; srun cat /etc/mark"
    with ThreadPoolExecutor(1) as pool:
        said = pool.submit(site.run, "salloc", "-Q", "sh", "-c", script)
        deadline = time.monotonic() + 120
        while not ready.exists():
            assert time.monotonic() < deadline and not said.done()
            time.sleep(0.05)
        site.promote("two")
        gate.touch()
        assert said.result() == "one"


def test_another_image_is_asked_for_by_name_and_an_unknown_one_refused_with_what_there_is(site: Site) -> None:
    assert site.run("srun", "--container-image=second", "cat", "/etc/mark") == "two"
    refused = site.run("srun", "--container-image=third", "cat", "/etc/mark")
    assert "there is no image third; there are: first second" in refused
    told = site.run("srun", "--help")
    assert "--container-image=NAME" in told and "--no-container" in told


def test_a_job_opts_out_where_the_site_allows_it_and_only_there(site: Site) -> None:
    look = ("srun", "--no-container", "ls", "/etc/mark")
    assert "this site has every job run in an image" in site.run(*look)
    for opt_out in ("yes", f"1 {USER}"):
        site.promote("one", opt_out=opt_out)
        assert "No such file or directory" in site.run(*look), "the user's own group counts too"
    site.promote("one", opt_out="1 2")
    assert "opt-out is for groups that you are in none of" in site.run(*look)
    asked = ("env", "STRATA_CONTAINER_IMAGE=second", "srun", "cat", "/etc/mark")
    assert site.run(*asked) == "two", "programs that submit jobs ask by a variable"


@pytest.mark.parametrize(
    ("forged", "said"),
    [
        ("none", "strata: this site has every job run in an image"),
        ("/etc", "strata: image /etc is not below"),
        ("../../etc", "strata: there is no image ../../etc"),
        ("", "one"),
    ],
)
def test_who_submits_without_the_plugin_gets_what_the_node_allows(site: Site, forged: str, said: str) -> None:
    own = site.out / "slurm.conf"
    own.write_text(re.sub("(?m)^PlugStackConfig=.*", "PlugStackConfig=/dev/null", site.slurm.config.read_text()))
    variables = (f"SLURM_CONF={own}", *([f"SLURM_STRATA_IMAGE={forged}"] if forged else []))
    found = site.run("env", *variables, "srun", "cat", "/etc/mark")
    assert said in found
    assert ("exit code 125" in found) == (said != "one")


def test_an_image_that_is_gone_fails_the_job_in_words_and_leaves_the_node_alone(site: Site) -> None:
    out = site.batch("cat /etc/mark", "--hold")
    (site.images / "one").rename(site.images / "gone")
    try:
        site.run("scontrol", "release", site.job)
        assert "ExitCode=125:0" in site.job_ends(site.job)
    finally:
        (site.images / "gone").rename(site.images / "one")
    assert "strata: strata-run: image one: No such file or directory" in out.read_text()
    for node in NODES:
        asyncio.run(site.slurm.until_state(node, "idle"))


def test_a_hostile_program_does_not_get_out_of_a_job(site: Site) -> None:
    compiled(Path(__file__).with_name("escapes.c"), site.images / "one/bin/escape", "-static")
    names = "remount unmount cover nest write-proc look-at-proc devices keys handles descriptors who"
    script = f"for name in {names}; do echo try $name; /bin/escape $name /usr/bin/make; done"
    found = site.run("srun", "sh", "-c", script)
    assert re.findall("try (.*)", found) == names.split()
    assert "WORKED" not in found, found
    assert found.count(": ") > 30


def test_roots_jobs_are_told_to_say_so(site: Site) -> None:
    refused = site.run("srun", "cat", "/etc/mark", user=False)
    assert "root's jobs run in no image: submit it as a user, or with --no-container" in refused
    assert site.run("srun", "--no-container", "id", "-u", user=False) == "0"


def test_an_mpi_job_on_two_nodes_gets_the_right_sum_in_the_default_image(site: Site) -> None:
    image = site.images / "one"
    libraries = next(Path("/usr/lib").glob("*-linux-gnu/openmpi")).parent
    loaded = [path for pattern in MPI for path in libraries.glob(pattern)]
    assert loaded, "Open MPI is missing: install the Debian package libopenmpi3"
    program = compiled(Path(__file__).with_name("sum.c"), image / "bin/sum", "-l:libmpi.so.40")
    copy_into(image, [libraries / "libmpi.so.40", *loaded])
    assert program.exists()
    commands = taken_from_pages(
        "tests/jobs/test_slurm_images.py::test_an_mpi_job_on_two_nodes_gets_the_right_sum_in_the_default_image"
    )
    site.promote("one", opt_out="yes")
    said = [site.run(*shlex.split(command, comments=True)) for command in commands]
    assert said == ["2 ranks, sum 3, in the image 2", "two", socket.gethostname()]
    # Two on each node: they share memory there.
    assert site.run("srun", "-Q", "-N2", "-n4", "-O", "--mpi=pmix", "/bin/sum") == "4 ranks, sum 10, in the image 4"


def test_the_ranks_of_a_node_are_in_one_namespace_and_may_read_each_others_memory(site: Site) -> None:
    found = site.run("srun", "-Q", "-n3", "-N1", "-O", "readlink", "/proc/self/ns/user").split()
    outside = Path("/proc/self/ns/user").readlink()
    assert len(found) == 3 and len(set(found)) == 1 and found[0] != str(outside)
