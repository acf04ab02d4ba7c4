"""PBS, LSF and HTCondor: what they are told of jobs, and what is read from what they say.

No daemon of theirs is in Debian, so that answers are recorded ones: names of fields, forms of values and words are
those of the sources that are named at each, the values are ours. What their commands are given is checked by stubs.
"""

from __future__ import annotations

import base64
import string
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedulers.test_job_scripts import work
from strata.core.errors import BadRequest, Denied, DeviceError, Unavailable
from strata.schedulers.htcondor import texts as htcondor
from strata.schedulers.jobs import MOST_PAST, Accelerators, Array, JobSeen, Resources
from strata.schedulers.kinds import open_job_scheduler
from strata.schedulers.lsf import texts as lsf
from strata.schedulers.pbs import texts as pbs
from strata.schedulers.runner import Place, Runner

KINDS = [pbs, lsf, htcondor]
TEXTS = st.text(string.printable, max_size=40)


@pytest.mark.parametrize("texts", KINDS)
@given(name=TEXTS, path=TEXTS, value=TEXTS)
def test_no_text_of_a_user_becomes_an_option_or_a_line(texts: ModuleType, name: str, path: str, value: str) -> None:
    plain, script = texts.build(work())
    command, text = texts.build(
        work(name=name, workdir=path, stdout=path, stderr=path, stdin=path, env={"A": f"SECRET{value}"})
    )
    assert len(command) == len(plain)
    if texts is htcondor:
        assert len(text.splitlines()) == len(script.splitlines())
    else:
        assert "SECRET" not in " ".join(command), "whatever is in an environment is in no list of processes"


@pytest.mark.parametrize("texts", KINDS)
@pytest.mark.parametrize(
    "asked",
    [
        {"key": "k 1"},
        {"after": (("ended", "7; id"),)},
        {"project": "a b"},
        {"native": ("other-script",)},
        {"native": ("-o", "/x")},
        {"native": ("executable = /x\nqueue",)},
        {"script": "no interpreter"},
    ],
)
async def test_what_would_be_something_else_to_them_is_refused(texts: ModuleType, asked: dict[str, Any]) -> None:
    adapter = open_job_scheduler(texts.__name__.split(".")[2], Runner(Place()))
    with pytest.raises(BadRequest):
        await adapter.submit(work(**asked))


WHOLE = work(
    resources=Resources(
        nodes=2, tasks=4, cores=2, memory=1024, time=61, licences={"matlab": 2}, accelerators=Accelerators(count=4)
    ),
    array=Array(first=0, last=8, step=4, at_once=2), queue="main", project="physics", held=True, name="1 name",
)  # fmt: skip


def test_everything_that_is_asked_for_is_told_to_pbs() -> None:
    after = msgspec.structs.replace(
        WHOLE, after=(("done", "7.head"), ("ended", "8[].head")), native=("-l", "ib=true", "-m", "n")
    )
    command, script = pbs.build(after)
    told = " ".join(command)
    for words in (
        *("-l select=2:ncpus=4:mpiprocs=2:mem=1024mb:ngpus=4 -l place=scatter", "-l walltime=61", "-l matlab=2"),
        *("-J 0-8:4%2", "-W depend=afterok:7.head,afterany:8[].head", "-q main -P physics -h -l ib=true -m n"),
        *("-v STRATA_KEY=k1", "-N _1_name"),
    ):
        assert words in told
    assert 'STRATA_ARRAY_INDEX="$PBS_ARRAY_INDEX"' in script
    uneven, _ = pbs.build(work(resources=Resources(nodes=2, tasks=3)))
    assert "select=1:ncpus=2:mpiprocs=2+1:ncpus=1:mpiprocs=1" in uneven
    assert "-q R7" in " ".join(pbs.build(work(reservation="R7"))[0])
    for refused in (
        work(reservation="R7", queue="main"),
        work(array=Array(last=0)),
        work(resources=Resources(nodes=2)),
    ):
        with pytest.raises(BadRequest):
            pbs.build(refused)


