"""Reads a repository into a configuration: from a directory as it is, or from a commit.

For the command line in this process, for the service in one of its own with limits (``python -m`` this module): what
somebody else wrote is read there, and the service goes on meanwhile.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from strata.core.errors import BadRequest, Refused
from strata.platform.config.git import commit_of, is_repository, read_commit, symbolic_link
from strata.platform.config.memory import Memory
from strata.platform.config.records import Configuration
from strata.platform.config.repository import MOST_BYTES, MOST_FILES, Repository, is_configuration
from strata.provisioning import worker

LIMITS = worker.Limits(memory=4 << 30, cpu=60, wall=120, file=1 << 20)
MOST_ANSWER = 256 << 20


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What the service has read."""

    directory: str
    commit: str
    system: str


async def configuration_of(directory: Path, commit: str, system: str) -> Configuration:
    """What a commit comes to, read in a process of its own."""
    question = Question(directory=str(directory), commit=commit, system=system)
    about = f"commit {commit[:12]}"
    return await worker.ask(__name__, question, Configuration, LIMITS, about=about, most=MOST_ANSWER)


def read_repository(directory: Path, revision: str = "", system: str = "") -> Repository:
    """The repository in ``directory``: as its files are, or (with ``revision``) as a commit has them."""
    memory = Memory.of(directory)
    if not revision:
        found = Repository(read_files(directory), system, parsed=memory.documents)
    elif not is_repository(directory):
        raise BadRequest("is no git repository, so that it has no commits", where=str(directory))
    else:
        commit = commit_of(directory, revision)
        found = Repository(read_commit(directory, commit), system, commit, parsed=memory.documents)
    memory.save()
    return found


def committed(directory: Path) -> str:
    """The commit that a directory's files are as of; empty where it is no git repository. ``Refused`` where a file is
    another than in it."""
    if not is_repository(directory):
        return ""
    commit = commit_of(directory, "HEAD")
    there, kept = read_files(directory), read_commit(directory, commit)
    differ = sorted(path for path in {*there, *kept} if there.get(path) != kept.get(path))
    if differ:
        raise Refused(
            "is not as it was committed",
            by="uncommitted",
            where=differ[0],
            hint="commit it; 'strata config plan' shows what it would change; --commit HEAD applies what is committed",
        )
    return commit


def read_files(directory: Path) -> dict[str, bytes]:
    """The configuration files in a directory. Links are not followed."""
    if not directory.is_dir():
        raise BadRequest("no such directory", where=str(directory), hint="strata config init writes one")
    found: dict[str, bytes] = {}
    total = 0
    for folder, folders, files in os.walk(directory):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in (*folders, *sorted(files)):
            path = Path(folder, name)
            relative = path.relative_to(directory).as_posix()
            if path.is_symlink() and (path.is_dir() or is_configuration(relative)):
                raise symbolic_link(relative)
            if name in folders or not is_configuration(relative):
                continue
            total += path.stat().st_size
            if len(found) >= MOST_FILES or total > MOST_BYTES or not path.is_file():
                raise BadRequest(
                    f"is no plain file, or there are more than {MOST_FILES} files or {MOST_BYTES >> 20} MiB",
                    where=relative,
                )
            found[relative] = path.read_bytes()
    return found


def _answer(question: Question) -> Configuration:
    return Repository(
        read_commit(Path(question.directory), question.commit), question.system, question.commit
    ).configuration()


if __name__ == "__main__":
    worker.answer(Question, _answer, nobody=lambda _: False)
