"""Scripts, options and queues of jobs, whichever the scheduler is: what users write stays what it is."""

from __future__ import annotations

import json
import string
import subprocess
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.core.errors import BadRequest
from strata.schedulers.abilities import check, refusals
from strata.schedulers.choice import choose
from strata.schedulers.jobs import Ability, Accelerators, Array, Queue, Resources, Work
from strata.schedulers.kinds import JOB_KINDS, open_job_scheduler
from strata.schedulers.options import check_long, check_single
from strata.schedulers.runner import Place, Runner
from strata.schedulers.scripts import whole

PRINT = "#!/usr/bin/python3\nimport json, os\nprint(json.dumps(dict(os.environ)))\n"
NAMES = st.text(string.ascii_uppercase, min_size=1, max_size=8).map(lambda name: f"V_{name}")
VALUES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=60)


def work(script: str = "#!/bin/sh\ntrue\n", **more: Any) -> Work:
    return Work(**{"key": "k1", "name": "a job", "script": script, "account": "ada", "workdir": "/home/ada",
                   "stdout": "/home/ada/out", **more})  # fmt: skip


def shell(script: str, **env: str) -> str:
    """What a script prints that a scheduler runs by ``sh``."""
    given = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", **env}
    return subprocess.run(["sh"], input=script.encode(), env=given, capture_output=True, check=True).stdout.decode()


@pytest.mark.server
@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(st.dictionaries(NAMES, VALUES, max_size=4))
def test_an_environment_arrives_as_it_was_given(env: dict[str, str]) -> None:
    told = json.loads(shell(whole(work(PRINT, env=env))))
    assert {name: told[name] for name in env} == env


@pytest.mark.server
@pytest.mark.slow
def test_a_script_is_run_by_the_interpreter_that_it_names() -> None:
    assert shell(whole(work("#!/bin/sh\necho $0"))) == "sh\n"
    assert shell(whole(work("#!/bin/bash -e\n[[ a == a ]] && echo $BASH_VERSINFO | wc -l"))) == "1\n"
    assert shell(whole(work("#!/usr/bin/env python3\nprint('STRATA_END_OF_SCRIPT')\n"))) == "STRATA_END_OF_SCRIPT\n"
    long = "#!/usr/bin/python3\n" + "# so long that no pipe holds it\n" * 10_000 + "print('whole')"
    assert shell(whole(work(long))) == "whole\n"
    each = whole(work("#!/bin/sh\necho $STRATA_ARRAY_INDEX", array=Array(last=3)), "$TASK")
    assert shell(each, TASK="2") == "2\n"


def test_no_line_of_a_script_is_an_option_of_the_scheduler() -> None:
    text = whole(work("#!/bin/sh\n#SBATCH --uid=0\n#$ -q other\n#PBS -q other\ntrue\n"))
    assert text.splitlines()[:2] == ["#!/bin/sh", ":"], "a scheduler stops looking for options at the first command"


@pytest.mark.parametrize(
    ("script", "env", "where"),
    [
        ("true\n", {}, "script"),
        ("#!\ntrue\n", {}, "script"),
        ("#!/bin/sh\n", {"A B": "x"}, "env"),
        ("#!/bin/sh\n", {"A;id": "x"}, "env"),
        ("#!/bin/sh\n", {"A": "x\0y"}, "env"),
    ],
)
def test_what_no_shell_can_run_is_refused(script: str, env: dict[str, str], where: str) -> None:
    with pytest.raises(BadRequest) as caught:
        whole(work(script, env=env))
    assert caught.value.where == where


def test_what_a_scheduler_cannot_do_is_refused_by_the_field() -> None:
    nothing = Ability(
        nodes=False, array=False, array_at_once=False, after=frozenset(), memory=False, accelerators=False, time=False,
        licences=False, project=False, reservation=False, hold=False, stdin=False, queues=False,
        native=False,
    )  # fmt: skip
    asks = work(
        resources=Resources(
            nodes=2, memory=1, time=1, power=1, licences={"x": 1}, accelerators=Accelerators(count=1, memory=1)
        ),
        array=Array(last=1, at_once=1), after=(("done", "1"),), queue="q", project="p", reservation="r", held=True,
        stdin="/in", native=("--x",),
    )  # fmt: skip
    assert {field for field, _ in refusals(nothing, asks, "paper")} == {
        *("resources.nodes", "resources.memory", "resources.time", "resources.power", "resources.licences"),
        *(
            "resources.accelerators",
            "array",
            "array.at_once",
            "after",
            "queue",
            "project",
            "reservation",
            "held",
            "stdin",
            "native",
        ),
    }
    assert not list(refusals(nothing, work(), "paper"))
    ((field, why),) = refusals(nothing, work(whole_nodes=True), "paper")
    assert (field, why.partition(",")[0]) == ("resources.power", "paper cannot keep other jobs off the nodes of one")
    with pytest.raises(BadRequest, match="paper cannot run a job on more than one node"):
        check(nothing, asks, "paper")
    typed = work(resources=Resources(accelerators=Accelerators(count=1, type="h200", memory=1)))
    assert [field for field, _ in refusals(Ability(accelerator_type=False), typed, "x")] == [
        "resources.accelerators.type",
        "resources.accelerators.memory",
    ]


