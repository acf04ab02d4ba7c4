"""Why Slurm lets a job wait, or ended it, in words. Pure. A reason that is not here is told as Slurm tells it."""

from __future__ import annotations

import re

_WORDS = {
    "AccountNotAllowed": "its project may not use this partition",
    "AccountingPolicy": "a limit of its project or user is reached",
    "AssocGrpCpuLimit": "its project has all the cores that it may have at once",
    "AssocGrpCPUMinutesLimit": "its project has used up its core hours",
    "AssocGrpGRES": "its project has all the accelerators that it may have at once",
    "AssocGrpJobsLimit": "its project runs as many jobs as it may",
    "AssocGrpMemLimit": "its project has all the memory that it may have at once",
    "AssocGrpNodeLimit": "its project has all the nodes that it may have at once",
    "AssocMaxJobsLimit": "its user runs as many jobs as they may",
    "AssociationJobLimit": "its user or project runs as many jobs as allowed",
    "AssociationResourceLimit": "its user or project has all that it may have at once",
    "AssociationTimeLimit": "its user or project has used up its time",
    "BadConstraints": "no node has what it asks for",
    "BeginTime": "it is to begin later",
    "BurstBufferOperation": "its burst buffer is not ready",
    "BurstBufferResources": "there is no room in the burst buffer",
    "BurstBufferStageIn": "its data is being brought in",
    "Cleaning": "it was queued anew, and its last run is being cleaned up",
    "DeadLine": "it cannot end before its deadline",
    "Dependency": "it waits for another job",
    "DependencyNeverSatisfied": "the job that it waits for did not end as it had to",
    "FrontEndDown": "no front end is there to run it",
    "InactiveLimit": "it was inactive for too long",
    "InvalidAccount": "its project does not exist",
    "InvalidQOS": "its quality of service does not exist",
    "JobArrayTaskLimit": "as many tasks of its array run as may run at once",
    "JobHeldAdmin": "an administrator holds it",
    "JobHeldUser": "its user holds it",
    "JobHoldMaxRequeue": "it was queued anew too often, and is held",
    "JobLaunchFailure": "it could not be launched",
    "Licenses": "its licences are in use",
    "MaxMemPerLimit": "it asks for more memory than the partition allows",
    "MaxRequeue": "it was queued anew too often",
    "NodeDown": "a node that it needs is down",
    "NonZeroExitCode": "its script ended with a status that is not 0",
    "None": "",
    "OutOfMemory": "it used more memory than it had",
    "PartitionConfig": "the partition does not allow what it asks for",
    "PartitionDown": "the partition starts no jobs",
    "PartitionInactive": "the partition is closed",
    "PartitionNodeLimit": "it asks for more nodes than the partition allows",
    "PartitionTimeLimit": "it asks for more time than the partition allows",
    "Priority": "other jobs come first",
    "Prolog": "its nodes are being prepared",
    "QOSJobLimit": "its quality of service runs as many jobs as it may",
    "QOSMaxCpuPerUserLimit": "its user has all the cores that they may have at once",
    "QOSMaxJobsPerUserLimit": "its user runs as many jobs as they may",
    "QOSNotAllowed": "its quality of service may not be used here",
    "QOSResourceLimit": "its quality of service has all that it may have at once",
    "QOSTimeLimit": "its quality of service has used up its time",
    "QOSUsageThreshold": "its quality of service has used too much",
    "RaisedSignal": "a signal ended it",
    "ReqNodeNotAvail": "a node that it needs is not there",
    "Reservation": "its reservation has not begun",
    "ReservationDeleted": "its reservation is gone",
    "Resources": "nothing is free that it fits on",
    "SchedDefer": "Slurm starts jobs in its next round",
    "SystemFailure": "Slurm or a file system failed",
    "TimeLimit": "its time was over",
    "WaitArrayTaskLimit": "as many tasks of its array run as may run at once",
    "WaitForScheduling": "Slurm has not looked at it yet",
}
_BARE = re.compile(r"\(?([A-Za-z]+)")
_LIMIT = re.compile(r"(Assoc|QOS)(Grp|Max|Min)")


def words(reason: str) -> str:
    """A reason of Slurm's in words."""
    found = _BARE.match(reason)
    code = found[1] if found else ""
    if code in _WORDS:
        return _WORDS[code] + (f" ({reason})" if code == "ReqNodeNotAvail" and reason != code else "")
    if _LIMIT.match(code):
        return f"a limit of its {'project or user' if code.startswith('Assoc') else 'quality of service'}: {reason}"
    return "" if reason in ("(null)", "N/A", "Unknown") else reason
