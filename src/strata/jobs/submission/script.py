"""The script of a job, made of its document: staging, retries, and a record of its end. Pure.

It is POSIX shell, the same for every scheduler. Whatever the document says is quoted, or comes in a here-document;
its environment is the scheduler's to set.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import msgspec

from strata.jobs.containers.words import INSIDE, run_words
from strata.jobs.submission.records import Copy, JobDocument

END = "end"
"""In the job's folder: status, beginning and end of the job, for where the scheduler does not tell. Of an array: with
the index behind a dot."""


def script_of(document: JobDocument, folder: str, *, tell_end: bool, strata: Sequence[str] = ("strata",)) -> str:
    """The whole script. ``folder``: the job's own, on the machine where it runs. ``tell_end``: whether it is to write
    down its end, as its scheduler may not tell of it. ``strata``: what runs our command there."""
    plain = document.container is None and not document.modules
    if not (tell_end or document.retries or document.stage_in or document.stage_out):
        if document.script is not None and not document.arguments and plain:
            return document.script
        if document.script is None:
            return "\n".join(("#!/bin/sh", *_modules(document), f"exec {_command(document, strata)}")) + "\n"
    run, prepared = _run(document, strata)
    lines = [
        "#!/bin/sh",
        f"strata_folder={shlex.quote(folder)}",
        f'strata_end="$strata_folder/{END}{".$STRATA_ARRAY_INDEX" if document.array else ""}"',
        "strata_began=$(date +%s)",
        'mkdir -p -m 700 "$strata_folder"',
        *_modules(document),
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
        *_copies(document.stage_out, "if :; then", "cannot be copied out"),
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


def _command(document: JobDocument, strata: Sequence[str]) -> str:
    return shlex.join((*_entered(document, strata), document.command or ":", *document.arguments))


def _entered(document: JobDocument, strata: Sequence[str]) -> list[str]:
    """What starts the container, up to the program; empty: there is none."""
    if document.container is None:
        return []
    wanted = document.container
    if wanted.clear_env:  # what the job says of its own is not what is to be kept out
        wanted = msgspec.structs.replace(wanted, env={**document.env, **wanted.env})
    return [*strata, *run_words(wanted), "--"]


def _run(document: JobDocument, strata: Sequence[str]) -> tuple[str, list[str]]:
    """The line that runs it, and what comes before."""
    if document.script is None:
        return _command(document, strata), []
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
    if entered := _entered(document, strata):
        program = f'{shlex.join(entered[:-1])} --bind="$strata_folder:{INSIDE}" -- "{INSIDE}/${{strata_script##*/}}"'
    return f"{program} {shlex.join(document.arguments)}".rstrip(), prepared


def _copies(copies: Sequence[Copy], begin: str, said: str) -> list[str]:
    lines = []
    for copy in copies:
        source, to = shlex.quote(copy.source), shlex.quote(copy.to)
        told = shlex.quote(f"strata: {copy.source} {said}")
        lines.append(f"{begin} cp -a -- {source} {to} || {{ echo {told} >&2; strata_status=74; }}; fi")
    return lines
