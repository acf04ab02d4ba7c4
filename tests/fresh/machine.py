"""A Debian 12 machine in a folder: the base system, what this machine needs to reach packages, and nothing else.

It is not a machine of its own: the kernel, the devices and the network are this one's. Processes, mounts and files are
its own; all of them are gone when the last command has ended, the files unless somebody wants to keep them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

SUITE = "bookworm"
BASE = ("make", "git", "ca-certificates")
"""What has to be there beside Debian's required packages: whoever clones a repository and calls make has these."""

_APT = Path("etc/apt")
_APT_FILES = ("auth.conf", "auth.conf.d", "keyrings", "preferences", "preferences.d", "trusted.gpg", "trusted.gpg.d")
_CERTIFICATES = Path("etc/ssl/certs/ca-certificates.crt")
_NAMES = ("etc/hosts", "etc/resolv.conf")
_PIP_FILES = ("etc/pip.conf", "etc/xdg/pip/pip.conf")
_PIP_FILES_AT_HOME = (".config/pip/pip.conf", ".pip/pip.conf")
_NPM_FILES = ("etc/npmrc", "usr/etc/npmrc")
_NPM_FILES_AT_HOME = (".npmrc",)
_ASKED_OF = re.compile(r"(?i)(pip|npm_config)_.+")
_PROXIES = re.compile(r"(?i)(http|https|ftp|all|no)_proxy")
_TRUST = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
_SIGNED_BY = re.compile(r"(?im)signed-by[:=]\s*(/[^\s\]]+)")
_LOCAL_SOURCE = re.compile(r"(?:mirror\+)?(?:file|copy):/*(/[^\s\]]+)")
_PLACE = re.compile(r"(?<![\w:/.])(?:file://)?(/[^\s,;\"']+)")

_ENTER = """
set -e
mount --make-rprivate /
cd "$1"
mount --bind . .
cd "$1"
mount --rbind /dev dev
mount -t tmpfs -o mode=1777 shm dev/shm
mount --rbind /sys sys
mount -t proc proc proc
mount -t tmpfs -o mode=755 run run
shift
while [ "$1" != -- ]; do
    if [ -d "$1" ]; then mkdir -p ".$2"; else mkdir -p "$(dirname ".$2")"; [ -e ".$2" ] || : > ".$2"; fi
    mount --rbind "$1" ".$2"
    mount -o remount,bind,ro ".$2"
    shift 2
done
shift
# Not chroot alone: whoever is in one may make no user namespaces, and containers cannot change their root.
pivot_root . mnt
exec chroot . /bin/sh -c 'umount -l /mnt; "$@"; exit $?' sh "$@"
"""


class Here:
    """What this machine has been told about where packages come from. Nothing of it is known to us beforehand."""

    def __init__(self, root: Path, home: Path, environment: Mapping[str, str]) -> None:
        self._root = root
        self._home = home
        self.environment = {
            name: value
            for name, value in environment.items()
            if _ASKED_OF.fullmatch(name) or name in _TRUST or _PROXIES.fullmatch(name)
        }
        """Of the environment: where packages come from, by which proxy, and who is trusted."""

    def sources(self) -> list[Path]:
        """apt's sources."""
        folder = self._root / _APT
        named = [folder / "sources.list", *sorted((folder / "sources.list.d").glob("*"))]
        return [path for path in named if path.suffix in (".list", ".sources") and path.is_file() and _says(path)]

    def files(self) -> dict[Path, Path]:
        """What is copied: where it is here → where it belongs there, from the root."""
        there = [_APT / name for name in _APT_FILES] + [Path(name) for name in (*_NAMES, *_PIP_FILES, *_NPM_FILES)]
        there.append(_CERTIFICATES)
        for path in self.sources():
            there += [Path(key).relative_to("/") for key in _SIGNED_BY.findall(path.read_text(errors="replace"))]
        found = {self._root / name: name for name in there}
        found |= {self._home / name: Path("root", name) for name in (*_PIP_FILES_AT_HOME, *_NPM_FILES_AT_HOME)}
        return {here: name for here, name in found.items() if here.exists()}

    def places(self) -> list[Path]:
        """Folders and files outside the system that sources of packages are in, for apt and for pip."""
        texts = [path.read_text(errors="replace") for path in self.sources()]
        found = {place for text in texts for place in _LOCAL_SOURCE.findall(text)}
        names = [self._root / name for name in _PIP_FILES] + [self._home / name for name in _PIP_FILES_AT_HOME]
        said = [path.read_text(errors="replace") for path in names if path.is_file()]
        for text in (*said, *self.environment.values()):
            found |= {_whole(place) for place in _PLACE.findall(re.sub(r"=", " ", text))}
        there = (self._root / place.lstrip("/") for place in found)
        return _outermost(path for path in there if path.exists() and not self._of_the_system(path))

    def _of_the_system(self, path: Path) -> bool:
        """Whether packages own that place: theirs stay theirs."""
        parts = path.relative_to(self._root).parts
        return not parts or (parts[0] in _SYSTEM and parts[:2] != ("usr", "local"))


