"""Replies of PBS, LSF and HTCondor that others recorded at their sites: values and habits that are not ours.

Each is a short excerpt, with where it is from; fields that nobody reads are left out.
"""

from __future__ import annotations

import json
import time
from calendar import timegm
from typing import Any

from strata.schedulers.htcondor import texts as htcondor
from strata.schedulers.lsf import texts as lsf
from strata.schedulers.pbs import texts as pbs

# github.com/buildtesters/buildtest, buildtest/scheduler/pbs.py (MIT): PBS 19.0.0, `qstat -x -f -F json 157.pbs`.
HELD = {
    "timestamp": 1630683518, "pbs_version": "19.0.0", "pbs_server": "pbs",
    "Jobs": {"157.pbs": {
        "Job_Name": "pbs_hold_job", "Job_Owner": "pbsuser@pbs", "job_state": "H", "queue": "workq", "server": "pbs",
        "ctime": "Fri Aug 20 23:14:08 2021", "Hold_Types": "u", "mtime": "Fri Aug 20 23:14:08 2021", "substate": 20,
        "Resource_List": {"ncpus": 1, "nodect": 1, "nodes": 1, "place": "scatter", "select": "1:ncpus=1"},
        "Variable_List": {"PBS_O_HOME": "/home/pbsuser", "PBS_O_LOGNAME": "pbsuser", "PBS_O_QUEUE": "workq"},
    }},
}  # fmt: skip
# github.com/ExaWorks/psij-python, docs/development/tutorial_add_executor.rst (MIT): PBS 2022.0.0.
FINISHED = {
    "pbs_version": "2022.0.0.20211103141832",
    "Jobs": {"2154.edtb-01.mcp.alcf.anl.gov": {
        "job_state": "F", "comment": "Job run at Mon Jan 24 at 08:39 on (edtb-01[0]:ncpus=1) and finished",
        "Exit_status": 0,
    }},
}  # fmt: skip
# github.com/It4innovations/hyperqueue, its tests of the automatic allocation (MIT): PBS 20.0.1, `qstat -Q -f -F json`.
QUEUE = {
    "pbs_version": "20.0.1", "pbs_server": "isrv1.barbora.it4i.cz",
    "Queue": {"qexp": {
        "queue_type": "Execution", "Priority": 150, "total_jobs": 2,
        "state_count": "Transit:0 Queued:0 Held:2 Waiting:0 Running:0 Exiting:0 Begun:0 ",
        "max_queued": "[u:PBS_GENERIC=5]", "resources_max": {"ncpus": 144, "nodect": 4, "walltime": "01:00:00"},
        "default_chunk": {"ncpus": 36, "Qlist": "qexp"}, "enabled": "True", "started": "True",
    }},
}  # fmt: skip
# github.com/QutEcoacoustics/baw-server, its tests of the connection to PBS: what `qstat` says without a server.
AWAY = ("Connection refused\nqstat: cannot connect to server 6cfab3a0b8ac (errno=15010)",
        "No route to host\nqstat: cannot connect to server aqua (errno=15010)")  # fmt: skip