def test_everything_that_is_asked_for_is_told_to_lsf() -> None:
    after = msgspec.structs.replace(
        WHOLE, after=(("done", "7"), ("failed", "8[2]")), native=("-x", "-R", "select[ib]"), reservation="maint",
        resources=msgspec.structs.replace(
            WHOLE.resources, accelerators=Accelerators(count=4, type="H200", memory=1024)
        ),
        script="#!/bin/sh\n#BSUB -q other\ntrue\n",
    )  # fmt: skip
    command, script = lsf.build(after)
    told = " ".join(command)
    for words in (
        *("-J 1_name[1-9:4]%2 -Jd strata:k1", "-n 8 -R span[ptile=4]", "-M 1024MB -R rusage[mem=1024MB]", "-W 2"),
        *("-gpu num=4:gmodel=H200:gmem=1024M", "-R rusage[matlab=2]", "-w done(7) && exit(8[2]) -ti"),
        *("-q main -P physics -U maint -H -x -R select[ib]",),
    ):
        assert words in told
    assert 'STRATA_ARRAY_INDEX="$((LSB_JOBINDEX - 1))"' in script
    assert "\n#BSUB" not in script
    assert "span[hosts=1]" in lsf.build(work(resources=Resources(cores=4)))[0]
    with pytest.raises(BadRequest, match="cannot be divided"):
        lsf.build(work(resources=Resources(nodes=2, tasks=3)))


@pytest.mark.server
def test_everything_that_is_asked_for_is_told_to_htcondor_and_its_script_runs() -> None:
    asked = msgspec.structs.replace(
        WHOLE, queue=None, env={"HOSTILE": "a,b\n$(id) 'x' \"y\""}, native=('requirements = (Arch == "X86_64")',),
        resources=msgspec.structs.replace(WHOLE.resources, nodes=1),
        script='#!/bin/sh\nprintf %s "$HOSTILE:$STRATA_ARRAY_INDEX:$STRATA_SCRIPT"\n', workdir="/",
        stdout="/dev/stdout", stderr="/dev/stderr",
    )  # fmt: skip
    command, text = htcondor.build(asked)
    assert command == ("condor_submit", "-terse", "-")
    lines = dict(line.partition(" = ")[::2] for line in text.splitlines())
    assert lines["request_cpus"] == "8"
    assert lines["request_memory"] == "1024MB"
    assert lines["request_gpus"] == "4"
    assert lines["concurrency_limits"] == "matlab:2"
    assert lines["accounting_group"] == "physics"
    assert lines["hold"] == "true"
    assert lines["max_materialize"] == "2"
    assert lines["+StrataKey"] == '"k1"'
    assert lines["batch_name"] == "1 name"
    assert "JobCurrentStartDate > 61" in lines["periodic_remove"]
    assert lines["requirements"] == '(Arch == "X86_64")'
    assert text.endswith("+StrataIndex = $(StrataIndex)\nqueue StrataIndex in (0 4 8)\n")
    # As HTCondor splits them: doubled double quotes are one, single quotes keep a word together.
    words = _condor_words(lines["arguments"])
    variables = dict(word.partition("=")[::2] for word in lines["environment"][1:-1].split())
    assert base64.b64decode(variables["STRATA_SCRIPT"]).startswith(b"unset STRATA_SCRIPT\n")
    env = {"PATH": "/usr/bin:/bin", **variables, "STRATA_ARRAY_INDEX": "4"}
    ran = subprocess.run(["sh", *words], env=env, stdout=subprocess.PIPE, text=True, check=True)
    assert ran.stdout == "a,b\n$(id) 'x' \"y\":4:"
    with pytest.raises(BadRequest, match="bytes at most"):
        htcondor.build(work("#!/bin/sh\n" + "#" * 100_000))


def _condor_words(line: str) -> list[str]:
    option, _, rest = line[1:-1].replace('""', '"').partition(" ")
    return [option, rest[1:-1]]


