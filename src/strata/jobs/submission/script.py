"""The script of a job, made of its document: staging, retries, and a record of its end. Pure.

It is POSIX shell, the same for every scheduler. Whatever the document says is quoted, or comes in a here-document;
its environment is the scheduler's to set.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from strata.jobs.containers.cache import Image
from strata.jobs.containers.preparation import User, start
from strata.jobs.containers.runtimes.native import options
from strata.jobs.containers.words import INSIDE, run_words
from strata.jobs.submission.launching import Launcher, launcher
from strata.jobs.submission.records import Copy, JobDocument, Kind

END = "end"
"""In the job's folder: status, beginning and end of the job, for where the scheduler does not tell. Of an array: with
the index behind a dot."""


class There(NamedTuple):
    """What a job finds where it runs."""

    kind: Kind = "slurm"
    strata: Sequence[str] = ("strata",)
    """Our own command."""
    image: Image | None = None
    """The job's image, unpacked, where nodes see it. None: our command has it fetched."""
    runner: str = ""
    """What enters that image."""
    mark: str = ""
    """On which a lock is held while it is used."""
    user: User = User(0, 0, "", "/")
    """Whose job it is."""


def script_of(document: JobDocument, folder: str, *, tell_end: bool, there: There) -> str:
    """The whole script. ``folder``: the job's own, on the machine where it runs. ``tell_end``: whether it is to write
    down its end, as its scheduler may not tell of it."""
    entered, launched = _entered(document, there), launcher(document, there.kind)
    before = [
        *_modules(document),
        *_ready(document, there),
        *(f"export {name}={value}" for name, value in launched.env.items()),
    ]
    if not (tell_end or there.mark or document.retries or document.stage_in or document.stage_out):
        plain = not (document.arguments or document.modules or entered or launched.words)
        if document.script is not None and plain:
            return document.script
        if document.script is None:
            return "\n".join(("#!/bin/sh", *before, f"exec {_command(document, entered, launched)}")) + "\n"
    run, prepared = _run(document, entered, launched)
    lines = [
        "#!/bin/sh",
        f"strata_folder={shlex.quote(folder)}",
        f'strata_end="$strata_folder/{END}{".$STRATA_ARRAY_INDEX" if document.array else ""}"',
        "strata_began=$(date +%s)",
        'mkdir -p -m 700 "$strata_folder"',
        *before,
        *prepared,
        "strata_status=0",
        *_copies(document.stage_in, "if [ $strata_status = 0 ]; then", "cannot be copied in"),
        "strata_tries=0",
        f"while [ $strata_status = 0 ] && [ $strata_tries -le {document.retries} ]; do",
        "  strata_tries=$((strata_tries + 1))",
        "  export STRATA_ATTEMPT=$strata_tries",
        f"  {run}",
        "  strata_ended=$?",
        "  [ $strata_ended = 0 ] && break",
        f"  [ $strata_tries -gt {document.retries} ] && strata_status=$strata_ended",
        "done",
        *_copies(document.stage_out, "if [ $strata_tries != 0 ]; then", "cannot be copied out"),
        *(['rm -f "$strata_script"'] if document.script else []),
        'echo "$strata_status $strata_began $(date +%s)" > "$strata_end.new" && mv "$strata_end.new" "$strata_end"',
        "exit $strata_status",
    ]
    return "\n".join(lines) + "\n"


def _modules(document: JobDocument) -> list[str]:
    if not document.modules:
        return []
    # A batch shell reads no profile, and that is where the function is made.
    found = "command -v module > /dev/null 2>&1 || . /etc/profile"
    return [found, f"module load {shlex.join(document.modules)} || exit 126"]


def _ready(document: JobDocument, there: There) -> list[str]:
    """What a container needs on the node: what starts it, and that nobody removes its image while the job runs."""
    if document.container is None:
        return []
    program = there.runner if there.image else there.strata[0]
    how = "an administrator installs it, or says what there is: strata workload connect --help"
    lines = [
        _unless(f"command -v {shlex.quote(program)} > /dev/null", f"there is no {program} on this node; {how}", 127)
    ]
    if there.mark:
        mark = shlex.quote(there.mark)
        lines += [_unless(f"[ -r {mark} ]", "the image was removed; submit the job again", 125), f"exec 9< {mark}"]
        lines += ["flock -s 9"]
    return lines


def _unless(test: str, said: str, status: int) -> str:
    return f"{test} || {{ echo {shlex.quote(f'strata: {said}')} >&2; exit {status}; }}"


def _command(document: JobDocument, entered: _Entered | None, launched: Launcher) -> str:
    inside = (*entered.options, "--", *entered.first) if entered else ()
    return shlex.join((*launched.words, *inside, document.command or ":", *document.arguments))


class _Entered(NamedTuple):
    """What starts a container."""

    options: Sequence[str]
    first: Sequence[str] = ()
    """What stands before the job's own words, inside."""


def _entered(document: JobDocument, there: There) -> _Entered | None:
    """What starts the container; None: there is none."""
    wanted = document.container
    if wanted is None:
        return None
    if wanted.clear_env:  # what the job says of its own is not what is to be kept out
        wanted = msgspec.structs.replace(wanted, env={**document.env, **wanted.env})
    if there.image is None:
        return _Entered((*there.strata, *run_words(wanted)))
    begun = start(wanted, there.image, (document.command or ":",), there.user, {})
    first = there.image.entrypoint if wanted.entrypoint else ()
    return _Entered((there.runner, *options(begun.ready)), first)


def _run(document: JobDocument, entered: _Entered | None, launched: Launcher) -> tuple[str, list[str]]:
    """The line that runs it, and what comes before."""
    if document.script is None:
        return _command(document, entered, launched), []
    text = document.script if document.script.endswith("\n") else f"{document.script}\n"
    mark = "STRATA_SCRIPT"
    while f"\n{mark}\n" in f"\n{text}":
        mark += "_"
    prepared = [
        'strata_script=$(mktemp "$strata_folder/script.XXXXXXXX") || exit 126',
        f"cat > \"$strata_script\" <<'{mark}'\n{text}{mark}",
        'chmod 700 "$strata_script"',
    ]
    program = '"$strata_script"'
    if entered:
        bound = f'{shlex.join(entered.options)} --bind="$strata_folder:{INSIDE}" {shlex.join(("--", *entered.first))}'
        program = f'{bound} "{INSIDE}/${{strata_script##*/}}"'
    return f"{shlex.join(launched.words)} {program} {shlex.join(document.arguments)}".strip(), prepared


def _copies(copies: Sequence[Copy], begin: str, said: str) -> list[str]:
    lines = []
    for copy in copies:
        source, to = shlex.quote(copy.source), shlex.quote(copy.to)
        told = shlex.quote(f"strata: {copy.source} {said}")
        lines.append(f"{begin} cp -a -- {source} {to} || {{ echo {told} >&2; strata_status=74; }}; fi")
    return lines
