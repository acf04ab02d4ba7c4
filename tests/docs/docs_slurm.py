"""``python docs_slurm.py CONFIG NODES [MORE]``: a real Slurm until it is ended; says ``ready`` when its nodes are.

CONFIG is the file that its commands go by, NODES have a slurmd each, and MORE are nodes that are down.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import tempfile
from pathlib import Path

from strata.core.nodeset import expand
from support.slurm import slurm


async def main(config: Path, nodes: str, more: str = "") -> None:
    """Run it until somebody asks for its end."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    down = f"NodeName={more} CPUs=1 NodeAddr=127.0.0.1 State=DOWN" if more else ""
    with tempfile.TemporaryDirectory(prefix="slurm-") as directory:
        Path(directory).chmod(0o755)  # its configuration is for everybody
        for node in expand(nodes):  # all are this machine; what PMIx makes for a step on each must not meet
            Path(directory, "tmp", node).mkdir(parents=True)
            Path(directory, "tmp", node).chmod(0o1777)
        async with slurm(
            Path(directory), "", f"TmpFS={directory}/tmp/%n\n{down}", real=expand(nodes), cpus=64
        ) as found:
            config.symlink_to(found.config)
            print("ready", flush=True)
            await ended.wait()
            config.unlink()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), *sys.argv[2:]))