# Attributes and forms: qstat(1B) of OpenPBS, "-F json"; the record of a job of PBS Pro 13 in the specs of Open OnDemand
# (OSC/ood_core, spec/job/adapters/pbspro_spec.rb); ended ones as PSI/J reads them (ExaWorks/psij-python, pbs_base.py).
def pbs_job(**told: object) -> JobSeen:
    record = {
        "Job_Name": "be_5", "Job_Owner": "ada@login3.cm.cluster", "job_state": "Q", "queue": "windfall",
        "server": "head1.cm.cluster", "ctime": "Fri Jun 23 06:31:33 2017", "mtime": "Fri Jun 23 06:41:33 2017",
        "qtime": "Fri Jun 23 06:31:33 2017", "Hold_Types": "n", "Resource_List": {"ncpus": 14, "walltime": "240:00:00"},
        "substate": 10, "Variable_List": {"PBS_O_HOME": "/home/ada", "STRATA_KEY": "k1"},
        "comment": "Not Running: Insufficient amount of resource: ncpus", **told,
    }  # fmt: skip
    reply = {
        "timestamp": 1498203093,
        "pbs_version": "23.06.06",
        "pbs_server": "head1",
        "Jobs": {"718894.head1": record},
    }
    (found,) = pbs.jobs(["", msgspec.json.encode(reply).decode()])
    return found


@pytest.mark.parametrize(
    ("told", "state", "outcome", "status", "signal"),
    [
        ({}, "waiting", None, None, None),
        ({"job_state": "H", "Hold_Types": "u"}, "held", None, None, None),
        ({"job_state": "H", "Hold_Types": "s", "depend": "afterok:1.head1"}, "waiting", None, None, None),
        ({"job_state": "R"}, "running", None, None, None),
        ({"job_state": "E"}, "ending", None, None, None),
        ({"job_state": "S"}, "suspended", None, None, None),
        ({"job_state": "F", "Exit_status": 0, "substate": 92}, "ended", "done", 0, None),
        ({"job_state": "F", "Exit_status": 3, "substate": 93}, "ended", "failed", 3, None),
        ({"job_state": "F", "Exit_status": 265, "substate": 93}, "ended", "failed", None, 9),
        ({"job_state": "F", "Exit_status": 271, "substate": 91}, "ended", "cancelled", None, 15),
        ({"job_state": "F", "substate": 91}, "ended", "cancelled", None, None),
        ({"job_state": "F", "Exit_status": -29, "substate": 93}, "ended", "timed-out", None, None),
        (
            {"job_state": "F", "Exit_status": 271, "comment": "Job run and exceeded resource walltime"},
            *("ended", "timed-out", None, 15),
        ),
        ({"job_state": "F", "Exit_status": -27}, "ended", "out-of-memory", None, None),
        ({"job_state": "X", "Exit_status": 0}, "ended", "done", 0, None),
        ({"job_state": "F"}, "ended", None, None, None),
        ({"job_state": "?"}, "unknown", None, None, None),
    ],
)
def test_states_of_pbs(
    told: dict[str, object], state: str, outcome: str | None, status: int | None, signal: int | None
) -> None:
    seen = pbs_job(**told)
    assert (seen.state, seen.outcome, seen.status, seen.signal) == (state, outcome, status, signal)


