"""Stands in for QEMU in the tests of a machine: the same two sockets, and as much of its control channel as is needed.

How it behaves is in the file ``behaviour`` of the node's folder, some of these words:

    die         ends at once, with a last word
    greet-die   greets and ends
    serve-die   ends when it is ready for commands
    wait        greets only when there is a file ``go``
    stubborn    does not heed the power button

SIGUSR1 makes it tell of a reset. What it is asked for is in the file ``asked``, a line each; the places
of its devices in the boot order are those that it was started with, until others are set.
"""

from __future__ import annotations

import json
import signal
import socket
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

HOME = Path(next(word for word in sys.argv if "logfile=" in word).partition("logfile=")[2]).parent


PLACES = {
    word.partition(",id=")[2].partition(",")[0]: int(word.partition("bootindex=")[2].partition(",")[0])
    for word in sys.argv
    if "bootindex=" in word
}
WORDS = (HOME / "behaviour").read_text().split() if (HOME / "behaviour").exists() else []


def main() -> None:
    """One connection for control after the other; nobody speaks on the serial line."""
    if "die" in WORDS:
        sys.exit("cannot open the tap device")
    control = socket.socket(fileno=10)
    while True:
        connection, _ = control.accept()
        signal.signal(signal.SIGUSR1, partial(tell_of_reset, connection))
        while "wait" in WORDS and not (HOME / "go").exists():
            time.sleep(0.01)
        connection.sendall(b'{"QMP": {}}\n')
        if "greet-die" in WORDS:
            sys.exit("out of memory")
        obey(connection)


def obey(connection: socket.socket) -> None:
    """Until whoever is connected leaves."""
    with connection, connection.makefile("r") as lines, (HOME / "asked").open("a", buffering=1) as asked:
        for line in lines:
            request = json.loads(line)
            asked.write(f"{request['execute']} {json.dumps(request['arguments'])}\n")
            connection.sendall(json.dumps({**answer(request), "id": request["id"]}).encode() + b"\n")
            if "serve-die" in WORDS:
                sys.exit("lost its mind")
            if request["execute"] == "system_reset":
                tell_of_reset(connection)
            if request["execute"] == "system_powerdown" and "stubborn" not in WORDS:
                sys.exit()


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """What QEMU says: of the boot order, that no place is given twice, not even to the device that has it."""
    told = request["arguments"]
    device = str(told.get("path", "")).rpartition("/")[2]
    if request["execute"] == "qom-get":
        return {"return": PLACES[device]}
    if request["execute"] == "qom-set":
        if told["value"] in PLACES.values():
            return {"error": {"desc": f"The bootindex {told['value']} has already been used"}}
        PLACES[device] = told["value"]
    return {"return": {}}


def tell_of_reset(connection: socket.socket, *_: object) -> None:
    """As the guest's firmware begins anew."""
    connection.sendall(b'{"event": "RESET"}\n')
    (HOME / "told").touch()


main()
