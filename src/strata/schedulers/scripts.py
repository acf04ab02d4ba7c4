"""The script of a job as a scheduler gets it: environment first, then what the user runs, whichever its interpreter is.
Pure.

Values travel in the script and not in options: options stand in the list of processes, and each scheduler cuts them at
other characters. Schedulers differ in whether they heed ``#!``; all of them run ``/bin/sh``. Lines in a user's script
that look like options (``#SBATCH``, ``#$``) are none: what a job asks for is in its document.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from strata.core.errors import BadRequest
from strata.schedulers.jobs import Work

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_PLAIN_SHELL = "#!/bin/sh"
_END = "STRATA_END_OF_SCRIPT"
INDEX = "STRATA_ARRAY_INDEX"


def whole(work: Work, index: str = "", *, first: str = "") -> str:
    """The script with everything that it needs, for ``/bin/sh``. ``index``: what the shell makes the index in the array
    from (``$SLURM_ARRAY_TASK_ID``); ``first``: lines of the adapter's that come next."""
    shebang, _, body = work.script.partition("\n")
    if not shebang.startswith("#!") or not shebang[2:].strip():
        raise BadRequest("does not begin with #! and an interpreter", where="script", hint="begin it with #!/bin/sh")
    # A command first: nothing behind it is read as options of the scheduler.
    head = [_PLAIN_SHELL, ":"]
    if work.array is not None:
        head.append(f'export {INDEX}="{index}"')
    head += [f"export {name}={shlex.quote(value)}" for name, value in checked(work.env).items()]
    head += [first] if first else []
    if shebang.rstrip() == _PLAIN_SHELL:
        return "\n".join((*head, body))
    interpreter = shlex.join(shebang[2:].split(None, 1)).rstrip()
    end = _END
    while end in work.script:
        end += "_"
    text = work.script if work.script.endswith("\n") else f"{work.script}\n"
    return "\n".join((*head, f"exec {interpreter} /dev/fd/3 3<<'{end}'\n{text}{end}\n"))


def redirected(work: Work) -> str:
    """Lines for ``whole`` by which the script itself goes to its folder and opens its files: for schedulers that read
    more into a path than a path, or show what a job prints only once it has ended."""
    out, errors = _target(work, work.stdout), _target(work, work.stderr) if work.stderr is not None else "&1"
    lines = (f"cd {shlex.quote(work.workdir)} || exit 1", f"exec <{_target(work, work.stdin or '/dev/null')} >{out}")
    return "\n".join((*lines, f"exec 2>{errors}"))


def _target(work: Work, path: str) -> str:
    if work.array is None:
        return shlex.quote(path)
    return f'"${INDEX}"'.join(shlex.quote(part) if part else "" for part in path.split("%a"))


def checked(env: Mapping[str, str]) -> Mapping[str, str]:
    """The environment, if a shell can set it."""
    for name, value in env.items():
        if not _NAME.match(name):
            raise BadRequest(f"not the name of a variable: {name[:40]!r}", where="env")
        if "\0" in value:
            raise BadRequest(f"{name} has a NUL in it, which no environment can hold", where="env")
    return env