def test_a_job_of_pbs_is_read_whole() -> None:
    seen = pbs_job()
    assert (seen.id, seen.key, seen.account, seen.queue) == ("718894.head1", "k1", "ada", "windfall")
    assert (seen.submitted, seen.reason) == (1498199493.0, "Not Running: Insufficient amount of resource: ncpus")
    seen = pbs_job(
        job_state="F",
        Exit_status=0,
        stime="Fri Jun 23 06:31:40 2017",
        history_timestamp=1498200000,
        exec_host="n1/0*4+n1/1*4+n2/0*4",
        Variable_List="PBS_O_HOME=/home/ada,STRATA_KEY=k2",
        array_index="3",
    )
    assert (seen.began, seen.ended, seen.nodes) == (1498199500.0, 1498200000.0, ("n1", "n2"))
    assert (seen.key, seen.index, seen.reason) == ("k2", 3, "")
    array = '{"Jobs": {"7[].head1": {"job_state": "B"}, "7[0].head1": {"job_state": "X", "Exit_status": 0}}}'
    assert [job.id for job in pbs.jobs([array])] == ["7[0].head1"], "the array itself is no job"
    broken = '{"Jobs": {"1.h": {"job_state": "R", "Job_Name": "a\tb"}}}'
    assert [job.state for job in pbs.jobs([broken])] == ["running"], "PBS does not escape what users write"
    with pytest.raises(DeviceError):
        pbs.jobs(["qstat: hello"])


# Attributes: pbs_queue_attributes(7B), pbs_server_attributes(7B), pbsnodes(8B) of OpenPBS with "-F json".
PBS_QUEUES = [
    """{"Queue": {
    "route": {"queue_type": "Route", "enabled": "True", "started": "True"},
    "main": {"queue_type": "Execution", "enabled": "True", "started": "True", "Priority": 10,
      "state_count": "Transit:0 Queued:3 Held:0 Waiting:0 Running:1 Exiting:0 Begun:0 ",
      "resources_max": {"walltime": "48:00:00", "nodect": 4}},
    "gpu": {"queue_type": "Execution", "enabled": "True", "started": "False", "acl_user_enable": "True",
      "acl_users": "ada,bob@login,-eve", "acl_group_enable": "True", "acl_groups": "physics"}}}""",
    '{"Server": {"head1": {"default_queue": "main"}}}',
    """{"nodes": {
    "n1": {"state": "free", "resources_available": {"ncpus": 64, "mem": "263795868kb", "ngpus": 4}},
    "n2": {"state": "job-busy", "resources_available": {"ncpus": 32, "mem": "128gb"}, "queue": "main"},
    "n3": {"state": "down,offline", "resources_available": {"ncpus": 64}}}}""",
]


def test_queues_of_pbs() -> None:
    assert pbs.groups(PBS_QUEUES) == ["physics"]
    main, gpu = pbs.queues(PBS_QUEUES, {"physics": frozenset({"ada", "eve"})})
    assert (main.name, main.open, main.default, main.most_time, main.most_nodes) == ("main", True, True, 172_800, 4)
    assert (main.node_cores, main.node_memory, main.accelerators) == (64, 257_613, {"": 4})
    assert (main.nodes, main.free_nodes, main.waiting, main.priority, main.accounts) == (2, 1, 3, 10, None)
    assert (gpu.open, gpu.default, gpu.accounts) == (False, False, {"ada"})


# Fields: bjobs -o of LSF 10.1; `-json` as PSI/J reads it (ExaWorks/psij-python, lsf.py); reasons: TERM_* of LSF.
def lsf_job(**told: str) -> JobSeen:
    record = {
        "JOBID": "473713", "JOBINDEX": "0", "STAT": "PEND", "USER": "ada", "QUEUE": "normal",
        "JOB_DESCRIPTION": "strata:k1", "EXIT_CODE": "", "EXIT_REASON": "", "PEND_REASON": "New job is waiting",
        "SUBMIT_TIME": "Oct 19 17:10:05 2026", "START_TIME": "", "FINISH_TIME": "", "EXEC_HOST": "", **told,
    }  # fmt: skip
    reply = {"COMMAND": "bjobs", "JOBS": 1, "RECORDS": [record]}
    (found,) = lsf.jobs([msgspec.json.encode(reply).decode()])
    return found


