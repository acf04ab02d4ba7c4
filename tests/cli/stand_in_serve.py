"""Stands in for ``strata serve`` in the tests of ``strata up``: the fake service in a process of its own.

    stand_in_serve.py [--die | --deaf | --lingers | --breaks] serve --state-dir DIR [--simulated N] ...

Nodes converge a few at a time whenever somebody asks for the status; documents are kept when it is told to end.
``--die`` ends at once with a last word; ``--deaf`` does not heed SIGTERM and leaves a child of its own behind;
``--lingers`` answers no more after SIGTERM, but stays until there is a file ``let-go``; with ``--breaks`` one node ends
in a fault.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from fake_server import ROUTES, Call, FakeServer, show_status


def status(fake: FakeServer, call: Call) -> dict[str, Any]:
    """A step towards the goal, if there is one."""
    if fake.documents:
        waiting = [node for node in fake.nodes.values() if node["state"] == "converging"]
        for node in waiting[:3]:
            node["state"] = "ready"
    return show_status(fake, call)


def main() -> int:
    arguments = sys.argv[1:]
    if "--die" in arguments:
        print("starting", file=sys.stderr)
        print("strata: port 8443 is in use", file=sys.stderr)
        return 3
    directory = Path(arguments[arguments.index("--state-dir") + 1])
    ended = threading.Event()
    if "--deaf" in arguments:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        (directory / "child").write_text(str(child.pid))
    else:
        signal.signal(signal.SIGTERM, lambda *_: ended.set())
    ROUTES.insert(0, ("GET", "/v1/status", "", status))
    (directory / "admin.sock").unlink(missing_ok=True)  # of one that was killed
    fake = FakeServer(directory / "admin.sock")
    for number in range(int(arguments[arguments.index("--simulated") + 1]) if "--simulated" in arguments else 0):
        fake.add_node(f"n{number}", state="converging")
    fake.why = {"state": "converging", "summary": "power-on is under way"}
    if "--breaks" in arguments:
        fake.nodes["n0"]["state"] = "faulted"
        fake.why = {"state": "faulted", "summary": "power-on failed 5 times: the supply is dead"}
    kept = directory / "documents.json"
    fake.documents |= json.loads(kept.read_text()) if kept.exists() else {}
    (directory / "arguments").write_text("\n".join(arguments))
    if "--listen" in arguments:
        (directory / "url").write_text(f"https://{arguments[arguments.index('--listen') + 1]}\n")
    with fake:  # whoever is answered finds everything there
        ended.wait()
        kept.write_text(json.dumps(fake.documents))
    (directory / "admin.sock").unlink()
    while "--lingers" in arguments and not (directory / "let-go").exists():
        time.sleep(0.01)
    return 0


if __name__ == "__main__":
    sys.exit(main())
