"""How long a plan takes for a large site repository: from the start of the command to its end.

    .venv/bin/python bench/config.py --json

The repository describes every node on a line of its own (location, NID, BMC, MAC), a file for each rack, with groups
and desires. ``plan_20000_s``: nothing of it is known to the service yet. ``plan_one_s``: all of it was applied, and
then one node was changed. ``…_cpu_s`` is what processors worked for it, here and in the command: what counts on a
machine that others use. ``render_20000_s``: what all nodes are configured with, by an overlay for all (a file that is
the same for all, one by role, one by node, one with their own address), and one for each half. (``--nodes`` changes the
count, not the figures' names.)
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import uvloop
from controlled import controlled, describe, in_process
from measure import Figures, arguments, main, own_peak_mb, say, scratch, show
from plan import served

from strata.fleet.access.principal import LOCAL_ADMIN
from strata.fleet.fleet import Fleet
from strata.platform.config.reading import read_repository
from strata.platform.config.repository import Repository
from strata.platform.config.service import ConfigService
from strata.platform.delivery.compose import composed

ROUNDS = 3
RACK = 128
"""Nodes in a file."""


def run() -> None:
    """Measure and show."""
    parser = arguments(__doc__)
    parser.add_argument("--nodes", type=int, default=20_000)
    given = parser.parse_args()
    if given.nodes < RACK:
        parser.error(f"--nodes: at least {RACK}")
    with scratch() as directory:
        show(uvloop.run(_measure(given, directory)), as_json=given.json)


async def _measure(given: argparse.Namespace, directory: Path) -> Figures:
    site = directory / "site"
    write_site(site, given.nodes)
    _, drivers = in_process(RACK, 1)
    await describe(directory, RACK)  # nodes of others, which the repository says nothing of
    async with controlled(directory, drivers, 1) as service:
        config = service.put(ConfigService(service))
        await service.keep(config)
        async with served(service, directory) as path:
            say(f"planning {given.nodes:,} new nodes", quiet=given.json)
            whole = []
            for number in range(ROUNDS):  # each time by somebody who has never read it
                os.environ["XDG_CACHE_HOME"] = str(directory / f"cache-{number}")
                whole.append(await _plan(path, site, {"created": given.nodes}))
            begun = time.perf_counter()
            configuration = read_repository(site).configuration()
            read = time.perf_counter() - begun
            say("applying them", quiet=given.json)
            begun = time.perf_counter()
            await config.apply(LOCAL_ADMIN, configuration)
            applied = time.perf_counter() - begun
            begun = time.perf_counter()
            again = await config.apply(LOCAL_ADMIN, configuration)
            repeated = time.perf_counter() - begun
            if again.changes:
                raise SystemExit(f"a second apply changed {again.changes[0]}")
            say("rendering for all of them", quiet=given.json)
            rendered = [await _render(service, given.nodes) for _ in range(ROUNDS)]
            say("planning one changed node", quiet=given.json)
            one = []
            for number in range(ROUNDS):
                file = site / "site" / "rack-0000.yaml"
                text = file.read_text(encoding="utf-8").replace(
                    "{name: c00000,", f"{{name: c00000, role: role{number},"
                )
                (site / "site" / "rack-0000.yaml").write_text(text, encoding="utf-8")
                one.append(await _plan(path, site, {"changed": 1}))
                file.write_text(text.replace(f" role: role{number},", ""), encoding="utf-8")
    return {
        "nodes": given.nodes,
        "plan_20000_s": statistics.median(took for took, _ in whole),
        "plan_20000_cpu_s": statistics.median(worked for _, worked in whole),
        "plan_one_s": statistics.median(took for took, _ in one),
        "plan_one_cpu_s": statistics.median(worked for _, worked in one),
        "read_20000_s": read,
        "apply_20000_s": applied,
        "apply_again_s": repeated,
        "render_20000_s": statistics.median(took for took, _ in rendered),
        "render_20000_cpu_s": statistics.median(worked for _, worked in rendered),
        "peak_rss_mb": own_peak_mb(),
    }


def write_site(site: Path, count: int) -> None:
    """A repository of ``count`` nodes."""
    (site / "site").mkdir(parents=True)
    for rack in range((count + RACK - 1) // RACK):
        lines = ["kind: nodes", "role: compute", f"labels: {{rack: r{rack}}}", "nodes:"]
        lines += [_line(number) for number in range(rack * RACK, min(count, (rack + 1) * RACK))]
        (site / "site" / f"rack-{rack:04}.yaml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    groups = [f"kind: group\nname: half{half}\nmembers: c[{_span(half, count)}]\n" for half in range(2)]
    desires = [f'kind: desire\nname: on{half}\nselect: "@half{half}"\nset: {{power: on}}\n' for half in range(2)]
    (site / "site" / "groups.yaml").write_text("---\n".join([*groups, *desires]), encoding="utf-8")


def _line(number: int) -> str:
    cabinet, rest = divmod(number, 512)
    place = f"x{3000 + cabinet}c{rest // 64}s{rest // 8 % 8}b{rest // 4 % 2}n{rest % 4}"
    low = f"{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
    mac = f"52:54:77:{number >> 16:02x}:{number >> 8 & 255:02x}:{number & 255:02x}"
    return (
        f"  - {{name: c{number:05}, location: {place}, nid: {1_000_000 + number}, bmc: 'https://10.{low}', "
        f"interfaces: [{{mac: '{mac}'}}]}}"
    )


def _span(half: int, count: int) -> str:
    middle = count // 2
    first, last = (0, middle - 1) if half == 0 else (middle, count - 1)
    return f"{first:05}-{last:05}"


async def _plan(path: Path, site: Path, expected: dict[str, int]) -> tuple[float, float]:
    """Seconds that the command takes, and that processors worked for it; what it says is looked at, too."""
    begun, worked = time.perf_counter(), _worked()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "strata.cli", "--url", f"unix:{path}", "config", "plan", str(site), "--json"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await process.communicate()
    took, worked = time.perf_counter() - begun, _worked() - worked
    found = {one["action"]: one["count"] for one in _changes(said) if one["kind"] == "node"}
    if process.returncode not in (0, 3) or found != expected:
        raise SystemExit(f"strata config plan ended with code {process.returncode}, and says {found}")
    return took, worked


async def _render(service: Fleet, count: int) -> tuple[float, float]:
    """Seconds that rendering for all nodes takes, and that processors worked for it."""
    overlays = Repository({path: text.encode() for path, text in OVERLAYS.items()}).configuration().overlays
    begun, worked = time.perf_counter(), _worked()
    nodes = service.registry.select("c*")
    found = await composed(service.registry, overlays, nodes, "bench")
    took, worked = time.perf_counter() - begun, _worked() - worked
    if len(found) != count or len({one.digest for one in found.values()}) != count:
        raise SystemExit(f"rendered for {len(found)} nodes, not for {count}, each its own")
    return took, worked


OVERLAYS = {
    "overlay.yaml": """kind: overlay