@pytest.mark.parametrize("word", ["script.sh", "-", "--", "--comment=x", "--com=x", "-Wx", "-HW", "-H-", ""])
def test_an_option_by_which_a_job_would_be_lost_is_refused(word: str) -> None:
    with pytest.raises(BadRequest):
        check_long([word], ("comment", "wait"), "W", "H")
    assert check_long(["--constraint=a", "-Hpx", "-pW"], ("comment", "wait"), "W", "H")


@pytest.mark.parametrize("words", [["-ac", "x=y"], ["script.sh"], ["-l"], ["-q", "a", "script.sh"], ["--"]])
def test_an_option_with_its_value_behind_it_brings_nothing_else_along(words: list[str]) -> None:
    with pytest.raises(BadRequest):
        check_single(words, ("-ac",), {"-l": 1, "-q": 1, "-R": 1})
    assert check_single(["-l", "-ac", "-q", "a"], ("-ac",), {"-l": 1, "-q": 1}) == ("-l", "-ac", "-q", "a")


BIG = Queue(name="big", open=True, most_time=86_400, most_nodes=4, node_cores=64, node_memory=1000, nodes=8,
            accelerators={"h200": 4}, waiting=5)  # fmt: skip


@pytest.mark.parametrize(
    ("queue", "asked", "why"),
    [
        ({"open": False}, {}, "it is closed"),
        ({"accounts": frozenset({"bob"})}, {}, "ada may not use it"),
        ({"not_accounts": frozenset({"ada"})}, {}, "ada may not use it"),
        ({"projects": frozenset({"x"})}, {"project": "y"}, "the project y may not use it"),
        ({"projects": frozenset({"x"})}, {}, "only jobs of a project may use it: x"),
        ({"not_projects": frozenset({"y"})}, {"project": "y"}, "the project y may not use it"),
        ({}, {"resources": Resources(time=86_401)}, "it ends jobs after 86400 s, and 86401 s are asked for"),
        ({}, {"resources": Resources(nodes=5)}, "it gives a job 4 nodes at most, and 5 are asked for"),
        ({"nodes": 2}, {"resources": Resources(nodes=3)}, "it gives a job 2 nodes at most, and 3 are asked for"),
        (
            {},
            {"resources": Resources(nodes=2, tasks=3, cores=33)},
            "its largest node has 64 cores, and 66 are asked for on one node",
        ),
        ({}, {"resources": Resources(memory=1001)}, "its largest node has 1000 MiB, and 1001 MiB are asked for"),
        (
            {},
            {"resources": Resources(accelerators=Accelerators(count=5))},
            "its nodes have 4 accelerators, and 5 are asked for on one node",
        ),
        (
            {},
            {"resources": Resources(accelerators=Accelerators(count=1, type="a100"))},
            "its nodes have 0 accelerators of type a100, and 1 are asked for on one node",
        ),
        ({}, {"queue": "other"}, "other was asked for"),
    ],
)
def test_a_queue_that_a_job_cannot_use_says_why(queue: dict[str, Any], asked: dict[str, Any], why: str) -> None:
    found = choose([msgspec.structs.replace(BIG, **queue)], work(**asked), "ada")
    assert found.queue is None
    assert found.refused == {"big": (why,)}


def test_a_job_goes_where_it_begins_first() -> None:
    small = Queue(name="small", open=True, nodes=2, free_nodes=1, default=True)
    busy = Queue(name="busy", open=True, nodes=2, waiting=2, priority=9)
    empty = Queue(name="empty", open=True, nodes=2, waiting=0)
    assert choose([BIG, busy, small], work(), "ada").queue == small
    assert choose([BIG, busy, empty], work(), "ada").queue == empty
    wide = choose([BIG, busy, small], work(resources=Resources(nodes=2)), "ada")
    assert wide.queue == small, "nobody waits there"
    chosen = choose([BIG, busy, small], work(queue="busy"), "ada")
    assert (chosen.queue, chosen.why) == (busy, "it was asked for")
    assert set(chosen.refused) == {"big", "small"}


def test_every_kind_of_scheduler_opens() -> None:
    for kind in JOB_KINDS:
        assert isinstance(open_job_scheduler(kind, Runner(Place())).ability, Ability)
    with pytest.raises(BadRequest, match="no such workload manager"):
        open_job_scheduler("paper", Runner(Place()))
