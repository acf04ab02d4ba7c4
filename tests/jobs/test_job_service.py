"""Jobs through the whole service: REST behind nginx, the command line, the Python client alone, and a kill -9."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from strata import client
from strata.client import Cluster, Denied, Failed, NotFound

pytestmark = [pytest.mark.slow, pytest.mark.server]

ACCOUNT = "nobody" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
PATIENCE = 120.0


def until(holds: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not (found := holds()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


class Daemon:
    """``strata serve jobs`` with its front door, in a directory where the account may write."""

    def __init__(self, directory: Path) -> None:
        self.state = directory / "s"
        self.desk = directory / "desk"
        self.desk.mkdir()
        if os.geteuid() == 0:
            os.chown(self.desk, pwd.getpwnam(ACCOUNT).pw_uid, -1)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        base = {name: value for name, value in os.environ.items() if not name.startswith("STRATA_")}
        (self.state / "url").unlink(missing_ok=True)
        with (self.desk.parent / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "strata.cli", "serve", "jobs", "--state-dir", str(self.state)),
                    *("--config", os.devnull, "--listen", "127.0.0.1:0"),
                ],
                env={**base, "STRATA_STATE": str(self.state)},
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )
        until(lambda: (self.state / "url").exists() or self.process.poll() is not None)  # type: ignore[union-attr]
        assert self.process.poll() is None, (self.desk.parent / "log").read_text()[-3000:]

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        self.process.wait(PATIENCE)

    def strata(self, *arguments: str, token: str = "", code: int = 0) -> str:
        """What ``strata ARGUMENTS`` prints."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("STRATA_")}
        env |= {"STRATA_STATE": str(self.state)}
        if token:
            env |= {"STRATA_TOKEN": token, "STRATA_URL": self.url, "STRATA_CA": str(self.ca)}
        done = subprocess.run(
            [sys.executable, "-m", "strata.cli", *arguments], env=env, capture_output=True, text=True, timeout=PATIENCE
        )
        assert done.returncode == code, (arguments, done.stdout, done.stderr)
        return done.stdout

    @property
    def url(self) -> str:
        return (self.state / "url").read_text().strip()

    @property
    def ca(self) -> Path:
        return self.state / "ca" / "ca.crt"

    def token(self, name: str, role: str = "user") -> str:
        made = self.strata("auth", "token", "create", "--role", role, "--name", name, "--json")
        return str(json.loads(made)["token"])

    def cluster(self, token: str) -> Cluster:
        return Cluster(self.url, token=token, ca=self.ca)


@pytest.fixture
def daemon(open_dir: Path) -> Iterator[Daemon]:
    found = Daemon(open_dir)
    found.start()
    yield found
    found.end()


def test_a_users_job_runs_by_every_face_and_survives_the_death_of_the_service(daemon: Daemon) -> None:
    token, other = daemon.token(ACCOUNT), daemon.token("somebody-else")
    cluster = daemon.cluster(token)
    at = {"workdir": str(daemon.desk), "stdout": f"{daemon.desk}/out"}
    # The client, as a folder by itself.
    alone = daemon.desk.parent / "alone" / "strata"
    alone.mkdir(parents=True)
    (alone / "__init__.py").touch()
    shutil.copytree(Path(client.__file__).parent, alone / "client")
    program = (
        f"import sys; sys.path.insert(0, {str(alone.parent)!r})\n"
        "from strata.client import Cluster\n"
        f"cluster = Cluster({daemon.url!r}, token={token!r}, ca={str(daemon.ca)!r})\n"
        f"job = cluster.submit(['id', '-un'], name='who', cores=1, **{at!r}).check()\n"
        "print(job.log(), end='')\n"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.stdout, done.returncode) == (f"{ACCOUNT}\n", 0), done.stderr
    # The command line: it ends as the job does, and prints what it printed.
    where = ("--workdir", str(daemon.desk), "--stdout", f"{daemon.desk}/out2")
    text = daemon.strata(
        "job", "submit", *where, "--time", "1m", "--wait", "--", "sh", "-c", "echo hello; exit 5", token=token, code=5
    )
    assert text == "hello\n"
    assert "local" in daemon.strata("job", "targets", token=token)
    assert "it can run the job" in daemon.strata("job", "submit", *where, "--explain", "--", "true", token=token)
    document = daemon.desk.parent / "job.yaml"
    document.write_text(
        f"name: from-yaml\nscript: |\n  #!/bin/sh\n  echo $1 $WORD\narguments: [a b]\nenv: {{WORD: on}}\n"
        f"resources: {{time: 10m, memory: 1G}}\nworkdir: {daemon.desk}\nstdout: {daemon.desk}/out3\n"
    )
    # A script with arguments needs a folder of its own, which an account without a home cannot have.
    plan = json.loads(daemon.strata("job", "submit", "-f", str(document), "--explain", "--json", token=token))
    assert plan["target"] == "local" and "'a b'" in plan["script"]
    # Nobody else sees it, and a user sees nothing but jobs.
    listed = json.loads(daemon.strata("job", "list", "--json", token=token))
    assert [one["name"] for one in listed] == ["", "who"]
    stranger = daemon.cluster(other)
    assert list(stranger.jobs()) == []
    for look in (stranger.job, lambda ident: stranger.job(ident).cancel()):
        with pytest.raises(NotFound):
            look(listed[0]["id"])
    with pytest.raises(Denied):
        list(stranger.jobs(all=True))
    with pytest.raises(Denied, match="has no account"):
        stranger.submit(["true"])
    daemon.strata("node", "list", token=token, code=4)
    # Killed and started again: the job went on meanwhile.
    job = cluster.submit(
        ["sh", "-c", f"echo begun; until [ -e {daemon.desk}/go ]; do sleep 0.05; done; echo ended"],
        key="once",
        workdir=str(daemon.desk),
        stdout=f"{daemon.desk}/out4",
    )
    until(lambda: job.refresh().state == "running")
    daemon.end(signal.SIGKILL)
    daemon.start()
    (daemon.desk / "go").touch()
    again = daemon.cluster(token)
    job = again.job(job.id).check()
    assert "".join(job.follow()) == "begun\nended\n"
    job = again.submit(["sleep", "1000"], **at).cancel().wait()
    assert job.outcome == "cancelled"
    with pytest.raises(Failed, match="status 3"):
        again.submit(["sh", "-c", "exit 3"], **at).check()
