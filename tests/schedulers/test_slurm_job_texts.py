"""What Slurm is told of jobs, and what is read from what it says, of several releases."""

from __future__ import annotations

import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedulers.test_job_scripts import work
from strata.core.errors import BadRequest, DeviceError, Unavailable
from strata.schedulers.jobs import Accelerators, Array, JobSeen, Resources
from strata.schedulers.slurm import job_replies, partitions, reasons, submission

MARK = "Xy"
TEXTS = st.text(string.printable, max_size=40)


def row(**given: str) -> str:
    """A job as ``squeue`` prints it."""
    fields = {
        "whole": "12", "task": "N/A", "one": "12", "state": "RUNNING", "user": "ada", "exit": "0", "queue": "main",
        "submit": "1794843000", "start": "1794843010", "end": "1794843600", "nodes": "n[1-2]", "reason": "None",
        "comment": "strata:k1", **given,
    }  # fmt: skip
    return MARK.join(fields.values()) + f"{MARK}row{MARK}\n"


def job(**given: str) -> JobSeen:
    (found,) = job_replies.jobs(row(**given), MARK)
    return found


@given(name=TEXTS, path=TEXTS.filter(lambda text: "\\" not in text), key=TEXTS)
def test_no_text_of_a_user_becomes_an_option_or_a_word_of_its_own(name: str, path: str, key: str) -> None:
    plain, _ = submission.build(work())
    given, _ = submission.build(work(name=name, workdir=path, stdout=path, stdin=path, stderr=path, key=key))
    assert len(given) == len(plain) + 1
    assert all(word.startswith("--") for word in given[1:])


def test_everything_that_is_asked_for_is_told_to_slurm() -> None:
    asked = work(
        resources=Resources(
            nodes=2, tasks=4, cores=8, memory=1024, time=61, licences={"matlab": 2, "ansys": 1},
            accelerators=Accelerators(count=4, type="h200"),
        ),
        array=Array(first=2, last=8, step=3, at_once=2), after=(("done", "7"), ("ended", "8_1")), queue="main",
        project="physics", reservation="maint", held=True, native=("--constraint=ib",), stdout="/a%a/%j", stderr="/e",
    )  # fmt: skip
    command, script = submission.build(asked)
    assert {
        *("--nodes=2", "--ntasks=4", "--cpus-per-task=8", "--mem=1024M", "--time=2", "--licenses=ansys:1,matlab:2"),
        *("--gres=gpu:h200:4", "--array=2-8:3%2", "--dependency=afterok:7,afterany:8_1", "--partition=main"),
        *(
            "--account=physics",
            "--reservation=maint",
            "--hold",
            "--output=/a%a/%%j",
            "--error=/e",
            "--comment=strata:k1",
        ),
    } < set(command)
    assert command[-1] == "--constraint=ib"
    # The last one counts, and that is ours.
    alone, _ = submission.build(work(whole_nodes=True, native=("--oversubscribe",)))
    assert alone[-2:] == ("--oversubscribe", "--exclusive")
    assert 'STRATA_ARRAY_INDEX="$SLURM_ARRAY_TASK_ID"' in script