@pytest.mark.parametrize(
    ("told", "state", "outcome", "status", "signal"),
    [
        ({}, "waiting", None, None, None),
        ({"STAT": "PSUSP"}, "held", None, None, None),
        ({"STAT": "RUN"}, "running", None, None, None),
        ({"STAT": "USUSP"}, "suspended", None, None, None),
        ({"STAT": "UNKWN"}, "unknown", None, None, None),
        ({"STAT": "DONE"}, "ended", "done", 0, None),
        ({"STAT": "EXIT", "EXIT_CODE": "3"}, "ended", "failed", 3, None),
        ({"STAT": "EXIT", "EXIT_CODE": "137"}, "ended", "failed", None, 9),
        (
            {"STAT": "EXIT", "EXIT_CODE": "130", "EXIT_REASON": "TERM_OWNER: job killed by owner"},
            *("ended", "cancelled", None, 2),
        ),
        (
            {
                "STAT": "EXIT",
                "EXIT_CODE": "140",
                "EXIT_REASON": "TERM_RUNLIMIT: job killed after reaching LSF run limit",
            },
            *("ended", "timed-out", None, 12),
        ),
        (
            {
                "STAT": "EXIT",
                "EXIT_CODE": "137",
                "EXIT_REASON": "TERM_MEMLIMIT: job killed after reaching memory limit",
            },
            *("ended", "out-of-memory", None, 9),
        ),
    ],
)
def test_states_of_lsf(
    told: dict[str, str], state: str, outcome: str | None, status: int | None, signal: int | None
) -> None:
    seen = lsf_job(**told)
    assert (seen.state, seen.outcome, seen.status, seen.signal) == (state, outcome, status, signal)


def test_a_job_of_lsf_is_read_whole() -> None:
    seen = lsf_job()
    assert (seen.id, seen.key, seen.account, seen.queue) == ("473713", "k1", "ada", "normal")
    assert (seen.submitted, seen.reason) == (1792429805.0, "New job is waiting")
    seen = lsf_job(JOBINDEX="3", STAT="DONE", START_TIME="Oct 19 17:11:05 2026", FINISH_TIME="Oct 19 17:12:05 2026 L",
                   EXEC_HOST="4*n1:2*n2")  # fmt: skip
    assert (seen.id, seen.index, seen.nodes) == ("473713[3]", 2, ("n1", "n2"))
    assert (seen.began, seen.ended) == (1792429865.0, 1792429925.0)
    assert lsf.jobs([""]) == []
    assert lsf.jobs(['{"RECORDS": [{"JOBID": "7", "ERROR": "Job <7> is not found"}]}']) == []
    assert lsf.submitted("Generic job.\nJob <473713> is submitted to queue <pub.1h>.\n") == "473713"
    for said in ("hello", '{"JOBS": 0}'):
        with pytest.raises(DeviceError):
            lsf.jobs([said])


# Form: bqueues(1) of LSF 10.1, "-l".
BQUEUES = """
QUEUE: normal
  -- For normal low priority jobs, running only if hosts are lightly loaded.  This is the default queue.

PARAMETERS/STATISTICS
PRIO NICE STATUS          MAX JL/U JL/P JL/H NJOBS  PEND   RUN SSUSP USUSP  RSV PJOBS
 30    0  Open:Active       -    -    -    -     5     4     1     0     0    0     4

Interval for a host to accept two jobs is 0 seconds

 RUNLIMIT
 1440.0 min

USERS: ada physics/ ~eve
HOSTS:  all

-------------------------------------------------------------------------------

QUEUE: night
  -- At night.

PARAMETERS/STATISTICS
PRIO NICE STATUS          MAX JL/U JL/P JL/H NJOBS  PEND   RUN SSUSP USUSP  RSV PJOBS
 40    0  Open:Inact        -    -    -    -     0     0     0     0     0    0     0

USERS: all
HOSTS:  all
"""


def test_queues_of_lsf() -> None:
    assert lsf.groups([BQUEUES]) == ["physics"]
    normal, night = lsf.queues([BQUEUES], {"physics": frozenset({"bob"})})
    assert (normal.name, normal.open, normal.most_time, normal.waiting, normal.priority) == (
        "normal",
        True,
        86_400,
        4,
        30,
    )
    assert (normal.accounts, normal.not_accounts) == ({"ada", "bob"}, {"eve"})
    assert (night.open, night.most_time, night.accounts) == (False, None, None)


