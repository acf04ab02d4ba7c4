"""bubblewrap: a small program for namespaces, in every distribution."""

from __future__ import annotations

from collections.abc import Sequence

from strata.jobs.containers.records import NODE_TMP, Abilities, Ready
from strata.jobs.containers.runtimes.runtime import Plain

_OWN = ("/home", "/mnt", "/run")
"""Folders that every image has with nothing in them: an empty one over them, and places can be made there."""


class Bubblewrap(Plain):
    """``bwrap``."""

    name = "bubblewrap"
    program = "bwrap"
    install = "apt-get install bubblewrap"
    abilities = Abilities(writable="it has no overlay, and all jobs share the image", makes_places=False, node_tmp=True)

    def command(self, ready: Ready, argv: Sequence[str], folder: str) -> list[str]:
        """The image read-only, then what lies over it, in order."""
        words = [self.program, "--die-with-parent", "--ro-bind", ready.root, "/", "--dev", "/dev"]
        for place in NODE_TMP if ready.asked.node_tmp else ():
            words += ["--bind", place, place]
        words += [] if ready.asked.node_tmp else ["--tmpfs", "/tmp"]
        words += ["--unshare-pid", "--proc", "/proc"] if ready.asked.own_pids else ["--bind", "/proc", "/proc"]
        words += ["--ro-bind", "/sys", "/sys"]
        places = [bind.place for bind in ready.binds] + ([ready.home_path] if ready.asked.home != "none" else [])
        for own in _OWN:
            if any(place.startswith(f"{own}/") for place in places):
                words += ["--tmpfs", own]
        if ready.asked.home == "user":
            words += ["--bind", ready.home_path, ready.home_path]
        elif ready.asked.home == "tmp":
            words += ["--tmpfs", ready.home_path]
        for bind in ready.binds:
            words += ["--ro-bind" if bind.read_only else "--bind", bind.source, bind.place]
        for device in ready.devices:
            words += ["--dev-bind", device, device]
        words += ["--clearenv"] if ready.asked.clear_env else []
        for name, value in ready.env.items():
            words += ["--setenv", name, value]
        return [*words, "--chdir", ready.workdir, "--", *argv]