_SYSTEM = ("bin", "boot", "dev", "etc", "lib", "lib64", "proc", "root", "run", "sbin", "sys", "tmp", "usr")


def _says(path: Path) -> bool:
    return any(line.strip() and not line.startswith("#") for line in path.read_text(errors="replace").splitlines())


def _whole(place: str) -> str:
    """Pages of an index (``.../simple``) point to files that lie beside it."""
    path = Path(place)
    return str(path.parent) if path.name == "simple" and len(path.parts) > 3 else place


def _outermost(paths: Iterable[Path]) -> list[Path]:
    found: list[Path] = []
    for path in sorted(set(paths)):
        if not any(path.is_relative_to(other) for other in found):
            found.append(path)
    return found


class FreshMachine:
    """The machine in ``root``; ``shown`` are folders of this one that it may read: where here → where there."""

    def __init__(self, root: Path, here: Here, shown: Mapping[Path, Path]) -> None:
        self.root = root
        self._here = here
        self._shown = {**{place: place for place in here.places()}, **shown}

    @property
    def made(self) -> bool:
        """Whether it is there already."""
        return (self.root / "etc/debian_version").exists()

    def make(self) -> None:
        """Make it, from this machine's own sources."""
        sources = self._here.sources()
        if not any(re.search(rf"\b{SUITE}\b", path.read_text(errors="replace")) for path in sources):
            raise SystemExit(f"this machine's apt sources do not have {SUITE}: add it below /etc/apt")
        self.root.mkdir(parents=True, exist_ok=True)
        options = self.root.parent / f"{self.root.name}.apt.conf"
        options.write_text(_acquire())
        try:
            command = ["mmdebstrap", "--mode=root", "--variant=minbase", "--format=directory", "--skip=check/empty"]
            command += ["--aptopt=Apt::Install-Recommends false", f"--aptopt={options}", f"--include={','.join(BASE)}"]
            subprocess.run([*command, SUITE, str(self.root), *map(str, sources)], check=True)
        finally:
            options.unlink()
        for here, name in self._here.files().items():
            target = self.root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if here.is_dir():
                shutil.copytree(here, target, dirs_exist_ok=True)
            else:
                target.unlink(missing_ok=True)  # it may be a link that leads out of the folder
                shutil.copyfile(here, target)

    def run(self, script: str, *arguments: str) -> int:
        """Run a shell script in it as root, with nothing of this session's environment; its status."""
        shown = [str(word) for pair in self._shown.items() for word in pair]
        command = [*_ALONE, "sh", "-c", _ENTER, "sh", str(self.root), *shown, "--", "/bin/bash", "-c", script, "sh"]
        return subprocess.run([*command, *arguments], env=self._environment(), check=False).returncode

    def remove(self) -> None:
        """Remove it. Nothing is mounted in it that is not gone by now."""
        subprocess.run(["rm", "-rf", "--one-file-system", str(self.root)], check=True)

    def _environment(self) -> dict[str, str]:
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        return {"HOME": "/root", "USER": "root", "PATH": path, "TERM": "dumb", **self._here.environment}


_ALONE: Sequence[str] = (
    *("setpriv", "--pdeathsig", "KILL"),
    *("unshare", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child"),
)
"""With namespaces that end with us: whatever is started or mounted in them is gone then."""


def _acquire() -> str:
    """How apt fetches here: proxies, certificates, what to leave out. Not its hooks, which call what is here only."""
    dump = subprocess.run(["apt-config", "dump", "Acquire"], capture_output=True, text=True, check=True).stdout
    lines = [line for line in dump.splitlines() if not re.match(r"\S*Proxy-Auto-Detect\b", line)]
    return "\n".join(lines) + "\n"


def is_root() -> bool:
    """Whether we may make one."""
    return os.geteuid() == 0
