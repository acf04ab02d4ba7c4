"""What a job asks for: as people write it, with what its environment says where it says nothing itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from strata.core.errors import BadRequest, Refused
from strata.core.input.yamltree import Document
from strata.jobs.environments.files import read_environments
from strata.jobs.environments.records import EnvironmentSpec, Promotion
from strata.jobs.environments.service import EnvironmentService
from strata.jobs.resources import Asked, over
from strata.jobs.submission.records import JobDocument
from strata.schedulers.jobs import Accelerators, Resources
from support.job_site import ALICE, job_site


@pytest.mark.parametrize(
    ("field", "written", "meant"),
    [
        ("memory", "16G", 16_384),
        ("memory", "500MiB", 500),
        ("memory", 700, 700),
        ("time", "1h30m", 5400),
        ("time", 90, 90),
        ("power", "1.5kW", 1500),
        ("power", 300, 300),
        ("accelerators", 2, Accelerators(count=2)),
        ("accelerators", "h200:4", Accelerators(count=4, type="h200")),
        ("accelerators", {"count": 1, "memory": 80_000}, Accelerators(count=1, memory=80_000)),
    ],
)
def test_resources_mean_the_same_in_yaml_and_in_json(field: str, written: object, meant: object) -> None:
    by_json = msgspec.json.decode(msgspec.json.encode({field: written}), type=Asked)
    by_yaml = Document(f"{field}: {msgspec.json.encode(written).decode()}\n", "file").read(Asked)
    assert getattr(by_json, field) == getattr(by_yaml, field) == meant
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(by_json), type=Asked) == by_json, "as it is kept"


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("memory: lots", "a size such as 500M or 16G"),
        ("memory: 0G", "not a size"),
        ("time: soon", "a length of time such as 90s"),
        ("time: 0s", "not between 1 and"),
        ("time: 999d", "not between 1 and"),
        ("power: much", "a power such as 300W"),
        ("accelerators: some", "COUNT or TYPE:COUNT"),
        ("accelerators: 0", "COUNT or TYPE:COUNT"),
        ("cores: -1", "at least 1"),
        ("core: 1", "did you mean cores"),
    ],
)
def test_what_nobody_can_mean_is_refused_with_what_would_do(written: str, told: str) -> None:
    with pytest.raises(BadRequest, match=told):
        Document(f"{written}\n", "file").read(Asked)


def test_what_is_not_said_is_one_task_on_each_node() -> None:
    assert Asked().needs == Resources()
    assert Asked(nodes=3).needs == Resources(nodes=3, tasks=3)
    assert Asked(nodes=3, tasks=6, memory=5).needs == Resources(nodes=3, tasks=6, memory=5)


@pytest.mark.parametrize(
    ("says", "defaults", "comes_to", "assumed"),
    [
        ({}, {"cores": 4, "memory": 9}, {"cores": 4, "memory": 9}, ("cores", "memory")),
        ({"cores": 1}, {"cores": 4, "memory": 9}, {"cores": 1, "memory": 9}, ("memory",)),
        ({"nodes": 16}, {"nodes": 2, "tasks": 8}, {"nodes": 16}, ()),
        ({"tasks": 1}, {"nodes": 2, "tasks": 8}, {"tasks": 1}, ()),
        ({"tasks": 4}, {"nodes": 2}, {"tasks": 4, "nodes": 2}, ("nodes",)),
    ],
)
def test_what_a_job_says_rules_over_what_its_environment_says(
    says: Any, defaults: Any, comes_to: Any, assumed: tuple[str, ...]
) -> None:
    assert over(Asked(**says), Asked(**defaults)) == (Asked(**comes_to), assumed)


async def test_a_job_gets_what_its_environment_gives_and_shows_what_of_it_that_is(open_dir: Path) -> None:
    async with job_site(open_dir) as site:
        service = site.fleet.put(await site.fleet.keep(EnvironmentService(site.fleet)))
        spec = EnvironmentSpec(modules=("gcc",), defaults=Asked(cores=2, memory=300, time=600), test=("true",))
        await service.put(ALICE, "base", spec, None)
        with pytest.raises(Refused, match="no version of base has been promoted"):
            await site.jobs.plan(ALICE, JobDocument(command="true", environment="base"))
        await service.promote(ALICE, "base", Promotion(version=1, passed=True))
        await service.put(ALICE, "mine", EnvironmentSpec(based_on="base", defaults=Asked(memory=400)), None)
        asked = JobDocument(command="true", environment="mine@1", resources=Asked(cores=1), held=True)
        plan = await site.jobs.plan(ALICE, asked)
        assert (plan.resources, plan.assumed) == (Asked(cores=1, memory=400, time=600), ("memory", "time"))
        job = await site.jobs.submit(ALICE, asked)
        assert (job.document.resources, job.assumed) == (plan.resources, plan.assumed)
        again = await site.jobs.rerun(ALICE, job.id)
        assert again.assumed == job.assumed, "what was not said is not said the second time either"
        with pytest.raises(BadRequest, match="largest node has 4 cores"):
            await service.put(ALICE, "mine", EnvironmentSpec(based_on="base", defaults=Asked(cores=9)), None)
            await site.jobs.submit(ALICE, JobDocument(command="true", environment="mine@2"))


def test_defaults_that_no_job_can_have_are_refused_when_the_environment_is_read() -> None:
    with pytest.raises(BadRequest, match=r"defaults.*unknown key 'core'"):
        read_environments("name: x\nmodules: [gcc]\ndefaults: {core: 4}\n", "file")
    with pytest.raises(BadRequest, match="a size such as"):
        read_environments("name: x\nmodules: [gcc]\ndefaults: {memory: lots}\n", "file")


@pytest.mark.parametrize(
    ("written", "where", "said"),
    [
        ("native: {slum: [x]}", "native", "'slum' is none of: .*slurm.*did you mean slurm"),
        ("native: {slurm: [{a: b}]}", r"native[...][0]", "must be text, not a mapping"),
        ("env: {1x: y}", "env", "the name of an environment variable"),
        ("env: {A: [b]}", "env[...]", "must be text, not a list"),
        ("resources: {licences: {'a b': 1}}", "resources.licences", "must be 1 to 128 letters"),
    ],
)
def test_a_key_that_cannot_be_is_told_with_its_place(written: str, where: str, said: str) -> None:
    with pytest.raises(BadRequest, match=said) as refused:
        Document(f"command: x\n{written}\n", "job.yaml").read(JobDocument)
    assert refused.value.where.startswith("job.yaml, line 2") and refused.value.where.endswith(f": {where}")
