"""Tasks of jobs over several nodes, in the job's own image, on nodes that have nothing of Strata's but the runner."""

from __future__ import annotations

import asyncio
import io
import shutil
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import msgspec
import pytest
from container_support import layout

from strata.core.errors import BadRequest
from strata.jobs.containers.cache import Cache
from strata.jobs.containers.records import Container
from strata.jobs.resources import Asked
from strata.jobs.submission.launching import launcher
from strata.jobs.submission.records import JobDocument, Kind
from strata.jobs.submission.script import There, script_of
from strata.platform.workload.records import WorkloadSpec
from strata.schedulers.jobs import Accelerators
from support.grid_engine import grid_engine
from support.job_site import ALICE, ROOT, Connected, JobSite, job_site
from support.native import compiled, copy_into, open_folder, small_image
from support.slurm import slurm

LOADED = ("openmpi/lib/openmpi3/mca_*.so", "pmix2/lib/pmix/*.so")
"""What Open MPI loads as it runs, which ``ldd`` does not know."""
TWO = Asked(nodes=2, tasks=2, time=300)
QUICK = "SchedulerParameters=sched_interval=1,batch_sched_delay=0,sched_min_interval=0"


class Nodes:
    """A folder that all nodes see: the runner, and an image with an MPI program in it, pulled by an administrator."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder, self.images = folder, folder / "images"
        self.runner = Path(shutil.copy(programs / "strata-run", folder))
        self.image = f"oci:{_mpi_image(folder)}"
        self.strata = folder / "strata"
        self.strata.write_text(f'#!/bin/sh\nexec {sys.executable} -m strata.cli "$@"\n')
        self.strata.chmod(0o755)
        self.pull(self.image)

    def pull(self, image: str) -> None:
        words = ("-m", "strata.cli", "container", "pull", image, "--cache", str(self.images))
        subprocess.run([sys.executable, *words], check=True, capture_output=True, timeout=240)

    def specs(self, kind: Literal["slurm", "gridengine"], env: dict[str, str]) -> dict[str, WorkloadSpec]:
        """One cluster under two names: its nodes have the runner alone, or all of Strata."""
        return {
            "runner": WorkloadSpec(kind=kind, env=env, images=str(self.images), runner=str(self.runner)),
            "whole": WorkloadSpec(kind=kind, env=env, strata=str(self.strata)),
        }


def _mpi_image(folder: Path) -> Path:
    root = small_image(folder / "root")
    libraries = next(Path("/usr/lib").glob("*-linux-gnu/openmpi")).parent
    compiled(Path(__file__).with_name("sum.c"), root / "bin/sum", "-l:libmpi.so.40")
    copy_into(root, [libraries / "libmpi.so.40", *(path for name in LOADED for path in libraries.glob(name))])
    (root / "etc/mark").write_text("here\n")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.add(root, arcname=".")
    shutil.rmtree(root)
    return layout(
        folder / "layout", packed.getvalue(), config={"Env": ["PATH=/bin", "FROM=image"], "WorkingDir": "/etc"}
    )


@pytest.fixture(scope="module")
def nodes(runner: Path) -> Iterator[Nodes]:
    with open_folder() as folder:
        yield Nodes(folder, runner)


@asynccontextmanager
async def on_slurm(nodes: Nodes, programs: Path, directory: Path) -> AsyncIterator[JobSite]:
    """Two nodes of a Slurm that puts every job into the site's default image, which jobs may leave."""
    daemons, default = directory / "daemons", small_image(directory / "default/small")
    daemons.mkdir(mode=0o755)
    shutil.copy(programs / "strata_spank.so", directory)
    shutil.copy(programs / "strata-run", directory)
    policy, plugins, tmp = directory / "containers.conf", directory / "plugstack.conf", directory / "tmp"
    policy.write_text(f"images = {default.parent}\ndefault = small\nopt-out = yes\n")
    plugins.write_text(f"required {directory}/strata_spank.so policy={policy}\n")
    for node in ("n1", "n2"):
        (tmp / node).mkdir(parents=True)
        (tmp / node).chmod(0o1777)
    tmp.chmod(0o755)
    # Both nodes are this machine; what PMIx makes for a step on each must not meet.
    more = f"PlugStackConfig={plugins}\nTmpFS={tmp}/%n\n{QUICK}"
    async with slurm(daemons, "", more, real=("n1", "n2")) as real:
        put = Connected(nodes.specs("slurm", real.env)).put
        async with job_site(directory, put=put, poll=1.0) as site:
            yield site


async def ran(site: JobSite, document: JobDocument, target: str = "runner") -> str:
    """What a job printed, which ended well."""
    job = await site.jobs.submit(ALICE, msgspec.structs.replace(document, target=target))
    done = await site.ended(ALICE, job.id)
    printed = await site.printed(ALICE, job.id)
    assert (done.outcome, done.status) == ("done", 0), (done, printed)
    return printed


RUNTIMES = ("native", "charliecloud", "bubblewrap")
SAID = "here /etc image by the job"


