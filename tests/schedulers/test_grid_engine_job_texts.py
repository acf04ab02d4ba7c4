"""What Grid Engine is told of jobs, and what is read from what it says."""

from __future__ import annotations

import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedulers.test_job_scripts import work
from strata.core.errors import BadRequest, DeviceError, Unavailable
from strata.schedulers.gridengine import job_replies, queues, submission
from strata.schedulers.jobs import Accelerators, Array, JobSeen, Resources

SMP = submission.Environment("smp", "$pe_slots", 64)
FOUR = submission.Environment("mpi4", "4", 64)
TEXTS = st.text(string.printable, max_size=40)


@given(name=TEXTS, path=TEXTS.map(lambda text: f"/PATH{text}"))
def test_no_text_of_a_user_becomes_an_option_or_another_path(name: str, path: str) -> None:
    plain, _ = submission.build(work(), [])
    given, script = submission.build(work(name=name, workdir=path, stdout=path, stdin=path, stderr=path), [])
    assert len(given) == len(plain)
    assert not given[given.index("-N") + 1].startswith("-")
    assert "/PATH" not in " ".join(given), "paths are in the script alone"
    assert script


def test_everything_that_is_asked_for_is_told_to_grid_engine() -> None:
    asked = work(
        resources=Resources(
            nodes=2, tasks=4, cores=2, memory=1024, time=61, licences={"matlab": 2}, accelerators=Accelerators(count=4)
        ),
        array=Array(first=0, last=8, step=3, at_once=2), after=(("ended", "7"), ("ended", "8")), queue="main.q",
        project="physics", reservation="3", held=True, native=("-l", "arch=lx-amd64", "-R", "y"), name="1 name",
        stdout="/a $HOME %a",
    )  # fmt: skip
    command, script = submission.build(asked, [SMP, FOUR])
    told = " ".join(command)
    for words in (
        *("-pe mpi4 8", "-l h_rt=61", "-l h_vmem=256M", "-l gpu=4", "-l matlab=2", "-t 1-9:3 -tc 2", "-hold_jid 7,8"),
        *("-q main.q -P physics -ar 3 -h -l arch=lx-amd64 -R y", "-A strata.k1", "-N _1_name"),
    ):
        assert words in told
    assert 'STRATA_ARRAY_INDEX="$((SGE_TASK_ID - 1))"' in script
    assert """>'/a $HOME '"$STRATA_ARRAY_INDEX\"""" in script


