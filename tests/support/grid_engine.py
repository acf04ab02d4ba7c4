"""A real Grid Engine in a directory of its own: qmaster, and an execd on this machine, which is its only host."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from support.slurm import REAPER, free_port

PROGRAMS = "/usr/lib/gridengine"
SHARED = "/usr/share/gridengine"


class GridEngineCluster:
    """One cell of whoever runs the test, who is its manager. ``host`` has the queues ``main.q`` and ``second.q``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.host = socket.gethostname()
        self.env = {
            "SGE_ROOT": str(directory / "root"),
            "SGE_CELL": "default",
            "SGE_QMASTER_PORT": str(free_port()),
            "SGE_EXECD_PORT": str(free_port()),
        }
        self._daemons: list[subprocess.Popen[bytes]] = []

    async def start(self) -> None:
        self._write()
        for what, given in (
            ("configuration", str(self.directory / "configuration")),
            ("complexes", f"{SHARED}/util/resources/centry"),
            ("usersets", f"{SHARED}/util/resources/usersets"),
            ("managers", "root"),
        ):
            await self.run(f"{PROGRAMS}/spooldefaults", what, given)
        self._spawn("sge_qmaster")
        await self.until("qmaster answers", "qconf", "-sh", said=self.host)
        await self._add("-Ae", "exechost", _host(self.host))
        await self.run("qconf", "-as", self.host)
        await self._add("-Ahgrp", "group", f"group_name @allhosts\nhostlist {self.host}\n")
        await self._add(
            "-Msconf", "schedule", re.sub(r"(?m)^(schedule_interval).*", r"\1 0:0:1", await self.config("-ssconf"))
        )
        await self._add("-Ap", "environment", _environment("smp", "$pe_slots"))
        for queue in ("main.q", "second.q"):
            text = await self.config("-sq")
            for name, value in (
                ("qname", queue),
                ("hostlist", "@allhosts"),
                ("pe_list", "smp"),
                ("slots", "2"),
                ("load_thresholds", "NONE"),
                ("shell", "/bin/sh"),
            ):
                text = re.sub(rf"(?m)^({name}) .*", rf"\1 {value}", text)
            await self._add("-Aq", queue, text)
        self._spawn("sge_execd")
        await self.until("execd has reported", "qhost", said="lx-amd64")

    def stop(self) -> None:
        for process in reversed(self._daemons):
            process.kill()
            process.wait()
        self._daemons.clear()

    def stop_qmaster(self) -> None:
        self._daemons[0].kill()
        self._daemons[0].wait()

    async def config(self, *options: str) -> str:
        return await self.run("qconf", *options)

    async def run(self, *command: str) -> str:
        """What one of its commands prints."""
        process = await asyncio.create_subprocess_exec(
            *command,
            env=os.environ | self.env,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        async with asyncio.timeout(60):
            return (await process.communicate())[0].decode()

    async def until(self, what: str, *command: str, said: str) -> None:
        """Wait until a command says something."""
        found = ""
        for _ in range(600):
            if said in (found := await self.run(*command)):
                return
            await asyncio.sleep(0.1)
        pytest.fail(f"not within a minute: {what}\n{found}")

    def _spawn(self, program: str) -> None:
        """In a PID namespace: whatever it started ends with it."""
        self._daemons.append(
            subprocess.Popen(
                ["unshare", "--pid", "--mount-proc", "--fork", "--kill-child", *REAPER, f"{PROGRAMS}/{program}"],
                env=os.environ | self.env | {"SGE_ND": "1"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )

    async def _add(self, option: str, name: str, text: str) -> None:
        path = self.directory / name
        path.write_text(text, encoding="utf-8")
        await self.run("qconf", option, str(path))

    def _write(self) -> None:
        root, common = self.directory / "root", self.directory / "root/default/common"
        for folder in (common, self.directory / "qmaster/job_scripts", self.directory / "execd"):
            folder.mkdir(parents=True)
        for name in ("bin", "lib", "utilbin", "util"):
            (root / name).symlink_to(f"/var/lib/gridengine/{name}")
        (common / "act_qmaster").write_text(f"{self.host}\n", encoding="utf-8")
        # This machine's own name may be an address of loopback, which is localhost's too.
        (common / "host_aliases").write_text(f"{self.host} localhost\n", encoding="utf-8")
        (common / "bootstrap").write_text(
            f"""admin_user root
default_domain none
ignore_fqdn true
spooling_method classic
spooling_lib libspoolc
spooling_params {common};{self.directory}/qmaster
binary_path /usr/sbin
qmaster_spool_dir {self.directory}/qmaster
security_mode none
listener_threads 2
worker_threads 2
scheduler_threads 1
""",
            encoding="utf-8",
        )
        text = Path(f"{SHARED}/default-configuration").read_text(encoding="utf-8")
        for name, value in (
            ("execd_spool_dir", self.directory / "execd"),
            ("min_uid", 0),
            ("min_gid", 0),
            ("load_report_time", "00:00:02"),
            ("mailer", "/bin/true"),
            ("reporting_params", "accounting=true reporting=false flush_time=00:00:01 accounting_flush_time=00:00:01"),
        ):
            text = re.sub(rf"(?m)^({name}) .*", rf"\1 {value}", text)
        (self.directory / "configuration").write_text(text, encoding="utf-8")


def _host(name: str) -> str:
    nothing = ("load_scaling", "complex_values", "user_lists", "xuser_lists", "projects", "xprojects", "usage_scaling")
    return f"hostname {name}\n" + "".join(f"{one} NONE\n" for one in (*nothing, "report_variables"))


def _environment(name: str, rule: str) -> str:
    return (
        f"pe_name {name}\nslots 999\nuser_lists NONE\nxuser_lists NONE\nstart_proc_args NONE\nstop_proc_args NONE\n"
        f"allocation_rule {rule}\ncontrol_slaves FALSE\njob_is_first_task TRUE\nurgency_slots min\n"
        "accounting_summary FALSE\nqsort_args NONE\n"
    )


@asynccontextmanager
async def grid_engine(directory: Path) -> AsyncIterator[GridEngineCluster]:
    found = GridEngineCluster(directory)
    try:
        await found.start()
        yield found
    finally:
        await asyncio.to_thread(found.stop)