name: all
vars: {servers: [time1, time2, time3]}
files:
  - {path: /etc/chrony.conf, source: chrony.conf.j2}
  - {path: /etc/motd, template: "a {{ node.role }} node\n"}
  - {path: /etc/node.conf, source: node.conf.j2}
  - {path: /etc/site.conf, content: "the same for all\n"}
services: [{name: chrony.service, running: true}]
sysctls: [{name: vm.swappiness, value: 10}]
---
kind: overlay
name: half
select: "@half0"
files: [{path: /etc/half.conf, content: "first\n"}]
""",
    "files/chrony.conf.j2": "{% for server in vars.servers %}server {{ server }} iburst\n{% endfor %}"
    + "# more\n" * 40,
    "files/node.conf.j2": "name={{ node.name }}\nnid={{ node.nid }}\nrack={{ node.labels.rack }}\n"
    "{% for port in node.interfaces %}mac={{ port.mac }}\n{% endfor %}{% for name in node.groups %}group={{ name }}\n"
    "{% endfor %}",
}


def _worked() -> float:
    """Seconds of processors, of this process and of those that it has started and seen end."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + usage.ru_utime + usage.ru_stime


def _changes(said: bytes) -> Sequence[dict[str, object]]:
    found: dict[str, list[dict[str, object]]] = msgspec.json.decode(said)
    return found["changes"]


if __name__ == "__main__":
    main(run)
