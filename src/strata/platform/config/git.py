"""Git, run so that no repository can do anything but be read.

Nothing is ever checked out: trees are read object by object (``ls-tree``, ``cat-file --batch``), so that neither hooks
nor filters nor attributes of a repository have a moment to run, and symbolic links and submodules are names and nothing
more. No settings count but our own; transports are those that ``check_url`` lets through; time and the size of what is
fetched have limits.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from strata.core.errors import BadRequest, NotFound, Unavailable
from strata.fleet.child_process import find
from strata.platform.config.repository import MOST_BYTES, MOST_FILES, is_configuration

_INCOMING = "refs/strata/incoming"
_COMPLAINT = 16 << 10
"""Bytes of what git says when it fails."""
_LISTING = 64 << 20
"""Bytes of the list of all files of a commit."""
_SSH = (
    "-oBatchMode=yes -oStrictHostKeyChecking=yes -oConnectTimeout=20 -oPermitLocalCommand=no -oClearAllForwardings=yes"
)
_KEPT = ("HOME", "SSH_AUTH_SOCK", "http_proxy", "https_proxy", "no_proxy", "HTTPS_PROXY", "NO_PROXY")
_SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.attributesFile=/dev/null",
    "core.pager=cat",
    "credential.helper=",
    "gc.auto=0",
    "maintenance.auto=false",
    "submodule.recurse=false",
    "fetch.recurseSubmodules=false",
    "fetch.fsckObjects=true",
    "protocol.allow=never",
    "http.followRedirects=false",
)
_SCP = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]*@)?[A-Za-z0-9][A-Za-z0-9.-]*:[A-Za-z0-9_~/][^\s:]*\Z")
_HOST = re.compile(r"[A-Za-z0-9\[][A-Za-z0-9.:\]-]*\Z")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\Z")
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?\Z")
_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./@{}^~+-]{0,199}\Z")


class FetchLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What following a branch may cost."""

    seconds: float = 120.0
    """Until a fetch is killed."""
    bytes: int = 256 << 20
    """Of the largest file that a fetch may write."""
    kept: int = 1 << 30
    """Of all that is kept of the repository; more is thrown away and fetched anew."""


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """How hosts of repositories are known and logged in to."""

    ssh_config: Path | None = None
    """The file that ssh reads; None: those of the account."""
    ca: Path | None = None
    """Certificates by which https hosts are known; None: those of the machine."""

    @property
    def environment(self) -> dict[str, str]:
        """What git is told of it."""
        own = f"-F {shlex.quote(str(self.ssh_config))} " if self.ssh_config is not None else ""
        ca = {"GIT_SSL_CAINFO": str(self.ca)} if self.ca is not None else {}
        return {"GIT_SSH_COMMAND": f"ssh {own}{_SSH}", **ca}


def check_url(url: str) -> str:
    """``file``, ``https`` or ``ssh``: how a repository is reached; ``BadRequest`` where it is not to be."""
    hint = "an absolute path, https://HOST/PATH, ssh://USER@HOST/PATH or USER@HOST:PATH"
    if url.startswith("-") or "::" in url or not url.isprintable() or any(sign in url for sign in " \\\"'"):
        raise BadRequest("is not the address of a repository", where=repr(url)[:200], hint=hint)
    if url.startswith("/"):
        return "file"
    if "://" not in url:
        if _SCP.match(url):
            return "ssh"
        raise BadRequest("is not the address of a repository", where=repr(url)[:200], hint=hint)
    try:
        parts = urlsplit(url)
        host, user, secret = parts.hostname or "", parts.username, parts.password
    except ValueError:
        raise BadRequest("is not the address of a repository", where=repr(url)[:200], hint=hint) from None
    if secret is not None or (parts.scheme == "https" and user is not None):
        # Addresses are shown to everybody who may look. The text itself is not repeated: it would be the secret.
        raise BadRequest(
            "an address must not hold a password or token",
            where="url",
            hint="put it into ~/.netrc of the service's account (0600)",
        )
    sound = _HOST.match(host) and (user is None or _USER.match(user)) and len(parts.path) > 1
    if parts.scheme not in ("https", "ssh") or not sound:
        raise BadRequest("is not the address of a repository", where=repr(url)[:200], hint=hint)
    return parts.scheme