async def by_every_runtime(site: JobSite, nodes: Nodes) -> dict[str, str]:
    """What one document prints on nodes that have all of Strata, by runtime."""
    env = {"TOLD": "by the job", "STRATA_CONTAINERS": f"{site.people['alice'].home}/containers"}
    asked = JobDocument(script="#!/bin/sh\ncat /etc/mark; pwd; echo $FROM $TOLD\n", env=env)
    boxes = [Container(image=nodes.image, runtime=runtime) for runtime in RUNTIMES]
    jobs = (ran(site, msgspec.structs.replace(asked, container=box), "whole") for box in boxes)
    return dict(zip(RUNTIMES, (" ".join(said.split()) for said in await asyncio.gather(*jobs)), strict=True))


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.skipif(not ROOT, reason="only root can run a scheduler for somebody else")
async def test_an_mpi_job_in_a_container_on_two_nodes_gets_the_right_sum_through_the_api(
    nodes: Nodes, runner: Path, open_dir: Path
) -> None:
    inside = Container(image=nodes.image)
    async with on_slurm(nodes, runner, open_dir) as site:
        solve = JobDocument(command="/bin/sum", container=inside, launch="mpi", resources=TWO)
        assert await ran(site, solve) == "2 ranks, sum 3, in the image 2\n"
        script = "#!/bin/sh\ncat /etc/mark; pwd; echo $FROM $1\n"
        tasks = JobDocument(script=script, arguments=("an argument",), container=inside, launch="tasks", resources=TWO)
        told = ["here", "/etc", "image an argument"]
        assert sorted((await ran(site, tasks)).splitlines()) == sorted(told * 2)
        once = JobDocument(script=script, arguments=("once",), container=inside, resources=TWO)
        assert (await ran(site, once)).splitlines() == ["here", "/etc", "image once"]
        assert await by_every_runtime(site, nodes) == dict.fromkeys(RUNTIMES, SAID)
        with pytest.raises(BadRequest) as refused:
            await site.jobs.submit(
                ALICE, JobDocument(command="x", target="runner", container=Container(image="oci:/other"))
            )
        assert refused.value.where == "container.image" and "is not in" in refused.value.detail
        given = Asked(accelerators=Accelerators(count=1))
        with pytest.raises(BadRequest, match="have Strata's runner alone, and devices"):
            await site.jobs.submit(ALICE, JobDocument(command="x", target="runner", container=inside, resources=given))
        policy = open_dir / "containers.conf"
        policy.write_text(policy.read_text().replace("yes", "no"))
        with pytest.raises(BadRequest, match="this site has every job run in an image"):
            await site.jobs.submit(ALICE, msgspec.structs.replace(once, target="runner"))


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.skipif(not ROOT, reason="only root can run a scheduler for somebody else")
async def test_an_mpi_job_in_a_container_gets_the_right_sum_in_grid_engine_through_the_api(
    nodes: Nodes, open_dir: Path
) -> None:
    daemons = open_dir / "daemons"
    daemons.mkdir(mode=0o755)
    inside = Container(image=nodes.image)
    async with grid_engine(daemons) as real:
        put = Connected(nodes.specs("gridengine", real.env)).put
        async with job_site(open_dir, put=put, poll=1.0) as site:
            asked = Asked(tasks=2, time=300)
            solve = JobDocument(command="/bin/sum", container=inside, launch="mpi", resources=asked)
            assert await ran(site, solve) == "2 ranks, sum 3, in the image 2\n"
            once = JobDocument(command="/bin/cat", arguments=("/etc/mark",), container=inside)
            assert await ran(site, once) == "here\n"
            assert await by_every_runtime(site, nodes) == dict.fromkeys(RUNTIMES, SAID)


@pytest.mark.slow
def test_the_image_of_a_job_that_runs_is_not_removed(nodes: Nodes, tmp_path: Path) -> None:
    cache = Cache(nodes.images)
    image = cache.named(nodes.image)
    assert image is not None
    runner = tmp_path / "runner"
    runner.write_text("#!/bin/sh\necho runs; read end\n")
    runner.chmod(0o755)
    there = There("slurm", image=image, runner=str(runner), mark=cache.want(image))
    document = JobDocument(command="x", container=Container(image=nodes.image))
    script = script_of(document, str(tmp_path / "job"), tell_end=True, there=there)
    with subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as job:
        assert job.stdin is not None and job.stdout is not None
        assert job.stdout.readline() == b"runs\n"
        assert cache.gc(keep=0, dry_run=True) == []
        job.stdin.close()
    assert [one.digest for one in cache.gc(keep=0, dry_run=True)] == [image.digest]


def test_a_node_that_has_nothing_of_strata_s_says_what_is_missing(tmp_path: Path) -> None:
    document = JobDocument(command="x", container=Container(image="debian:12"))
    there = There("slurm", strata=("/nowhere/strata",))
    script = script_of(document, str(tmp_path / "job"), tell_end=True, there=there)
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 127
    assert "strata: there is no /nowhere/strata on this node; an administrator installs it" in done.stderr


@pytest.mark.parametrize("kind", ["kubernetes", "htcondor"])
def test_what_cannot_start_tasks_refuses_it_in_words(kind: Kind) -> None:
    with pytest.raises(BadRequest, match=f"{kind} cannot start the tasks of a job"):
        launcher(JobDocument(command="x", launch="tasks"), kind)


def test_tasks_go_where_the_scheduler_gave_them_room() -> None:
    document = JobDocument(command="x", launch="mpi", resources=Asked(nodes=2, tasks=6, cores=4))
    assert {"--nodes=2", "--ntasks=6", "--cpus-per-task=4"} < set(launcher(document, "slurm").words)
    spread = launcher(document, "gridengine")
    assert spread.words == ("mpiexec", "-n", "6")
    assert spread.env["OMPI_MCA_rmaps_base_mapping_policy"] == "ppr:3:node"


def test_mpi_without_the_job_s_environment_is_refused() -> None:
    bare = Container(image="x", clear_env=True)
    with pytest.raises(BadRequest, match="MPI needs the job's environment, which clear_env takes away"):
        launcher(JobDocument(command="x", launch="mpi", container=bare), "slurm")
