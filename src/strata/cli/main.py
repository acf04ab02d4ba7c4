"""The ``strata`` command: global options, the table of subcommands, errors as one line and an exit code.

Subcommands are imported when they are named, so that any of them starts fast. What they do is in their own modules.
"""

from __future__ import annotations

import io
import itertools
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import click

from strata import __version__
from strata.cli import exits
from strata.cli.lazy import LazyGroup
from strata.cli.session import Session
from strata.core.errors import StrataError
from strata.core.printable import clean
from strata.rooms import commands

FILE = click.Path(dir_okay=False, path_type=Path)


@click.group(
    cls=LazyGroup,
    members=commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    epilog="""\b
Environment: STRATA_URL, STRATA_TOKEN, STRATA_TOKEN_FILE, STRATA_CERT, STRATA_KEY, STRATA_CA, STRATA_STATE (the
state directory of a service on this machine), NO_COLOR.
\b
Exit codes: 0 fine, 1 error, 2 wrong usage, 3 not possible (no way to the goal, or a brake said no), 4 denied,
5 conflict, 6 the service cannot be reached, 130 interrupted.
\b
Try:
  strata up                                  four virtual machines that boot over their network (as root)
  strata up --simulated                      a simulated fleet of 256 nodes
  strata node list state:faulted             the nodes that need a person
  strata node set @compute image=v2 --wait   bring them there""",
)
@click.option(
    "--url", envvar="STRATA_URL", default="", help="unix:PATH or https://HOST:PORT [default: the local socket]"
)
@click.option("--token-file", envvar="STRATA_TOKEN_FILE", type=FILE, help="File (0600) that holds a bearer token.")
@click.option("--cert", envvar="STRATA_CERT", type=FILE, help="Client certificate (PEM).")
@click.option("--key", envvar="STRATA_KEY", type=FILE, help="Its key (PEM), if it is not in the same file.")
@click.option("--ca", envvar="STRATA_CA", type=FILE, help="Authority that signed the service's certificate (PEM).")
@click.option("--no-color", is_flag=True, help="No colours, as with NO_COLOR in the environment.")
@click.option("-v", "--verbose", is_flag=True, help="Show requests, and where an internal error came from.")
@click.version_option(__version__, message="strata %(version)s")
@click.pass_context
def cli(
    ctx: click.Context,
    url: str,
    token_file: Path | None,
    cert: Path | None,
    key: Path | None,
    ca: Path | None,
    no_color: bool,
    verbose: bool,
) -> None:
    """Strata manages HPC clusters: declare what a machine should be, and it stays so."""
    if key is not None and cert is None:
        raise click.UsageError("--key is the key of a certificate: give --cert too")
    colour = not no_color and not os.environ.get("NO_COLOR")
    session = Session(url=url, token_file=token_file, cert=cert, key=key, ca=ca, colour=colour, verbose=verbose)
    ctx.obj = session
    ctx.call_on_close(session.close)
    if ctx.invoked_subcommand is None:
        from strata.cli.next_steps import show_next_steps

        show_next_steps(session)


def globals_first(arguments: Sequence[str]) -> list[str]:
    """The command line with its global options in front, wherever they were typed: ``strata status --url URL``. No
    command has one of the same name. Whatever comes after ``--`` is left alone."""
    known = {name: option for option in cli.params if isinstance(option, click.Option) for name in option.opts}
    end = arguments.index("--") if "--" in arguments else len(arguments)
    front: list[str] = []
    rest: list[str] = []
    words = iter(arguments[:end])
    for word in words:
        name, equals, _ = word.partition("=")
        option = known.get(name)
        if option is None:
            rest.append(word)
            continue
        front.append(word)
        if not option.is_flag and not equals:
            front.extend(itertools.islice(words, 1))
    return [*front, *rest, *arguments[end:]]


def run(arguments: Sequence[str]) -> int:
    """Run one command line; the exit code."""
    if "_STRATA_COMPLETE" in os.environ:
        from click.shell_completion import shell_complete

        return shell_complete(cli, {}, "strata", "_STRATA_COMPLETE", os.environ["_STRATA_COMPLETE"])
    verbose = False
    try:
        with cli.make_context("strata", globals_first(arguments)) as ctx:
            verbose = bool(ctx.params.get("verbose"))
            cli.invoke(ctx)
        sys.stdout.flush()
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        where = getattr(error, "ctx", None)
        path = where.command_path if where is not None else "strata"
        text = " ".join(error.format_message().split())
        if isinstance(error, click.NoSuchOption) and where is not None and isinstance(where.command, click.Group):
            text += " (options of a command come after it)"
        print(f"{path}: {clean(text)} (see '{path} --help')", file=sys.stderr)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return exits.INTERRUPTED
    except BrokenPipeError:
        # Whoever read us has left. Python would complain when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return exits.BROKEN_PIPE
    except StrataError as error:
        print(f"strata: {clean(error)}", file=sys.stderr)
        return exits.of(error)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        print(f"strata: {clean(f'{place}{error.strerror or error}')}", file=sys.stderr)
        return exits.ERROR
    except Exception as error:
        if verbose:
            raise
        print(f"strata: internal error, please report it: {clean(repr(error))} (-v shows where)", file=sys.stderr)
        return exits.ERROR
    return 0


def main() -> NoReturn:
    """The entry point."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # in a pipe, too: whoever reads must not wait for what comes next
    sys.exit(run(sys.argv[1:]))