class Mirror:
    """What was fetched of a repository, in a bare one of our own."""

    def __init__(self, directory: Path, limits: FetchLimits | None = None, reach: Reach | None = None) -> None:
        self.directory = directory / "mirror.git"
        self._reach = reach or Reach()
        self._config = directory / "gitconfig"
        self._limits = limits or FetchLimits()

    async def fetch(self, url: str, branch: str) -> str:
        """Get the newest of a branch; its commit. ``Unavailable`` where it cannot be reached, ``BadRequest`` where it
        is more than the limits allow."""
        await self._fetch(url, f"+refs/heads/{branch}:{_INCOMING}")
        return await asyncio.to_thread(commit_of, self.directory, _INCOMING)

    async def _fetch(self, url: str, refspec: str) -> None:
        protocol = check_url(url)
        await asyncio.to_thread(self._make, url if protocol == "file" else "")
        options = ("--quiet", "--force", "--no-tags", "--no-recurse-submodules", "--no-auto-maintenance")
        command = ("fetch", *options, "--no-write-fetch-head", "--", url, refspec)
        own = {"GIT_CONFIG_GLOBAL": str(self._config), **self._reach.environment}
        await self._guarded(command, {**environment(protocol), **own}, url)

    async def fetch_all(self, url: str) -> None:
        """Get the newest of all branches, for commits that something is pinned to."""
        await self._fetch(url, "+refs/heads/*:refs/strata/heads/*")

    async def has(self, commit: str) -> bool:
        """Whether a commit was fetched."""
        return await asyncio.to_thread(_has, self.directory, commit)

    async def follows(self, old: str, new: str) -> bool:
        """Whether ``new`` comes after ``old``: whether the branch went on, and was not put somewhere else."""
        return await asyncio.to_thread(_follows, self.directory, old, new)

    def _make(self, local: str) -> None:
        parent = self.directory.parent
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        size = sum(file.stat().st_size for file in self.directory.rglob("*") if file.is_file())
        if size > self._limits.kept:
            shutil.rmtree(self.directory)
        if not (self.directory / "HEAD").is_file():
            shutil.rmtree(self.directory, ignore_errors=True)
            _git(None, ("init", "--quiet", "--bare", "--template=", str(self.directory)))
        # A program on the other side of a local fetch takes settings from files only.
        safe = f'[safe]\n\tdirectory = "{local}"\n\tdirectory = "{local}/.git"\n' if local else ""
        self._config.write_text(safe, encoding="utf-8")

    async def _guarded(self, command: Sequence[str], env: Mapping[str, str], url: str) -> None:
        limits = self._limits
        bounds = (f"--fsize={limits.bytes}", f"--cpu={int(limits.seconds) + 1}", "--core=0")
        process = await asyncio.create_subprocess_exec(
            find("setpriv", "util-linux"),
            *("--pdeathsig", "KILL", "--no-new-privs", "prlimit", *bounds),
            *_command(self.directory, command),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env=env,
            cwd="/",
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(limits.seconds):
                assert process.stderr is not None
                said = b""
                while more := await process.stderr.read(65536):
                    said += more[: _COMPLAINT - len(said)]
                status = await process.wait()
        except TimeoutError:
            raise Unavailable(f"gave no answer within {limits.seconds:g} s", where=url) from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        if status:
            words = said.decode(errors="replace")
            if "File too large" in words or "SIGXFSZ" in words or "signal 25" in words or status == -signal.SIGXFSZ:
                raise BadRequest(
                    f"there is more in it than {limits.bytes >> 20} MiB",
                    where=url,
                    hint="a configuration is text: keep images and other large files elsewhere",
                )
            raise _unreachable(words, url)


def commit_of(directory: Path, revision: str) -> str:
    """The commit that a branch, a tag or a shortened commit stands for."""
    if not _REVISION.match(revision):
        raise BadRequest("is not the name of a branch or a commit", where=repr(revision)[:80])
    found = _git(
        directory, ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"), fail=False
    )
    text = found.decode(errors="replace").strip().splitlines()[-1:] if found else []
    if not text or not _COMMIT.match(text[0]):
        raise NotFound("no such branch or commit", where=revision[:80])
    return text[0]


def is_repository(directory: Path) -> bool:
    """Whether a directory is the top of a repository, or a bare one."""
    return (directory / ".git").exists() or (directory / "objects").is_dir()


def read_commit(directory: Path, commit: str) -> dict[str, bytes]:
    """The configuration files of a commit. ``BadRequest`` names what is not read: links, submodules, too much."""
    return _read(directory, commit, is_configuration)


def read_tree(directory: Path, commit: str) -> dict[str, bytes]:
    """All files of a commit, in the same way."""
    return _read(directory, commit, lambda _: True)


def _read(directory: Path, commit: str, is_wanted: Callable[[str], bool]) -> dict[str, bytes]:
    if not _COMMIT.match(commit):
        raise BadRequest("is not a commit", where=repr(commit)[:80])
    listing = _git(directory, ("ls-tree", "-r", "-z", "-l", "--full-tree", commit), most=_LISTING)
    wanted: dict[str, str] = {}
    total = 0
    for line in listing.split(b"\0"):
        if not line:
            continue
        about, _, raw = line.partition(b"\t")
        mode, _, ident, size = about.decode("ascii").split()
        path = raw.decode(errors="replace")
        if mode == "160000":
            raise BadRequest(
                "is a submodule, and is not read", where=path[:200], hint="put its files into the repository"
            )
        if not is_wanted(path):
            continue
        if mode == "120000":
            raise symbolic_link(path)
        wanted[path] = ident
        total += int(size)
        if len(wanted) > MOST_FILES or total > MOST_BYTES:
            raise BadRequest(
                f"more than {MOST_FILES} files, or {MOST_BYTES >> 20} MiB, of configuration", where=commit[:12]
            )
    return dict(zip(wanted, _blobs(directory, list(wanted.values()), total), strict=True))


def symbolic_link(path: str) -> BadRequest:
    """The error for a link, which is never followed."""
    return BadRequest("is a symbolic link, and is not followed", where=path[:200], hint="put the file there itself")


def environment(protocol: str = "") -> dict[str, str]:
    """All that git is told. ``protocol``: the one transport that it may use; empty: none."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return {
        **kept,
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": "C.UTF-8",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "/bin/false",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_PROTOCOL_FROM_USER": "0",
        "GIT_ALLOW_PROTOCOL": protocol or "none",
        "GIT_SSH_COMMAND": f"ssh {_SSH}",
    }


def _blobs(directory: Path, idents: Sequence[str], total: int) -> list[bytes]:
    if not idents:
        return []
    question = "".join(f"{ident}\n" for ident in idents).encode("ascii")
    answer = _git(directory, ("cat-file", "--batch"), given=question, most=total + 200 * len(idents))
    found, place = [], 0
    for ident in idents:
        end = answer.find(b"\n", place)
        head = answer[place:end].split()
        if len(head) != 3 or head[1] != b"blob":
            raise BadRequest("an object of the repository is damaged or missing", where=ident)
        size = int(head[2])
        found.append(answer[end + 1 : end + 1 + size])
        place = end + size + 2
    return found


def _has(directory: Path, commit: str) -> bool:
    if not _COMMIT.match(commit) or not (directory / "HEAD").is_file():
        return False
    return _git(directory, ("cat-file", "-t", commit), fail=False).strip() == b"commit"


def _follows(directory: Path, old: str, new: str) -> bool:
    try:
        return _git(directory, ("merge-base", "--is-ancestor", old, new)) == b""
    except BadRequest:
        return False  # also where the old one was thrown away: nobody knows any more


def _command(directory: Path | None, command: Sequence[str]) -> list[str]:
    where = ["-c", f"safe.directory={directory}", "-C", str(directory)] if directory is not None else []
    settings = [word for setting in _SETTINGS for word in ("-c", setting)]
    return [find("git", "git"), *settings, *where, *command]


def _git(
    directory: Path | None, command: Sequence[str], *, given: bytes = b"", most: int = 1 << 20, fail: bool = True
) -> bytes:
    """What git says; at most ``most`` bytes."""
    process = subprocess.Popen(
        _command(directory, command),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    try:
        said, complaint = process.communicate(given, timeout=60)
    except subprocess.TimeoutExpired:
        raise Unavailable("git gave no answer within 60 s", where=command[0]) from None
    finally:
        process.kill()
        process.wait()
    if process.returncode and fail:
        raise BadRequest(
            f"git cannot read it: {_words(complaint.decode(errors='replace'))}", where=str(directory or "git")
        )
    if len(said) > most:
        raise BadRequest(f"more than {most >> 20} MiB", where=str(directory))
    return said


def _unreachable(said: str, url: str) -> Unavailable:
    """Why a repository cannot be fetched, and what to do about it."""
    login = pwd.getpwuid(os.geteuid()).pw_name
    if "HOST IDENTIFICATION HAS CHANGED" in said:
        return Unavailable(
            "the host shows another key than the one that is known: it was set up anew, or it is somebody else",
            where=url,
            hint=f"ask whoever runs it; only then remove the old key from known_hosts of {login} and add the new one",
        )
    if "Host key verification failed" in said or "host key is known" in said:
        return Unavailable(
            "the host's key is not known here, so that it could be anybody",
            where=url,
            hint=f"add the key that its administrators publish to known_hosts of {login}: compare it with ssh-keyscan",
        )
    if "Permission denied (" in said:  # ssh's; git's own, of files, is another thing
        return Unavailable(
            "the host lets nobody in by the keys that it was shown",
            where=url,
            hint=f"give it the public key of {login} (a read-only deploy key), or name the key in platform.ssh_config",
        )
    if "certificate" in said.lower():
        return Unavailable(
            f"the host's certificate is not good: {_words(said)}",
            where=url,
            hint="name the certificates of your own authority in platform.git_ca",
        )
    if "redirect" in said.lower() or "error: 30" in said:
        return Unavailable(
            "the host sends to another address, which is not followed", where=url, hint="give the address it sends to"
        )
    return Unavailable(f"cannot be fetched: {_words(said)}", where=url)


def _words(text: str) -> str:
    """The last line of a complaint, fit for a terminal."""
    lines = [line for line in text.splitlines() if line.strip()]
    line = next(
        (line for line in lines if line.startswith(("fatal:", "error:"))), lines[-1] if lines else "no reason given"
    )
    return "".join(sign for sign in line if sign.isprintable())[:300]
