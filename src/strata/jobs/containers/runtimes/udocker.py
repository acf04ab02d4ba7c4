"""udocker: containers where not even user namespaces are allowed, by following every system call (mode P1)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from strata.jobs.containers.records import Abilities, Ready
from strata.jobs.containers.runtimes.runtime import Content, Copy

_ID = "strata"


class Udocker:
    """``udocker run``: its repository is the folder of this start, with a copy of the image, which it cannot but write
    to. Its /tmp is the node's."""

    name = "udocker"
    program = "udocker"
    install = "pip install udocker; apt-get install proot"
    abilities = Abilities(
        read_only=False, homes=("none", "user"), own_pids=False, hides_devices=False, read_only_binds=False
    )

    def command(self, ready: Ready, argv: Sequence[str], folder: str) -> list[str]:
        """Quiet, as the user who it is, with nothing of the host but what is asked for."""
        words = [self.program, "--quiet", "--allow-root", "run", "--nobanner", f"--user={ready.uid}"]
        words += [f"--workdir={ready.workdir}", "--nosysdirs"]
        words += [f"--volume={path}" for path in ("/dev", "/proc", "/sys", "/tmp")]
        words += [] if ready.asked.clear_env else ["--hostenv"]
        words += [f"--volume={ready.home_path}"] if ready.asked.home == "user" else []
        words += [f"--volume={bind.source}:{bind.place}" for bind in ready.binds]
        words += [f"--env={name}={value}" for name, value in ready.env.items()]
        return [*words, _ID, *argv]

    def files(self, ready: Ready, argv: Sequence[str]) -> Mapping[str, Content]:
        """A repository with one container in it."""
        said = {"architecture": "amd64", "os": "linux", "config": {"Env": [], "Cmd": [], "Entrypoint": None}}
        return {
            f"containers/{_ID}/container.json": json.dumps(said).encode(),
            f"containers/{_ID}/imagerepo.name": b"strata",
            f"containers/{_ID}/ROOT": Copy(ready.root),
            "bin/": b"",
        }

    def variables(self, folder: str) -> Mapping[str, str]:
        """It fetches nothing: the proot of the machine is what it runs."""
        return {
            "UDOCKER_DIR": folder,
            "UDOCKER_CONTAINERS": f"{folder}/containers",
            "UDOCKER_TARBALL": "",
            "UDOCKER_DEFAULT_EXECUTION_MODE": "P1",
            "UDOCKER_USE_PROOT_EXECUTABLE": "",
        }
