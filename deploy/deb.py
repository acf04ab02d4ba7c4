"""Makes Strata's Debian package: ``python deploy/deb.py --out dist``.

Strata and the Python packages that it needs at run time, in the versions of the lock, lie in one folder of their own: a
virtual environment over Debian's Python, of which nothing is touched. Programs that it
starts are packages that it depends on, or recommends where only some layers need them.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.metadata
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
DEPLOY = REPOSITORY / "deploy"
HOME = Path("usr/lib/strata")
DEPENDS = ("nginx-light", "squashfs-tools", "openssl", "git", "openssh-client")
RECOMMENDS = (
    "mmdebstrap",
    "slirp4netns",
    "zstd",
    "buildah",
    "tftpd-hpa",
    "radvd",
    "ipxe",
    "cpio",
    "xorriso",
    "mtools",
    "graphviz",
)
NOT_SHIPPED = frozenset(("dev", "docs", "all"))
"""Extras that are not part of the package: what developers and writers need, and another name for the rest."""

_SCRIPT = """#!/{python} -s
import sys

from {module} import {function}

sys.exit({function}())
"""

_POSTINST = """#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    # Nothing is started that nobody asked for; what runs gets the new version. Nodes and jobs do not notice.
    if [ -n "$2" ]; then systemctl try-restart strata.service; fi
fi
"""

_PRERM = """#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then systemctl stop strata.service; fi
"""

_POSTRM = """#!/bin/sh
set -e
# What Python compiled there is nobody's any more.
if [ "$1" = remove ]; then rm -rf /usr/lib/strata; fi
"""


def main() -> int:
    """Make the package; print where it is."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--out", type=Path, default=REPOSITORY / "dist", help="where it goes")
    parser.add_argument("--version", default="", help="another version than that of the project")
    given = parser.parse_args()
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    version = given.version or project["version"]
    given.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="strata-deb-") as scratch:
        root = Path(scratch) / "root"
        _environment(root / HOME)
        _library(root / HOME / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages", Path(scratch))
        _programs(root / "usr/bin", project["scripts"])
        _files(root)
        _manual(root / "usr/share/man/man1/strata.1.gz")
        _control(root, version, project["description"])
        architecture = _architecture()
        package = given.out / f"strata_{version}_{architecture}.deb"
        subprocess.run(
            ["dpkg-deb", "--root-owner-group", "-Zzstd", "-z3", "--build", str(root), str(package)],
            check=True,
            stdout=subprocess.DEVNULL,
        )
    print(package)
    return 0


def needed(name: str, extras: frozenset[str], seen: set[tuple[str, str]]) -> Iterator[str]:
    """The distributions that ``name`` needs at run time with these extras, itself included, in normal form."""
    from packaging.requirements import Requirement

    yield _normal(name)
    for text in importlib.metadata.requires(name) or ():
        requirement = Requirement(text)
        wanted = any(
            requirement.marker is None or requirement.marker.evaluate({"extra": extra}) for extra in (*extras, "")
        )
        for extra in ("", *requirement.extras) if wanted else ():
            if (requirement.name, extra) not in seen:
                seen.add((requirement.name, extra))
                yield from needed(requirement.name, frozenset(requirement.extras), seen)


def pins(names: set[str]) -> str:
    """The lock's lines of these distributions."""
    found: list[str] = []
    taken: set[str] = set()
    for entry in re.split(r"\n(?=\S)", (REPOSITORY / "requirements.lock").read_text().strip()):
        name = _normal(entry.partition("==")[0])
        if name in names:
            taken.add(name)
            found.append(entry)
    if missing := names - taken:
        raise SystemExit(f"requirements.lock does not have {', '.join(sorted(missing))}: make lock")
    return "\n".join(found) + "\n"


def _environment(folder: Path) -> None:
    """What makes Python take the folder for a virtual environment, wherever it was made."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/python3").symlink_to("/usr/bin/python3")
    (folder / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")


def _library(folder: Path, scratch: Path) -> None:
    extras = frozenset(importlib.metadata.metadata("strata").get_all("Provides-Extra") or ()) - NOT_SHIPPED
    names = set(needed("strata", extras, set())) - {"strata"}
    lock = scratch / "requirements.txt"
    lock.write_text(pins(names))
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", str(scratch), str(REPOSITORY)], check=True)
    (wheel,) = scratch.glob("strata-*.whl")
    into = [*pip, "install", "--no-deps", "--no-compile", "--target", str(folder)]
    subprocess.run([*into, "--require-hashes", "-r", str(lock)], check=True)
    subprocess.run([*into, str(wheel)], check=True)
    shutil.rmtree(folder / "bin", ignore_errors=True)


def _programs(folder: Path, scripts: dict[str, str]) -> None:
    folder.mkdir(parents=True)
    for name, place in scripts.items():
        module, _, function = place.partition(":")
        (folder / name).write_text(_SCRIPT.format(python=HOME / "bin/python3", module=module, function=function))
        (folder / name).chmod(0o755)


def _files(root: Path) -> None:
    for source, target in (
        (DEPLOY / "strata.service", "lib/systemd/system/strata.service"),
        (DEPLOY / "strata.yaml", "etc/strata/strata.yaml"),
        (DEPLOY / "prometheus-rules.yaml", "usr/share/strata/prometheus-rules.yaml"),
        (DEPLOY / "grafana-dashboard.json", "usr/share/strata/grafana-dashboard.json"),
        (REPOSITORY / "docs/reference/settings.md", "usr/share/doc/strata/settings.md"),
        (REPOSITORY / "CHANGELOG.md", "usr/share/doc/strata/changelog"),
        (REPOSITORY / "LICENSE", "usr/share/doc/strata/copyright"),
    ):
        (root / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, root / target)


def _manual(page: Path) -> None:
    """The manual page, made from the command line itself."""
    made = subprocess.run([sys.executable, REPOSITORY / "docs/manual.py"], capture_output=True, check=True)
    page.parent.mkdir(parents=True)
    page.write_bytes(gzip.compress(made.stdout, mtime=0))


def _control(root: Path, version: str, description: str) -> None:
    folder = root / "DEBIAN"
    folder.mkdir()
    python = sysconfig.get_python_version()
    major, minor = map(int, python.split("."))
    depends = (f"python3 (>= {python})", f"python3 (<< {major}.{minor + 1})", *DEPENDS)
    kilobytes = sum(path.stat().st_size for path in root.rglob("*") if path.is_file()) // 1024
    (folder / "control").write_text(
        f"Package: strata\nVersion: {version}\nArchitecture: {_architecture()}\nSection: admin\nPriority: optional\n"
        f"Maintainer: Strata\nInstalled-Size: {kilobytes}\nDepends: {', '.join(depends)}\n"
        f"Recommends: {', '.join(RECOMMENDS)}\nDescription: HPC cluster manager\n {description}\n"
    )
    (folder / "conffiles").write_text("/etc/strata/strata.yaml\n")
    for name, text in (("postinst", _POSTINST), ("prerm", _PRERM), ("postrm", _POSTRM)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)


def _architecture() -> str:
    shown = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True)
    return shown.stdout.strip()


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower().strip()


if __name__ == "__main__":
    raise SystemExit(main())
