"""The manual page strata(1), from the command line itself: ``python docs/manual.py`` prints it.

It has every command with its help, as the reference of commands has. The Debian package installs it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable

import click

_HEAD = """.\\" Made by docs/manual.py from the command line. Do not edit.
.TH STRATA 1 "" "Strata {version}" "Strata"
.SH NAME
strata \\- manage an HPC cluster: declare what it should be, and it stays so
.SH SYNOPSIS
.B strata
.RI [ OPTIONS ]
.I COMMAND
.RI [ ARGS ]...
.SH DESCRIPTION
{description}
"""

_FOOT = """.SH FILES
.TP
.I /etc/strata/strata.yaml
What the service is told; see /usr/share/doc/strata/settings.md.
.TP
.I /var/lib/strata
State of a service that root runs; elsewhere
.IR ~/.local/state/strata .
.SH SEE ALSO
.BR sinfo (1),
.BR ipmitool (1),
.BR nginx (8)
"""


def manual(program: click.Group, commands: Iterable[tuple[tuple[str, ...], click.Command, click.Context]]) -> str:
    """The page: options of all commands, the environment, then each command with its help."""
    from strata import __version__

    (_, _, context), *rest = commands
    options = [record for parameter in program.params if (record := parameter.get_help_record(context))]
    parts = [_HEAD.format(version=_escaped(__version__), description=_escaped(program.help or ""))]
    parts.append(".SH OPTIONS\nOf all commands.\n")
    parts += [f".TP\n.B {_escaped(names)}\n{_escaped(text)}\n" for names, text in options]
    parts.append(".SH ENVIRONMENT, EXIT CODES AND EXAMPLES\n" + _literal(program.epilog or ""))
    parts.append(".SH COMMANDS\n")
    for path, command, inner in rest:
        title = f".SS {_escaped(' '.join(path))}\n"
        parts.append(title + _literal(command.get_help(inner)))
    return "".join([*parts, _FOOT])


def _literal(text: str) -> str:
    """Lines as they are; ``\\b`` is click's mark that says so."""
    lines = [line.rstrip() for line in text.replace("\b", "").strip("\n").splitlines()]
    return ".nf\n" + "\n".join(map(_escaped, lines)) + "\n.fi\n"


def _escaped(text: str) -> str:
    """Text that troff takes for nothing but text: no escapes, no hyphens for minus signs, no requests."""
    plain = text.replace("\\", "\\e").replace("-", "\\-")
    plain = re.sub(r"[^\x00-\x7f]", lambda found: f"\\[u{ord(found[0]):04X}]", plain)
    return re.sub(r"(?m)^([.'])", r"\\&\1", plain)


if __name__ == "__main__":
    from generate import commands_of_strata

    from strata.cli.main import cli

    sys.stdout.write(manual(cli, commands_of_strata()))