@pytest.mark.parametrize(
    "asked",
    [
        {"after": (("ended", "7,8"),)},
        {"after": (("ended", "7.1"),)},
        {"after": (("done", "7"),)},
        {"queue": "a b"},
        {"queue": "-help"},
        {"native": ("-A", "x")},
        {"native": ("other-script",)},
        {"native": ("-l", "h_rt=1", "other-script")},
        {"key": "k 1"},
        {"resources": Resources(accelerators=Accelerators(count=1, type="h200"))},
        {"resources": Resources(nodes=2, tasks=3)},
        {"resources": Resources(cores=128)},
    ],
)
def test_what_grid_engine_cannot_do_or_would_misread_is_refused(asked: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        submission.build(work(**asked), [SMP, FOUR])


def test_a_refusal_is_told_apart_from_an_answer_that_is_lost() -> None:
    unknown = submission.refusal('Unable to run job: Job was rejected because job requests unknown queue "x" Exiting.')
    assert isinstance(unknown, BadRequest)
    assert unknown.detail == 'Job was rejected because job requests unknown queue "x"'
    for lost in ("error: commlib error: got select error", "Unable to run job: Error reading answer list from qmaster"):
        assert isinstance(submission.refusal(lost), Unavailable)
    assert submission.submitted("12\n") == submission.submitted("12.1-9:3\n") == "12"
    with pytest.raises(DeviceError):
        submission.submitted("hello")


def test_a_parallel_environment_is_read() -> None:
    said = "pe_name            smp\nslots              999\nallocation_rule    $pe_slots\n"
    assert submission.environment(said) == ("smp", "$pe_slots", 999)


# What Debian's Grid Engine 8.1.9 prints.
QSTAT = """<?xml version='1.0'?>
<job_info  xmlns:xsd="http://arc.liv.ac.uk/repos/darcs/sge/source/dist/util/resources/schemas/qstat/qstat.xsd">
  <queue_info>
    <job_list state="running">
      <JB_job_number>2</JB_job_number>
      <JAT_prio>0.50000</JAT_prio>
      <JB_name>abc</JB_name>
      <JB_owner>nobody</JB_owner>
      <state>{}</state>
      <JAT_start_time>2026-11-16T15:45:32</JAT_start_time>
      <queue_name>main.q@vm</queue_name>
      <slots>1</slots>
      <tasks>1</tasks>
    </job_list>
  </queue_info>
  <job_info>
    <job_list state="pending">
      <JB_job_number>3</JB_job_number>
      <JB_owner>nobody</JB_owner>
      <state>{}</state>
      <JB_submission_time>2026-11-16T15:45:31</JB_submission_time>
      <queue_name></queue_name>
      <slots>1</slots>
    </job_list>
  </job_info>
</job_info>
"""
DETAILS = """<?xml version='1.0'?>
<detailed_job_info><djob_info>
<element><JB_job_number>2</JB_job_number><JB_submission_time>1794843931</JB_submission_time>
<JB_account>strata.k2</JB_account></element>
<element><JB_job_number>3</JB_job_number><JB_submission_time>1794843932</JB_submission_time><JB_account>sge</JB_account>
<JB_ja_tasks><ulong_sublist><JAT_message_list><ulong_sublist><QIM_type>1</QIM_type>
<QIM_message>error: can&apos;t chdir to /x: No such file or directory</QIM_message></ulong_sublist></JAT_message_list>
</ulong_sublist></JB_ja_tasks></element>
<element><JB_job_number>4</JB_job_number><JB_jid_predecessor_list><job_predecessors><JRE_job_number>2</JRE_job_number>
</job_predecessors></JB_jid_predecessor_list></element>
<element><JB_job_number>5</JB_job_number></element>
</djob_info><messages><element><SME_message_list><element><MES_job_number_list><ulong_sublist><ULNG_value>5</ULNG_value>
</ulong_sublist></MES_job_number_list><MES_message_number>1</MES_message_number>
<MES_message>cannot run in PE "mpi4" because it only offers 0 slots</MES_message></element></SME_message_list>
<SME_global_message_list><element><MES_message_number>37</MES_message_number>
<MES_message>queue instance &quot;main.q@vm&quot; dropped because it is full</MES_message></element>
</SME_global_message_list></element></messages></detailed_job_info>
"""


@pytest.mark.parametrize(
    ("letters", "state"),
    [
        ("r", "running"),
        ("Rr", "running"),
        ("t", "starting"),
        ("s", "suspended"),
        ("T", "suspended"),
        ("dr", "ending"),
        ("qw", "waiting"),
        ("hqw", "held"),
        ("Eqw", "held"),
        ("hRwq", "held"),
        ("Xyz", "unknown"),
        ("", "unknown"),
    ],
)
def test_letters_are_states_and_unknown_ones_stay_unknown(letters: str, state: str) -> None:
    _, pending = job_replies.jobs(QSTAT.format("r", letters), {})
    assert (pending.state, pending.said) == (state, letters)


def test_jobs_are_read_with_their_keys_and_why_they_wait() -> None:
    details = job_replies.details(DETAILS)
    running, failed = job_replies.jobs(QSTAT.format("r", "Eqw"), details)
    assert (running.id, running.key, running.account, running.index) == ("2.1", "k2", "nobody", 0)
    assert (running.queue, running.nodes) == ("main.q", ("vm",))
    assert (running.submitted, running.began) == (1794843931.0, 1794843932.0)
    assert (failed.key, failed.reason) == ("", "error: can't chdir to /x: No such file or directory")
    assert details["5"].reason == 'cannot run in PE "mpi4" because it only offers 0 slots'
    assert details["2"].reason == 'queue instance "main.q@vm" dropped because it is full'
    waits = {"3": details["4"]}
    assert [(job.state, job.reason) for job in job_replies.jobs(QSTAT.format("r", "hqw"), waits)][1] == (
        "waiting",
        "it waits for another job",
    )
    # Every job that was asked about has ended meanwhile.
    assert job_replies.details("<unknown_jobs ><ST_name>8</ST_name></unknown_jobs>") == {}
    for said in ("", "error: unable to send message to qmaster"):
        with pytest.raises(DeviceError, match="not XML"):
            job_replies.jobs(said, {})


def test_few_jobs_are_asked_about_by_number_and_many_all_at_once() -> None:
    assert job_replies.details_of(["12.1", "12.2", "3"]) == ("qstat", "-xml", "-j", "3,12")
    assert job_replies.details_of(map(str, range(job_replies.MOST_DETAILS + 1)))[-1] == "*"


# What qacct of the same prints, the lines that are not read left out.
QACCT = """==============================================================
qname        main.q
hostname     vm
owner        nobody
jobnumber    2
taskid       {task}
account      strata.k1
qsub_time    Mon Nov 16 15:45:31 2026
start_time   Mon Nov 16 15:45:32 2026
end_time     Mon Nov 16 15:45:34 2026
failed       {failed}
exit_status  {status}
category     {category}
"""


def past(failed: str, status: str, category: str = "NONE", task: str = "undefined") -> JobSeen:
    said = QACCT.format(failed=failed, status=status, category=category, task=task)
    (found,) = job_replies.ended(said + "Total System Usage\n")
    return found


@pytest.mark.parametrize(
    ("failed", "status", "category", "outcome", "exited", "signal"),
    [
        ("0    ", "0", "NONE", "done", 0, None),
        ("0    ", "3", "NONE", "failed", 3, None),
        ("0    ", "137", "NONE", "failed", 137, None),
        ("100 : assumedly after job", "137                  (Killed)", "NONE", "failed", None, 9),
        ("37  : qmaster enforced h_rt, h_cpu, or h_vmem limit", "137", "-l h_rt=1", "timed-out", None, 9),
        (
            "37  : qmaster enforced h_rt, h_cpu, or h_vmem limit",
            "137",
            "-l h_rt=60,h_vmem=9M",
            "out-of-memory",
            None,
            9,
        ),
        ("19  : before writing exit_status", "0", "NONE", "node-failed", None, None),
        ("28  : changing into working directory", "0", "NONE", "failed", None, None),
    ],
)
def test_ends_are_told_apart(
    failed: str, status: str, category: str, outcome: str, exited: int | None, signal: int | None
) -> None:
    seen = past(failed, status, category)
    assert (seen.state, seen.outcome, seen.status, seen.signal) == ("ended", outcome, exited, signal)
    assert bool(seen.reason) == (outcome != "done")
    assert (seen.key, seen.account, seen.nodes) == ("k1", "nobody", ("vm",))
    assert (seen.submitted, seen.began, seen.ended) == (1794843931.0, 1794843932.0, 1794843934.0)


def test_a_task_that_has_ended_has_its_index() -> None:
    seen = past("0", "0", task="5")
    assert (seen.id, seen.index) == ("2.5", 4)


QUEUES = """qname                 main.q
seq_no                10
user_lists            lab staff,[@gpu=physics]
xuser_lists           NONE
projects              NONE
xprojects             guests
h_rt                  48:00:00
qname                 long.q
seq_no                0
user_lists            NONE
xuser_lists           bad
projects              p1 \\
                      p2
h_rt                  INFINITY
"""
HOSTS = """<?xml version='1.0'?>
<qhost><host name='global'><hostvalue name='num_proc'>-</hostvalue></host>
<host name='n1'><hostvalue name='num_proc'>64</hostvalue><hostvalue name='mem_total'>251.5G</hostvalue>
<resourcevalue name='gpu' dominance='hc'>4.000000</resourcevalue>
<queue name='main.q'><queuevalue name='slots_used'>0</queuevalue><queuevalue name='slots'>32</queuevalue>
<queuevalue name='state_string'></queuevalue></queue>
<queue name='long.q'><queuevalue name='slots_used'>0</queuevalue><queuevalue name='slots'>64</queuevalue>
<queuevalue name='state_string'>d</queuevalue></queue></host>
<host name='n2'><hostvalue name='num_proc'>-</hostvalue><hostvalue name='mem_total'>-</hostvalue>
<queue name='main.q'><queuevalue name='slots_used'>0</queuevalue><queuevalue name='slots'>32</queuevalue>
<queuevalue name='state_string'>au</queuevalue></queue></host></qhost>
"""


def test_queues_are_read_with_their_limits_and_whoever_may_use_them() -> None:
    told = queues.settings(QUEUES)
    assert [sorted(queues.lists_of(one)) for one in told] == [["lab", "staff"], ["bad"]]
    assert queues.access_lists("name    lab\ntype    ACL\nentries ada,@physics\nname bad\nentries NONE\n") == {
        "lab": ["ada", "@physics"],
        "bad": [],
    }
    seen = [JobSeen(id="1", state="waiting"), JobSeen(id="2", state="running", queue="main.q")]
    main, long = queues.queues(told, HOSTS, {"lab": ["ada"], "staff": ["bob"], "bad": ["eve"]}, seen)
    assert (main.open, main.most_time, main.node_cores, main.node_memory) == (True, 172_800, 32, 257_536)
    assert (main.nodes, main.free_nodes, main.waiting, main.accelerators) == (2, 1, 1, {"": 4})
    assert (main.accounts, main.not_accounts, main.not_projects) == ({"ada", "bob"}, frozenset(), {"guests"})
    assert (long.open, long.most_time, long.accounts, long.not_accounts) == (False, None, None, {"eve"})
    assert long.projects == {"p1", "p2"}
    assert long.priority > main.priority
    with pytest.raises(DeviceError):
        queues.queues(told, "error", {}, [])
