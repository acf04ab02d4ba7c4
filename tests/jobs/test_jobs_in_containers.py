"""Jobs in containers and in work environments: the same document, whichever runtime runs it."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from container_support import small_image

from strata.core.errors import BadRequest, Refused
from strata.jobs.containers.records import Bind, Container
from strata.jobs.environments.records import EnvironmentSpec, Promotion
from strata.jobs.environments.service import EnvironmentService
from strata.jobs.resources import Asked
from strata.jobs.submission.records import JobDocument
from strata.jobs.submission.script import There, script_of
from strata.schedulers.jobs import Accelerators
from support.job_site import ALICE, OPERATOR, ROOT, JobSite, job_site

SCRIPT = """#!/bin/sh
pwd
echo "$TOLD|$FROM_IMAGE|$1"
ls /bin/busybox
exit 5
"""


@pytest.fixture
async def site(open_dir: Path) -> AsyncIterator[JobSite]:
    if not ROOT:
        pytest.skip("only root can run jobs as somebody else")
    small_image(open_dir / "image")
    async with job_site(open_dir) as made:
        made.fleet.put(await made.fleet.keep(EnvironmentService(made.fleet)))
        yield made


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.parametrize("runtime", ["native", "charliecloud", "bubblewrap"])
async def test_a_job_s_script_runs_in_its_container_as_its_account(site: JobSite, runtime: str) -> None:
    wanted = Container(image=f"oci:{site.directory}/image", runtime=runtime)
    asked = JobDocument(script=SCRIPT, arguments=("an argument",), env={"TOLD": "by the job"}, container=wanted)
    job = await site.jobs.submit(ALICE, asked)
    done = await site.ended(ALICE, job.id)
    printed = await site.printed(ALICE, job.id)
    assert printed.splitlines() == ["/etc", "by the job|yes|an argument", "/bin/busybox"], printed
    assert (done.outcome, done.status) == ("failed", 5)


@pytest.mark.slow
@pytest.mark.server
async def test_a_job_in_an_environment_keeps_the_version_that_it_began_with(site: JobSite) -> None:
    service = site.fleet.of(EnvironmentService)
    image = f"oci:{site.directory}/image"
    await service.put(OPERATOR, "small", EnvironmentSpec(image=image, env={"IN": "small"}, test=("true",)), None)
    await service.promote(OPERATOR, "small", Promotion(version=1, passed=True, digest=f"sha256:{'a' * 64}"))
    asked = JobDocument(command="/bin/sh", arguments=("-c", "echo $IN"), environment="small")
    job = await site.jobs.submit(ALICE, asked)
    await site.ended(ALICE, job.id)
    assert await site.printed(ALICE, job.id) == "small\n"
    assert job.document.environment == "small@1"
    again = await site.jobs.rerun(ALICE, job.id)
    assert again.document == job.document
    with pytest.raises(BadRequest, match="an environment or a container"):
        await site.jobs.submit(ALICE, JobDocument(command="x", environment="small", container=Container(image="x")))
    with pytest.raises(Refused, match="no overlay"):
        writable = Container(image=image, runtime="bubblewrap", writable=True)
        await site.jobs.submit(ALICE, JobDocument(command="x", container=writable))


@pytest.mark.slow
async def test_accelerators_that_a_job_gets_are_given_to_its_container(open_dir: Path) -> None:
    async with job_site(open_dir, accelerators=2) as site:
        asked = Asked(accelerators=Accelerators(count=1))
        document = JobDocument(command="x", container=Container(image="oci:/image"), resources=asked)
        assert "--device=given" in (await site.jobs.plan(ALICE, document)).script


def test_whatever_a_container_says_is_quoted_and_its_program_comes_last(tmp_path: Path) -> None:
    wanted = Container(image="a b:1", binds=(Bind(source="/it's", read_only=True),), env={"X": "$(touch /tmp/no)"})
    text = script_of(
        JobDocument(command="prog", arguments=("$HOME",), container=wanted),
        str(tmp_path),
        tell_end=False,
        there=There(),
    )
    fake = tmp_path / "strata"
    fake.write_text('#!/bin/sh\nfor word in "$@"; do echo "<$word>"; done\n')
    fake.chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", text], env={"PATH": f"{tmp_path}:/bin"}, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [
        *("<container>", "<run>", "<a b:1>", "<--runtime=native>", "<--home=none>", "<--bind=/it's:/it's:ro>"),
        *("<--env=X=$(touch /tmp/no)>", "<-->", "<prog>", "<$HOME>"),
    ]


def test_modules_are_loaded_before_the_program_and_their_failure_is_the_job_s(tmp_path: Path) -> None:
    text = script_of(
        JobDocument(command="echo", arguments=("ran",), modules=("gcc/12",)),
        str(tmp_path),
        tell_end=False,
        there=There(),
    )
    for status, said in ((0, "load gcc/12\nran\n"), (1, "load gcc/12\n")):
        known = f'module() {{ echo "$@"; return {status}; }}\n'
        done = subprocess.run(["sh", "-c", known + text], capture_output=True, text=True, check=False)
        assert (done.stdout, done.returncode) == (said, 126 if status else 0)
