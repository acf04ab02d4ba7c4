"""The order in which workers get files: those that take long come first, so that none of them is begun when everything
else is over. xdist's own order is by how many tests a file has, which puts the long ones of few tests last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

LONGEST = (
    "tests/api/test_api_real_service.py",
    "tests/system/test_virtual_cluster_slurm.py",
    "tests/system/test_system_crashes.py",
    "tests/simulation/test_simulation.py",
    "tests/system/test_virtual_cluster.py",
    "tests/docs/test_docs_commands.py",
    "tests/docs/test_docs_machines.py",
    "tests/system/test_system_leaders.py",
    "tests/api/test_redfish_service_validator.py",
    "tests/power/test_site_power_crash.py",
    "tests/jobs/test_same_job_everywhere.py",
    "tests/schedulers/test_slurm_jobs.py",
    "tests/provisioning/test_minos_build.py",
    "tests/system/test_slurm_switches_nodes.py",
    "tests/agent/test_agent_on_minos.py",
    "tests/bench/test_bench_boot_minos.py",
    "tests/docs/test_docs_tutorial.py",
    "tests/power/test_energy_truth.py",
    "tests/dashboard/test_dashboard.py",
    "tests/jobs/test_tasks_on_nodes.py",
    "tests/jobs/test_containers_run.py",
    "tests/power/test_simulation_day.py",
    "tests/simulation/test_simulation_checks.py",
    "tests/api/test_api_agents.py",
    "tests/hardware/test_bad_bmcs.py",
    "tests/provisioning/test_image_build.py",
    "tests/system/test_rollout_survives.py",
    "tests/power/test_site_power_two.py",
    "tests/platform/test_rollouts.py",
    "tests/provisioning/test_image_hostile.py",
    "tests/bench/test_bench_tellings.py",
    "tests/system/test_minos_boot.py",
    "tests/agent/test_agent_attaches.py",
    "tests/platform/test_jobs_keep_their_nodes.py",
    "tests/agent/test_agent_crash_on_minos.py",
    "tests/system/test_two_provisioning_controllers.py",
    "tests/power/test_policies_live.py",
    "tests/system/test_images_on_two_controllers.py",
    "tests/system/test_system_life.py",
    "tests/system/test_store_without_majority.py",
    "tests/system/test_slurm_capmc.py",
    "tests/platform/test_health_service.py",
    "tests/schedulers/test_grid_engine_jobs.py",
    "tests/platform/test_workload_commands.py",
    "tests/simulation/test_rollout.py",
    "tests/system/test_system_redfish.py",
    "tests/system/test_slurm_accounting.py",
)
"""Files that took over three quarters of a minute in a whole run (``pytest --durations=0``), the longest first; but
those that boot virtual machines are apart, since two of them at once wait for each other's processor."""


def longest_first(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The tests, file by file: the longest files, then those with the most tests; in a file they stay as they were."""
    known = {name: place for place, name in enumerate(LONGEST)}
    tests = Counter(map(_file, items))
    return sorted(items, key=lambda item: (known.get(_file(item), len(known)), -tests[_file(item)], _file(item)))


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]