@pytest.mark.parametrize(
    "asked",
    [
        {"after": (("done", "7 --uid=0"),)},
        {"after": (("done", "7:8"),)},
        {"queue": "a b"},
        {"queue": "--uid=0"},
        {"project": ""},
        {"native": ("--wrap=id",)},
        {"native": ("--wra=id",)},
        {"native": ("/tmp/other-script",)},
        {"stdout": "/a\\b"},
    ],
)
def test_what_would_be_something_else_to_slurm_is_refused(asked: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        submission.build(work(**asked))


def test_a_refusal_is_told_apart_from_an_answer_that_is_lost() -> None:
    assert isinstance(
        submission.refusal("sbatch: error: Batch job submission failed: Invalid account specified"), BadRequest
    )
    for lost in ("Socket timed out on send/recv operation", "Unable to contact slurm controller (connect failure)"):
        assert isinstance(submission.refusal(f"sbatch: error: Batch job submission failed: {lost}"), Unavailable)
    assert submission.submitted("12\n") == "12"
    assert submission.submitted("12;east\n") == "12"
    with pytest.raises(DeviceError):
        submission.submitted("sbatch: hello\n")


@pytest.mark.parametrize(
    ("told", "state", "outcome", "status", "signal"),
    [
        ({"state": "PENDING", "nodes": "", "reason": "Priority"}, "waiting", None, None, None),
        ({"state": "PENDING", "nodes": "", "reason": "JobHeldUser"}, "held", None, None, None),
        ({"state": "CONFIGURING"}, "starting", None, None, None),
        ({"state": "RUNNING"}, "running", None, None, None),
        ({"state": "SUSPENDED"}, "suspended", None, None, None),
        ({"state": "COMPLETING", "exit": "15"}, "ending", None, None, None),
        ({"state": "COMPLETED", "exit": "0"}, "ended", "done", 0, None),
        ({"state": "FAILED", "exit": "768"}, "ended", "failed", 3, None),
        ({"state": "FAILED", "exit": "3:0"}, "ended", "failed", 3, None),
        ({"state": "FAILED", "exit": "9"}, "ended", "failed", None, 9),
        ({"state": "FAILED", "exit": "0:9"}, "ended", "failed", None, 9),
        ({"state": "FAILED", "exit": "139"}, "ended", "failed", None, 11),
        ({"state": "CANCELLED by 1000", "exit": "0:15"}, "ended", "cancelled", None, 15),
        ({"state": "CANCELLED", "nodes": "", "exit": "0"}, "ended", "cancelled", None, None),
        ({"state": "TIMEOUT", "exit": "0:0"}, "ended", "timed-out", None, None),
        ({"state": "OUT_OF_MEMORY", "exit": "0:125"}, "ended", "out-of-memory", None, None),
        ({"state": "NODE_FAIL", "exit": "0:0"}, "ended", "node-failed", None, None),
        ({"state": "BOOT_FAIL", "exit": "0:0", "nodes": ""}, "ended", "node-failed", None, None),
        ({"state": "QUANTUM_ENTANGLED"}, "unknown", None, None, None),
    ],
)
def test_a_state_is_what_it_means_and_an_unknown_one_stays_unknown(
    told: dict[str, str], state: str, outcome: str | None, status: int | None, signal: int | None
) -> None:
    seen = job(**told)
    assert (seen.state, seen.outcome, seen.status, seen.signal) == (state, outcome, status, signal)
    assert seen.said == told["state"]


def test_times_nodes_and_ids_are_read() -> None:
    seen = job(whole="12", task="3", one="12_3")
    assert (seen.id, seen.index, seen.key, seen.account, seen.nodes) == ("12_3", 3, "k1", "ada", ("n1", "n2"))
    assert (seen.submitted, seen.began, seen.ended, seen.expected) == (1794843000.0, 1794843010.0, None, None)
    seen = job(state="PENDING", nodes="", reason="Resources")
    assert (seen.began, seen.expected) == (None, 1794843010.0)
    assert seen.reason == "nothing is free that it fits on"
    assert job(comment="(null)").key == job(comment="my strata:k1").key == ""
    assert job(comment="strata:k1\x1e\x1f\n12|x").key == "k1\x1e\x1f\n12|x"


def test_an_answer_that_is_cut_off_or_of_other_columns_is_not_believed() -> None:
    with pytest.raises(DeviceError, match="cut off"):
        job_replies.jobs(row() + row()[:-10], MARK)
    with pytest.raises(DeviceError, match="columns"):
        job_replies.jobs(row(comment=f"a{MARK}b"), MARK)


def test_the_past_is_read_from_the_accounting() -> None:
    # Written by hand after sacct(1) of 24.05: JOB STATE CODES, ExitCode. Comments are printed as they are.
    said = "\n".join((
        "12XyCOMPLETEDXyadaXy0:0XymainXy1794843000Xy1794843010Xy1794843600Xyn[1-2]XyNoneXystrata:k1",
        "13_4XyCANCELLED by 1000XyadaXy0:15XymainXy1794843000Xy1794843010Xy1794843600Xyn1XyNoneXymine",
        "it has two lines",
        "14XyOUT_OF_MEMORYXybobXy0:125XymainXy1794843000Xy1794843010Xy1794843600Xyn1XyNoneXy",
        "15XyCANCELLED by 1000XybobXy0:0XymainXy1794843000XyNoneXy1794843600XyNone assignedXyDependencyXy",
    ))  # fmt: skip
    done, task, memory, never = job_replies.past_jobs(said, MARK)
    assert (done.id, done.key, done.outcome, done.status, done.nodes) == ("12", "k1", "done", 0, ("n1", "n2"))
    assert (task.id, task.index, task.outcome, task.signal) == ("13_4", 4, "cancelled", 15)
    assert (memory.outcome, memory.signal, memory.reason) == ("out-of-memory", None, "it used more memory than it had")
    assert (never.outcome, never.began, never.ended, never.nodes) == ("cancelled", None, 1794843600.0, ())
    newer = job(whole="12", one="12", state="FAILED", exit="256")
    assert {seen.id: seen.outcome for seen in job_replies.together([newer], [done, task])} == {
        "12": "failed",
        "13_4": "cancelled",
    }


def test_how_long_slurm_remembers_is_read_from_its_configuration() -> None:
    told = "AccountingStorageType   = accounting_storage/slurmdbd\nMinJobAge               = 300 sec\n"
    assert job_replies.memory(told) == (300.0, True)
    assert job_replies.memory("AccountingStorageType   = (null)\nMinJobAge = 2 sec\n") == (2.0, False)


# In the form in which Owens of OSC says it (OSC/ood_core, spec/fixtures/output/slurm/owens_partitions.txt), with the
# fields that scontrol(1) of 24.05 adds; the values are ours. What 22.05 says: test_slurm_jobs.
PARTITIONS = """\
PartitionName=cpu AllowGroups=ALL AllowAccounts=ALL DenyAccounts=guests AllowQos=ALL AllocNodes=ALL Default=YES \
QoS=N/A DefaultTime=01:00:00 DisableRootJobs=NO ExclusiveUser=NO ExclusiveTopo=NO GraceTime=0 Hidden=NO \
MaxNodes=UNLIMITED MaxTime=2-00:00:00 MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED MaxCPUsPerSocket=UNLIMITED \
Nodes=n[1-8] PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=NO State=UP TotalCPUs=512 TotalNodes=8 \
TRES=cpu=512,mem=2T,node=8,billing=512
PartitionName=gpu AllowGroups=physics,staff AllowAccounts=lab,dept AllowQos=ALL Default=NO MaxNodes=2 MaxTime=30:00 \
PriorityTier=10 RootOnly=NO State=DRAIN TotalNodes=4
PartitionName=admin AllowGroups=ALL AllowAccounts=ALL Default=NO MaxNodes=UNLIMITED MaxTime=UNLIMITED RootOnly=YES \
State=UP TotalNodes=12
"""
NODES = """\
cpu*|64|256000|(null)|idle|3
cpu*|128|512000+|(null)|mixed|5
gpu|64|512000|gpu:h200:4(S:0-1),gpu:a100:2|idle|2
gpu|64|512000|gpu:8,nvme:1|idle+drain|2
"""


def test_partitions_are_queues_with_their_limits_and_whoever_may_use_them() -> None:
    assert partitions.groups(PARTITIONS) == ["physics", "staff"]
    members = {"physics": ["ada"], "staff": ["bob", "eve"]}
    cpu, gpu, admin = partitions.queues(PARTITIONS, NODES, "cpu\ncpu,gpu\n", members)
    assert (cpu.open, cpu.default, cpu.most_time, cpu.most_nodes, cpu.nodes) == (True, True, 172_800, None, 8)
    assert (cpu.node_cores, cpu.node_memory, cpu.free_nodes, cpu.waiting) == (128, 512_000, 3, 2)
    assert (cpu.accounts, cpu.projects, cpu.not_projects) == (None, None, {"guests"})
    assert (gpu.open, gpu.most_time, gpu.most_nodes, gpu.waiting, gpu.priority) == (False, 1800, 2, 1, 10)
    assert (gpu.accounts, gpu.projects) == ({"ada", "bob", "eve"}, {"lab", "dept"})
    assert gpu.accelerators == {"h200": 4, "a100": 2, "": 8}
    assert gpu.free_nodes == 2
    assert (admin.accounts, admin.most_time) == (frozenset(), None)
    with pytest.raises(DeviceError):
        partitions.queues("slurm_load_partitions error\n", NODES, "", {})


def test_reasons_are_told_in_words_and_unknown_ones_as_they_are() -> None:
    assert reasons.words("Priority") == "other jobs come first"
    assert reasons.words("(Resources)") == "nothing is free that it fits on"
    assert reasons.words("ReqNodeNotAvail, UnavailableNodes:n[1-2]") == (
        "a node that it needs is not there (ReqNodeNotAvail, UnavailableNodes:n[1-2])"
    )
    assert reasons.words("QOSGrpNodeLimit") == "a limit of its quality of service: QOSGrpNodeLimit"
    assert reasons.words("SomethingNew_27") == "SomethingNew_27"
    assert reasons.words("None") == ""


def test_when_a_job_would_begin_is_read_and_never_is_not_a_time() -> None:
    said = "sbatch: Job 11 to start at {} using 1 processors on nodes r1 in partition all"
    assert submission.starts(said.format(1794843177), 1794843000.0) == 1794843177.0
    assert submission.starts(said.format(259492880877), 1794843000.0) is None
    assert submission.starts("sbatch: nothing", 0.0) is None
