"""podman: for sites that have it. Started without its network and its cgroups: a job has those already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from strata.jobs.containers.records import Abilities, Ready
from strata.jobs.containers.runtimes.runtime import Content


class Podman:
    """``podman run`` on an image that we unpacked."""

    name = "podman"
    program = "podman"
    install = "apt-get install podman uidmap runc"
    abilities = Abilities(user="root")

    def command(self, ready: Ready, argv: Sequence[str], folder: str) -> list[str]:
        """An overlay over the image where places have to be made or written, and gone afterwards."""
        words = [self.program, f"--root={folder}/root", f"--runroot={folder}/run", "--cgroup-manager=cgroupfs"]
        words += ["--events-backend=none", "--runtime=runc", "--storage-driver=vfs"]
        words += ["run", "--rm", "--interactive", "--log-driver=none", "--network=host", "--no-hosts", "--entrypoint="]
        words += ["--security-opt=seccomp=unconfined", "--security-opt=apparmor=unconfined"]
        words += ["--ulimit=nofile=1024:1024", "--ulimit=nproc=1000:1000"]
        words += [] if ready.asked.own_pids else ["--pid=host"]
        words += [] if ready.asked.clear_env else ["--env-host"]
        words += [] if ready.asked.writable else ["--read-only", "--read-only-tmpfs=false"]
        words += ["--tmpfs=/tmp:rw,mode=1777", f"--workdir={ready.workdir}"]
        if ready.asked.home == "user":
            words += [f"--volume={ready.home_path}:{ready.home_path}"]
        elif ready.asked.home == "tmp":
            words += [f"--tmpfs={ready.home_path}:rw,mode=0700"]
        for bind in ready.binds:
            words += [f"--volume={bind.source}:{bind.place}{':ro' if bind.read_only else ''}"]
        words += [f"--device={device}" for device in ready.devices]
        words += [f"--env={name}={value}" for name, value in ready.env.items()]
        return [*words, "--rootfs", f"{ready.root}:O", *argv]

    def files(self, ready: Ready, argv: Sequence[str]) -> Mapping[str, Content]:
        """Where it keeps what it knows of containers: for this start alone, so that no other is in its way."""
        return {"root/": b"", "run/": b"", "tmp/": b""}

    def variables(self, folder: str) -> Mapping[str, str]:
        """Jobs have no login session."""
        return {"XDG_RUNTIME_DIR": f"{folder}/tmp"}
