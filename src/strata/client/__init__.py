"""Strata's jobs from Python. Stands alone: it needs the standard library and nothing else of Strata.

from strata.client import Cluster

cluster = Cluster("https://strata.site.example:8443", token="strata_...", ca="ca.pem")
job = cluster.submit(["./a.out", "input.dat"], tasks=4, time=600)
job.wait()
print(job.outcome, job.log())
"""

from __future__ import annotations

from strata.client.cluster import Cluster
from strata.client.errors import Denied, Failed, NotFound, ServiceAway, StrataError
from strata.client.job import Job

__all__ = ["Cluster", "Denied", "Failed", "Job", "NotFound", "ServiceAway", "StrataError"]
