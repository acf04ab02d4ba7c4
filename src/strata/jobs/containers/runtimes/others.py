"""Runtimes that Debian does not have: their commands, as their documentation says. Sites that have them use them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from strata.jobs.containers.records import Abilities, Ready
from strata.jobs.containers.runtimes.runtime import Plain


class Apptainer(Plain):
    """``apptainer exec`` (and SingularityCE's, which takes the same words) on an image that we unpacked."""

    name = "apptainer"
    program = "apptainer"
    install = "https://apptainer.org/docs/admin/latest/installation.html"
    abilities = Abilities()

    def command(self, ready: Ready, argv: Sequence[str], folder: str) -> list[str]:
        """Without what it would bring in by itself; ``--contain`` leaves /dev, /tmp and home to what is asked for."""
        words = [self.program, "exec", "--userns", "--contain", "--no-init", "--pwd", ready.workdir]
        words += ["--pid"] if ready.asked.own_pids else ["--no-pid"]
        words += ["--cleanenv"] if ready.asked.clear_env else []
        words += ["--writable-tmpfs"] if ready.asked.writable else []
        words += {"none": ["--no-home"], "user": ["--home", ready.home_path], "tmp": []}[ready.asked.home]
        for bind in ready.binds:
            words += ["--bind", f"{bind.source}:{bind.place}{':ro' if bind.read_only else ''}"]
        for device in ready.devices:
            words += ["--bind", device]
        for name, value in ready.env.items():
            words += ["--env", f"{name}={value}"]
        return [*words, ready.root, *argv]


class Enroot(Plain):
    """``enroot start`` on an image that we unpacked: its data folder is the one that the image is in."""

    name = "enroot"
    program = "enroot"
    install = "https://github.com/NVIDIA/enroot/blob/master/doc/installation.md"
    abilities = Abilities(
        writable="it would write to the image itself, which all jobs share",
        homes=("none", "user"),
        own_pids=False,
        hides_devices=False,
        clear_env=False,
    )

    def command(self, ready: Ready, argv: Sequence[str], folder: str) -> list[str]:
        """It has no option for where to start, so that a shell goes there."""
        words = [self.program, "start"]
        if ready.asked.home == "user":
            words += ["--mount", f"{ready.home_path}:{ready.home_path}"]
        for bind in ready.binds:
            words += ["--mount", f"{bind.source}:{bind.place}:x-create=auto,bind{',ro' if bind.read_only else ''}"]
        for name, value in ready.env.items():
            words += ["--env", f"{name}={value}"]
        return [*words, ready.root, "/bin/sh", "-c", 'cd "$0" && exec "$@"', ready.workdir, *argv]

    def variables(self, folder: str) -> Mapping[str, str]:
        """Its hooks for accelerators are not asked: their files are bound."""
        return {"NVIDIA_VISIBLE_DEVICES": "void"}


class Sarus(Plain):
    """``sarus run``: it fetches images itself (``sarus pull``)."""

    name = "sarus"
    program = "sarus"
    install = "https://sarus.readthedocs.io/en/stable/install/installation.html"
    abilities = Abilities(
        image="reference",
        writable="its images are read-only",
        homes=("none", "user"),
        hides_devices=False,
        clear_env=False,
    )

    def command(self, ready: Ready, argv: Sequence[str], folder: str) -> list[str]:
        """Mounts are words with commas."""
        words = [self.program, "run", f"--workdir={ready.workdir}", "--entrypoint="]
        words += ["--pid=private"] if ready.asked.own_pids else ["--pid=host"]
        binds = [(bind.source, bind.place, bind.read_only) for bind in ready.binds]
        if ready.asked.home == "user":
            binds.append((ready.home_path, ready.home_path, False))
        for source, place, read_only in binds:
            words += [f"--mount=type=bind,source={source},destination={place}{',readonly' if read_only else ''}"]
        words += [f"--env={name}={value}" for name, value in ready.env.items()]
        return [*words, ready.reference, *argv]


class Shifter(Plain):
    """``shifter``: it fetches images itself (``shifterimg pull``)."""

    name = "shifter"
    program = "shifter"
    install = "https://github.com/NERSC/shifter"
    abilities = Abilities(
        image="reference",
        writable="its images are read-only",
        homes=("user",),
        own_pids=False,
        hides_devices=False,
        makes_places=False,
    )

    def command(self, ready: Ready, argv: Sequence[str], folder: str) -> list[str]:
        """The site's own configuration brings the home in."""
        words = [self.program, f"--image={ready.reference}", f"--workdir={ready.workdir}"]
        words += ["--clearenv"] if ready.asked.clear_env else []
        for bind in ready.binds:
            words += [f"--volume={bind.source}:{bind.place}{':ro' if bind.read_only else ''}"]
        words += [f"--env={name}={value}" for name, value in ready.env.items()]
        return [*words, *argv]
