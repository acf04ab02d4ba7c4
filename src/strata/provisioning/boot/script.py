"""iPXE scripts: pure functions of what a machine is and what it shall boot. They never hold a secret.

A script tries for ever. Whatever cannot be fetched, it says so on the console, waits (2, 4, 8 … 60 seconds) and asks
for a new script, which knows what has changed meanwhile; how long it waited is in the address that it asks, so that the
waits grow from script to script too.
"""

from __future__ import annotations

import msgspec

FIRST_WAIT, LONGEST_WAIT = 2, 60
"""Seconds before a machine asks again after a failure, at first and at most."""
HELD_WAIT = 30
"""Seconds until a machine asks again whose node is held."""
BELIEVED_WAIT = 10
"""Seconds until a machine asks again whose node is believed to run."""


class Kernel(msgspec.Struct, frozen=True, kw_only=True):
    """What is booted, and from where."""

    base: str
    """``http://10.77.0.1:4281/<digest>``; below it ``vmlinuz`` and ``initrd``."""
    parameters: str


def boot_script(node: str, generation: int, server: str, kernel: Kernel, again: str, wait: int = FIRST_WAIT) -> bytes:
    """Boot ``node``. The fragment comes last: asking for it uses up the generation. ``server`` is where that
    is, ``again`` where a new script is (with a query)."""
    fragment = f"{server}/boot/fragment/{node}/{generation}"
    return _script(f"node {node}, boot {generation}", kernel, fragment, again, wait)


def architecture_script(again: str) -> bytes:
    """Have a machine that is no node yet say what it is: iPXE knows. One for the BIOS of a PC calls itself i386."""
    return f"#!ipxe\n{_ask(f'{again}&arch=${{buildarch}}', FIRST_WAIT)}".encode()


def discovery_script(server: str, kernel: Kernel, again: str, wait: int = FIRST_WAIT) -> bytes:
    """Boot a machine that is no node yet."""
    return _script("unknown machine, discovery boot", kernel, f"{server}/boot/discovery", again, wait)


def waiting_script(message: str, seconds: int, again: str) -> bytes:
    """Say ``message``, wait, and ask anew."""
    return f"#!ipxe\necho Strata: {message}\nsleep {seconds}\n{_ask(again, FIRST_WAIT)}".encode()


def _script(title: str, kernel: Kernel, fragment: str, again: str, wait: int) -> bytes:
    # With several "initrd=", a kernel started by UEFI loads them all; BIOS gets all that were fetched anyway.
    return f"""#!ipxe
echo Strata: {title}
imgfree
kernel --name vmlinuz {kernel.base}/vmlinuz initrd=initrd initrd=fragment {kernel.parameters} || goto failed
initrd --name initrd {kernel.base}/initrd || goto failed
initrd --name fragment {fragment} || goto failed
boot || goto failed
:failed
imgfree
echo Strata: {title}: it did not work, trying again in {wait} seconds
sleep {wait}
{_ask(again, min(wait * 2, LONGEST_WAIT))}""".encode()


def _ask(again: str, wait: int) -> str:
    """Ask for a new script until there is one. It takes this one's place: a machine may wait for days."""
    lines: list[str] = []
    while True:
        ask = f"chain --autofree --replace {again}&wait={wait} ||\nsleep {wait}\n"
        if wait == LONGEST_WAIT:
            return "".join([*lines, ":ask\n", ask, "goto ask\n"])
        lines.append(ask)
        wait = min(wait * 2, LONGEST_WAIT)