# github.com/TheRoddyWMS/BatchEuphoria, LSFJobManagerSpec.groovy (MIT): LSF, `bjobs -json`.
BJOBS = {
    "COMMAND": "bjobs", "JOBS": 1,
    "RECORDS": [{
        "JOBID": "22005", "JOB_NAME": "ls -l", "STAT": "DONE", "USER": "otptest", "QUEUE": "short-dmg",
        "JOB_DESCRIPTION": "", "EXIT_CODE": "", "EXEC_HOST": "tbi-cn019:tbi-cn019", "SUBMIT_TIME": "Dec 28 19:56",
        "START_TIME": "Dec 28 19:56", "FINISH_TIME": "Dec 28 19:56 L", "PEND_REASON": "",
    }],
}  # fmt: skip
# github.com/mskcc/ridgeback, tests/test_lsf_client.py: LSF, `bjobs -json`.
KILLED = {"USER": "nikhil", "EXIT_CODE": "", "STAT": "EXIT", "EXIT_REASON": "TERM_OWNER: job killed by owner"}
# A job of the CLAS12 experiment on the Open Science Grid, as its own monitor notes it (scosg16.jlab.org#3472942.81):
# HTCondor 8.8.10, `condor_q -json`.
GLIDEIN = {
    "ClusterId": 3472942, "ProcId": 81, "JobStatus": 2, "Owner": "gemc", "QDate": 1616890323, "CompletionDate": 0,
    "EnteredCurrentStatus": 1617115471, "ExitBySignal": False, "JobStartDate": 1616890494,
    "JobCurrentStartDate": 1617115471, "LastHoldReasonCode": 3,
    "RemoteHost": "glidein_11052_156649344@CRUSH-OSG-C7-10-5-219-52",
    "LastRemoteHost": "slot1_6@glidein_99879_43933758@notch009.int.chpc.utah.edu",
}  # fmt: skip


def test_jobs_that_others_had_in_pbs_are_read() -> None:
    [held] = pbs.jobs([json.dumps(HELD)])
    assert (held.id, held.state, held.account, held.key) == ("157.pbs", "held", "pbsuser", "")
    assert held.submitted == timegm((2021, 8, 20, 23, 14, 8))
    [over] = pbs.jobs(["", json.dumps(FINISHED)])
    assert (over.id, over.state, over.outcome, over.status) == ("2154.edtb-01.mcp.alcf.anl.gov", "ended", "done", 0)
    assert pbs.job_id(over.id) == over.id
    for said in AWAY:
        assert pbs.is_away(said)
        assert not pbs.is_gone(said)
    assert pbs.jobs(['{"timestamp":1750053827,"pbs_version":"22.05.11","pbs_server":"6cfab3a0b8ac"}']) == []


def test_a_queue_of_pbs_has_the_nodes_that_list_it_and_none_that_pbs_does_not_know() -> None:
    def node(cores: int, **more: Any) -> dict[str, Any]:
        return {"state": "free", "resources_available": {"ncpus": cores, **more}}

    nodes = {
        "nodes": {
            "cn1": node(36, Qlist="qprod,qexp"),
            "cn2": node(36, Qlist="qprod"),
            "fat": node(192, Qlist="qfat"),
            "pbs": {"Error": "Unknown node "},
        }
    }
    [queue] = pbs.queues([json.dumps(QUEUE), "{}", json.dumps(nodes)], {})
    assert (queue.name, queue.open, queue.most_time, queue.most_nodes) == ("qexp", True, 3600, 4)
    assert (queue.nodes, queue.free_nodes, queue.node_cores) == (1, 1, 36)


def test_times_of_lsf_without_a_year_are_the_last_such_ones() -> None:
    [job] = lsf.jobs([json.dumps(BJOBS)])
    assert (job.id, job.state, job.outcome, job.status, job.nodes) == ("22005", "ended", "done", 0, ("tbi-cn019",))
    assert job.submitted == job.began == job.ended
    assert job.ended is not None
    told = time.gmtime(job.ended)
    assert (told.tm_mon, told.tm_mday, told.tm_hour, told.tm_min) == (12, 28, 19, 56)
    assert time.time() - 366 * 86_400 <= job.ended <= time.time() + 86_400
    [killed] = lsf.jobs([json.dumps({"RECORDS": [{"JOBID": "1", **KILLED}]})])
    assert (killed.state, killed.outcome, killed.status) == ("ended", "cancelled", None)


def test_a_job_that_was_begun_several_times_in_htcondor_began_the_last_time() -> None:
    [job] = htcondor.jobs([json.dumps([GLIDEIN]), "[]"])
    assert (job.id, job.state, job.account, job.nodes) == (
        *("3472942.81", "running", "gemc", ("CRUSH-OSG-C7-10-5-219-52",)),
    )
    assert (job.submitted, job.began, job.ended) == (1616890323.0, 1617115471.0, None)