# Attributes: "Job ClassAd Attributes" in the manual of HTCondor 23; forms as condor_q(1) -json prints them.
def condor_job(**told: object) -> JobSeen:
    ad = {"ClusterId": 52, "ProcId": 0, "JobStatus": 1, "Owner": "ada", "StrataKey": "k1", "QDate": 1792429805,
          "EnteredCurrentStatus": 1792429805, "CompletionDate": 0, "ExitBySignal": False, **told}  # fmt: skip
    (found,) = htcondor.jobs([msgspec.json.encode([ad]).decode(), ""])
    return found


@pytest.mark.parametrize(
    ("told", "state", "outcome", "status", "signal"),
    [
        ({}, "waiting", None, None, None),
        ({"JobStatus": 2}, "running", None, None, None),
        ({"JobStatus": 5, "HoldReason": "via condor_hold (by user ada)"}, "held", None, None, None),
        ({"JobStatus": 6}, "ending", None, None, None),
        ({"JobStatus": 7}, "suspended", None, None, None),
        ({"JobStatus": 4, "ExitCode": 0}, "ended", "done", 0, None),
        ({"JobStatus": 4, "ExitCode": 3}, "ended", "failed", 3, None),
        ({"JobStatus": 4, "ExitBySignal": True, "ExitSignal": 9}, "ended", "failed", None, 9),
        ({"JobStatus": 3, "RemoveReason": "via condor_rm (by user ada)"}, "ended", "cancelled", None, None),
        ({"JobStatus": 3, "RemoveReason": "strata: its time was over"}, "ended", "timed-out", None, None),
        ({"JobStatus": 3, "LastHoldReasonCode": 34}, "ended", "out-of-memory", None, None),
        ({"JobStatus": 9}, "unknown", None, None, None),
    ],
)
def test_states_of_htcondor(
    told: dict[str, object], state: str, outcome: str | None, status: int | None, signal: int | None
) -> None:
    seen = condor_job(**told)
    assert (seen.state, seen.outcome, seen.status, seen.signal) == (state, outcome, status, signal)


def test_a_job_of_htcondor_is_read_whole() -> None:
    seen = condor_job(JobStatus=4, ExitCode=0, JobStartDate=1792429865, CompletionDate=1792429925,
                      LastRemoteHost="slot1@n1.cluster")  # fmt: skip
    assert (seen.id, seen.key, seen.account, seen.nodes) == ("52", "k1", "ada", ("n1.cluster",))
    assert (seen.submitted, seen.began, seen.ended) == (1792429805.0, 1792429865.0, 1792429925.0)
    seen = condor_job(ProcId=2, StrataIndex=4)
    assert (seen.id, seen.index) == ("52.2", 4)
    assert condor_job(StrataKey="", ProcId=1).id == "52.1"
    assert htcondor.submitted("52.0 - 52.4\n") == "52"
    # It ended between the two answers.
    queue = '[{"ClusterId": 1, "ProcId": 0, "JobStatus": 2, "StrataKey": "k"}]'
    history = '[{"ClusterId": 1, "ProcId": 0, "JobStatus": 4, "StrataKey": "k", "ExitCode": 0}]'
    both = htcondor.jobs([queue, history])
    assert [(job.id, job.outcome) for job in both] == [("1", "done")]
    for said in ("-- Failed to fetch ads", '{"a": 1}'):
        with pytest.raises(DeviceError):
            htcondor.jobs([said, ""])


@pytest.mark.parametrize("texts", KINDS)
def test_an_id_is_an_id(texts: ModuleType) -> None:
    for wrong in ("", "-x", "7 8", "7;id", "$(id)", "7\n"):
        with pytest.raises(BadRequest):
            texts.job_id(wrong)
    with pytest.raises(DeviceError):
        texts.submitted("hello")


