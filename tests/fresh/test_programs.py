"""Whatever is started comes with a package that the Makefile names: a machine that had nothing has it after set-up."""

from __future__ import annotations

import subprocess
import sys

import pytest

from docs.docs_support import CLUSTERS, RUN, TUTORIAL, ZERO, replaced, run_on
from fresh.programs import (
    COMPUTED,
    ON_NODES,
    REPOSITORY,
    STARTED,
    chain,
    named_in_makefile,
    packages_of,
    recipes,
    shell_words,
    sites,
    there_on_a_fresh_machine,
    unknown,
    words,
)

MAKEFILE = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
OURS = {"ansible-inventory", "ansible-playbook", "apbasil", "capmc", "python", "strata"}
"""What set-up puts into .venv."""


def without_package(programs: set[str], named: list[str]) -> dict[str, str]:
    """Those that a fresh machine would not have, and the package that they are from here."""
    there = there_on_a_fresh_machine(named)
    return {name: package for name, package in packages_of(sorted(programs)).items() if package not in there}


@pytest.mark.slow
def test_every_program_is_from_a_package_that_the_makefile_names_or_debian_requires() -> None:
    assert without_package({*STARTED, "python3"}, named_in_makefile(MAKEFILE)) == {}


@pytest.mark.slow
def test_a_package_that_is_not_named_is_missed_although_this_machine_has_it() -> None:
    named = set(named_in_makefile(MAKEFILE))
    assert without_package({"xorriso", "sh"}, sorted(named - {"xorriso"})) == {"xorriso": "xorriso"}
    assert without_package({"perfdhcp", "mount"}, sorted(named - {"kea-admin"})) == {"perfdhcp": "kea-admin"}


@pytest.mark.slow
def test_what_the_sources_start_is_known() -> None:
    known, found = {*STARTED, *ON_NODES, *OURS}, sites()
    strange = {f"{site.place} line {site.line}": site.programs for site in found if not known.issuperset(site.programs)}
    assert strange == {}, "name it in STARTED, and its package in the Makefile"
    computed = {site.place for site in found if not site.programs}
    assert computed == set(COMPUTED), "name in COMPUTED what it can be"
    assert {name for names in COMPUTED.values() for name in names} <= STARTED
    assert STARTED - words() == set(), "nobody starts it any more"


@pytest.mark.slow
def test_what_the_makefile_and_the_pages_call_is_from_such_a_package_too() -> None:
    called = shell_words(recipes(MAKEFILE))
    for page in (TUTORIAL, ZERO, *RUN):
        for block in (block for cluster in CLUSTERS for block in run_on(page, cluster)):
            called |= {word for command in block.commands for word in shell_words(replaced(command.text, block))}
    assert {"apt-get", "curl", "dpkg-query", "sed"} <= called
    assert without_package(called - OURS, named_in_makefile(MAKEFILE)) == {}


def test_what_only_nodes_start_is_in_their_minimal_os() -> None:
    assert not STARTED & set(ON_NODES)
    applets = subprocess.run(["busybox", "--list"], capture_output=True, text=True, check=True).stdout.split()
    assert {name for name, of in ON_NODES.items() if of == "busybox"} <= set(applets)


@pytest.mark.parametrize(
    ("command", "programs"),
    [
        ("curl -s x", ["curl"]),
        ("/usr/sbin/nginx -t", ["nginx"]),
        ("ip link show", ["ip"]),
        ("ip netns exec strata-1 perfdhcp -4", ["ip", "perfdhcp"]),
        ("nsenter --net=/run/netns/a -- curl x", ["nsenter", "curl"]),
        ("nsenter -t 12 -m -p pgrep -f x", ["nsenter", "pgrep"]),
        ("setpriv --pdeathsig KILL unshare --mount --fork sh -c x", ["setpriv", "unshare", "sh"]),
        ("nice -n 10 mksquashfs a b", ["nice", "mksquashfs"]),
        (f"nice -n 10 {sys.executable} -m x", ["nice"]),
        (f"{sys.executable} -m x", []),
        ("/tmp/a/test/program x", []),
    ],
)
def test_a_program_that_becomes_another_is_seen_with_it(command: str, programs: list[str]) -> None:
    assert list(chain(command.split())) == programs


@pytest.mark.parametrize("program", ["base64"])
def test_whoever_starts_what_nobody_named_fails(program: str) -> None:
    assert unknown(["nsenter", "--net=/x", "--", program, "y"]) == [program]
    with pytest.raises(AssertionError, match=f"{program} is started"):
        subprocess.run([program, "--version"], check=True)


@pytest.mark.parametrize(
    ("script", "programs"),
    [
        ("a=1 curl -s x | tr -d y && echo z; cat w > v", {"curl", "tr", "cat"}),
        ("until strata status > a 2>&1; do sleep 0.2; done", {"strata", "sleep"}),
        ('echo "user: $(cut -d_ -f2 token)"', {"cut"}),
        ('sed -i "s|/usr/lib|x|; s|b|c|" f', {"sed"}),
        ('there=" $(dpkg-query -W | tr a b)"; echo "done; as root" >&2', {"dpkg-query", "tr"}),
        ("[ -e x ] || { made=1; printf 'a; b'; chmod +x x; }", {"chmod"}),
    ],
)
def test_the_programs_of_a_script_are_the_first_words_of_its_commands(script: str, programs: set[str]) -> None:
    assert shell_words(script) == programs