@pytest.fixture
def stubs() -> Iterator[Path]:
    """Commands of PBS that say what a file of their name says. Not in pytest's own folders: those are root's alone."""
    stub = '#!/bin/sh\ncat > /dev/null\ncat "$0.says"\ncat "$0.warns" >&2\nexit "$(cat "$0.ends")"\n'
    with tempfile.TemporaryDirectory(prefix="pbs-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        for command in ("qsub", "qstat", "qdel"):
            (folder / command).write_text(stub, encoding="utf-8")
            (folder / command).chmod(0o755)
            say(folder, command)
        yield folder


def say(stubs: Path, name: str, says: str = "", warns: str = "", ends: int = 0) -> None:
    for what, text in (("says", says), ("warns", warns), ("ends", str(ends))):
        (stubs / f"{name}.{what}").write_text(text, encoding="utf-8")


@pytest.mark.server
async def test_what_goes_wrong_is_told_apart(stubs: Path) -> None:
    # Words: qsub(1B), qdel(1B), qstat(1B) of OpenPBS.
    adapter = open_job_scheduler("pbs", Runner(Place(env={"PATH": f"{stubs}:/usr/bin:/bin"})))
    job = work(account="nobody")
    say(stubs, "qsub", "7.head\n")
    assert await adapter.submit(job) == "7.head"
    say(stubs, "qsub", warns="qsub: Unknown queue\n", ends=170)
    with pytest.raises(BadRequest, match="Unknown queue"):
        await adapter.submit(job)
    say(stubs, "qsub", warns="Connection refused\nqsub: cannot connect to server head (errno=15010)\n", ends=170)
    with pytest.raises(Unavailable):
        await adapter.submit(job)
    say(stubs, "qdel", warns="qdel: Job has finished 7.head\n", ends=35)
    await adapter.cancel(job.account, ["7.head"])
    say(stubs, "qdel", warns="qdel: Unauthorized Request  7.head\n", ends=159)
    with pytest.raises(Denied):
        await adapter.cancel(job.account, ["7.head"])
    say(stubs, "qstat", warns="qstat: PBS is not configured to maintain job history\n", ends=35)
    assert await adapter.jobs(0.0) == []
    now = int(time.time())
    ended = f'{{"job_state": "F", "Exit_status": 0, "history_timestamp": {now - 100}}}'
    say(stubs, "qstat", f'{{"Jobs": {{"7.head": {ended}}}}}')
    assert [seen.id for seen in await adapter.jobs(now - 150.0)] == ["7.head"]
    assert await adapter.jobs(now - 50.0) == []


class Answering(Runner):
    """Answers every question with nothing, and keeps what was asked."""

    def __init__(self) -> None:
        super().__init__(Place())
        self.asked: list[tuple[str, ...]] = []

    async def run(self, *command: str, **_: Any) -> str:
        self.asked.append(command)
        told = {"scontrol": "AccountingStorageType = accounting_storage/slurmdbd\nMinJobAge = 300 sec\n"}
        return told.get(command[0], "<job_info/>" if command[0] == "qstat" and "-xml" in command else "")


@pytest.mark.parametrize("kind", ["slurm", "gridengine", "htcondor"])
async def test_nobody_is_asked_for_the_whole_of_the_past(kind: str) -> None:
    runner = Answering()
    assert await open_job_scheduler(kind, runner).jobs(0.0) == []
    (past,) = [command for command in runner.asked if command[0] in ("sacct", "qacct", "condor_history")]
    week = time.time() - MOST_PAST
    if kind == "slurm":
        assert f"--starttime=now-{MOST_PAST:.0f}seconds" in past
    elif kind == "gridengine":
        assert past[-1] >= time.strftime("%Y%m%d", time.gmtime(week - 2 * 86_400))
    else:
        assert float(past[-1].rpartition(" ")[2]) == pytest.approx(week, abs=600)
