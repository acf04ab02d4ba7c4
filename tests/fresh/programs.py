"""Which programs the code, the tests and the benchmarks start, and which Debian package each of them is from.

Found in the sources: the first word of every command that is handed to whatever starts processes. Where a command is
put together elsewhere, ``COMPUTED`` says what it can be. ``STARTED`` is all of it; tests that start something else fail
as they do (see ``watch``), so that nothing is left out because it could not be found.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from fresh.machine import BASE

REPOSITORY = Path(__file__).resolve().parents[2]
FOLDERS = ("src", "tests", "bench", "docs", "deploy")

STARTED = frozenset(
    {
        "apt-cache",
        "apt-config",
        "apt-get",
        "bash",
        "buildah",
        "busybox",
        "bwrap",
        "ch-run",
        "chromium",
        "chroot",
        "cloud-init",
        "cpio",
        "crun",
        "curl",
        "dask-scheduler",
        "dhcping",
        "docker-registry",
        "dot",
        "dpkg",
        "dpkg-deb",
        "dpkg-query",
        "echo",
        "env",
        "etcd",
        "gcc",
        "getent",
        "git",
        "grub-mkimage",
        "head",
        "in.tftpd",
        "initdb",
        "ip",
        "ipmitool",
        "kea-dhcp4",
        "kill",
        "ldconfig",
        "ldd",
        "make",
        "mariadb-install-db",
        "mariadbd",
        "mcopy",
        "mformat",
        "mkdir",
        "mksquashfs",
        "mmd",
        "mmdebstrap",
        "mount",
        "mpiexec",
        "munge",
        "munged",
        "nginx",
        "nice",
        "nsenter",
        "openssl",
        "perfdhcp",
        "pg_isready",
        "pgrep",
        "podman",
        "postgres",
        "prlimit",
        "promtool",
        "proot",
        "ps",
        "qacct",
        "qconf",
        "qdel",
        "qemu-system-x86_64",
        "qhold",
        "qhost",
        "qmod",
        "qrls",
        "qstat",
        "qrdel",
        "qrstat",
        "qrsub",
        "qsub",
        "radvd",
        "rm",
        "runc",
        "sacct",
        "sacctmgr",
        "salloc",
        "sbatch",
        "scancel",
        "scontrol",
        "setpriv",
        "sge_execd",
        "sge_qmaster",
        "sh",
        "sinfo",
        "sleep",
        "slirp4netns",
        "slurmctld",
        "slurmd",
        "slurmdbd",
        "spooldefaults",
        "squeue",
        "srun",
        "ssh",
        "ssh-keygen",
        "sshd",
        "sysctl",
        "tar",
        "umount",
        "unshare",
        "unsquashfs",
        "useradd",
        "userdel",
        "wrk",
        "xorriso",
        "zstd",
    }
)
"""By name. Not: Python, and what pip installs."""

ON_NODES = {"reboot": "busybox"}
"""Programs that only the agent starts, on a node: what minOS has them from."""

_IMAGES = ("buildah", "mmdebstrap", "nice", "setpriv", "unshare", "unsquashfs")
COMPUTED: dict[str, tuple[str, ...]] = {
    "bench/accelerators.py::_said": ("setpriv",),  # and nvidia-smi, which comes with NVIDIA's driver
    "bench/boot_dhcp.py::_rate": ("ip", "perfdhcp"),
    "bench/jobs.py::_start": ("unshare",),  # and what was built here
    "bench/jobs_runtimes.py::_row": ("bwrap", "ch-run", "crun", "podman", "runc", "setpriv", "sh", "unshare"),
    "bench/jobs_service.py::_bare": (),  # a script of its own
    "bench/measure.py::child": ("etcd", "ip", "kea-dhcp4", "nginx", "qemu-system-x86_64"),
    "bench/peers.py::_installed": (),  # pip of an environment of its own
    "bench/peers.py::_ironic": (),  # what that has installed
    "tests/support/native.py::as_user": ("unshare",),  # and what was built here
    "tests/support/native.py::start_in": (),  # what was built here
    "tests/support/terminal.py::seen": (),  # strata itself
    "src/strata/agent/delivery/live.py::inside": (),  # crun's command line: what is started is in the member's image
    "src/strata/agent/host/execs.py::run_exec": (),  # what users run on their nodes
    "src/strata/agent/images/mounts.py::run_tool": ("mount", "umount"),
    "src/strata/agent/personality/container.py::_quietly": ("crun",),
    "src/strata/agent/personality/container.py::running": ("crun",),
    "src/strata/agent/personality/container.py::start": ("crun",),
    "src/strata/agent/personality/ready.py::is_ready": ("crun",),
    "src/strata/api/nginx.py::_check": ("nginx",),
    "src/strata/cli/up/accounting.py::check_host": ("mariadb-install-db", "mariadbd"),
    "src/strata/cli/up/background.py::start": ("mariadbd", "munged", "nsenter"),
    "src/strata/cli/up/slurm.py::_asks": ("munge", "sacctmgr", "sinfo"),
    "src/strata/cli/up/slurm.py::check_host": ("munged", "slurmctld", "srun"),
    "src/strata/jobs/local/supervisor.py::_become_job": ("mpiexec",),  # and what users run
    # What a site's own model names; what workload managers are asked by; what reads the logs of jobs.
    "src/strata/fleet/drivers/subprocesses.py::_start": (
        "getent",
        "qacct",
        "qconf",
        "qdel",
        "qhold",
        "qhost",
        "qmod",
        "qrls",
        "mkdir",
        "qstat",
        "qrdel",
        "qrstat",
        "qrsub",
        "qsub",
        "sbatch",
        "scancel",
        "scontrol",
        "setpriv",  # and after it prlimit, nice and Python: a playbook, for which ansible-runner starts ssh-agent
        "sh",
        "sinfo",
        "squeue",
        "ssh",
    ),
    "src/strata/daemon/doctor.py::which": (
        "buildah",
        "git",
        "in.tftpd",
        "mksquashfs",
        "mmdebstrap",
        "nginx",
        "radvd",
        "slirp4netns",
        "ssh",
    ),
    "src/strata/core/host/captured.py::captured": (
        "git",
        "mariadb-install-db",
        "munge",
        "sacctmgr",
        "scontrol",
        "sinfo",
    ),
    "src/strata/core/host/process.py::spawn": ("mariadbd", "munged", "nsenter", "qemu-system-x86_64"),
    "src/strata/provisioning/boot/media.py::_run": ("grub-mkimage", "mcopy", "mformat", "mmd", "xorriso"),
    "src/strata/fleet/child_process.py::_spawn": ("in.tftpd", "radvd"),
    "src/strata/fleet/child_process.py::find": ("in.tftpd", "radvd"),
    "src/strata/provisioning/images/build/steps.py::run": _IMAGES,
    "src/strata/provisioning/images/build/steps.py::require": _IMAGES,
    "src/strata/provisioning/images/layers.py::_zstd": ("setpriv", "zstd"),
    "src/strata/provisioning/minos/packages.py::_run": ("apt-cache", "apt-get", "dpkg"),
    "src/strata/provisioning/minos/python.py::_compile": (),  # Python, of a version that the kernel's packages decide
    "src/strata/slurm_cli/health.py::checked": (),  # what the site puts into its folder of checks
    "src/strata/virtual/qemu/create.py::check_host": ("qemu-system-x86_64",),
    "src/strata/virtual/qemu/machine.py::_start": ("qemu-system-x86_64",),
    "src/strata/virtual/qemu/network.py::_run": ("ip", "nsenter", "sh"),
    "src/strata/virtual/qemu/network.py::tool": (
        "git",
        "ip",
        "munged",
        "nsenter",
        "qemu-system-x86_64",
        "slurmctld",
        "srun",
        "ssh",
    ),
    "tests/cli/test_cli_exec.py::_receive": ("sh",),
    "tests/agent/agent_process.py::inside": ("kill", "nsenter", "pgrep", "ps", "umount"),
    "tests/agent/agent_process.py::start": ("nsenter",),
    "tests/agent/test_agent_members.py::silent_device": ("nsenter",),
    "tests/agent/test_agent_secrets.py::strata": (),
    "tests/bench/bench_support.py::figures": (),
    "tests/bench/test_bench_converge.py::test_when_it_is_stopped_it_leaves_neither_files_nor_processes": (),
    "tests/bench/test_bench_converge.py::test_without_json_it_prints_a_table_and_tells_its_progress_apart": (),
    "tests/docs/test_worked_examples.py::extended": (),  # strata itself
    "tests/fresh/programs.py::packages_of": (),
    "tests/fresh/programs.py::watch": (),
    "tests/fresh/test_programs.py::test_whoever_starts_what_nobody_named_fails": (),
    "tests/docs/docs_desk.py::shell": ("bash", "nsenter"),
    "tests/docs/docs_typing.py::main": (),  # Strata's command
    "tests/support/bridge_visitor.py::run": ("curl", "nsenter"),
    "tests/support/minos.py::__enter__": ("qemu-system-x86_64",),
    "tests/support/postgres.py::_do": ("initdb", "pg_isready"),
    "tests/support/postgres.py::_spawn": ("postgres",),
    "tests/support/sushy_emulator.py::sushy_emulator": (),
    "tests/support/virtual_cluster.py::run": (),
    "tests/system/test_slurm_accounting.py::running": ("env", "mariadbd"),
    "tests/system/test_virtual_cluster_slurm.py::_said": ("sbatch", "sinfo", "squeue"),
    "tests/system/test_virtual_cluster_slurm.py::dask_scheduler": ("dask-scheduler",),  # by strata itself
    "tests/support/virtual_cluster.py::start": (),
    "tests/support/fake_kubernetes.py::_run": ("sh",),  # what jobs run
    "tests/support/grid_engine.py::run": ("qconf", "qdel", "qhost", "qmod", "qstat", "qsub", "spooldefaults"),
    "tests/support/slurm.py::run": ("sbatch", "scontrol", "sinfo", "squeue"),
    "tests/system/test_virtual_cluster.py::test_nodes_do_not_notice_that_the_service_is_away": ("nsenter",),
    "tests/virtual/test_virtual_tree.py::test_the_service_validator_of_the_dmtf_finds_no_failure": (),
    "src/strata/jobs/containers/execution.py::_attended": ("podman", "runc"),
    "src/strata/jobs/containers/execution.py::execute": ("bwrap", "ch-run"),
    "src/strata/jobs/containers/runtimes/__init__.py::require": ("bwrap", "ch-run", "crun", "podman", "runc"),
    "tests/jobs/container_support.py::strata": ("setpriv",),
    "tests/jobs/test_environments.py::own_service": ("setpriv",),
    "src/strata/platform/config/git.py::_git": ("git",),
    "src/strata/platform/config/git.py::_guarded": ("git", "prlimit", "setpriv"),
    "src/strata/provisioning/worker.py::ask": ("prlimit", "setpriv", "unshare"),
    "tests/platform/test_ansible_inventory.py::test_ansible_runs_a_playbook_over_the_inventory": (),
    "tests/provisioning/test_build_hostile.py::test_networks_that_others_have_on_the_machine_outlive_a_build": ("ip",),
    "tests/provisioning/test_image_hostile.py::test_nothing_but_files_is_in_reach_of_a_worker": (
        "prlimit",
        "setpriv",
        "unshare",
    ),
    "tests/whole.py::_pytest": (),  # of the environment that it runs in
}
"""Where a command comes from elsewhere → what it can be. Empty: Python, or what users and images bring themselves."""

WRAPPERS = {
    "chroot": re.compile(r"chroot \S+ "),
    "ip": re.compile(r"ip netns exec \S+ "),
    "nice": re.compile(r"nice (-n \S+ )?"),
    "nsenter": re.compile(r"nsenter ((-t \S+|-\S+) )*(-- )?"),
    "setpriv": re.compile(r"setpriv (--(pdeathsig|reuid|regid) \S+ |--init-groups )*(-- )?"),
    "unshare": re.compile(r"unshare (-\S+ )*"),
}
"""Programs that become another one: what stands before it."""

_STARTERS = {
    *("subprocess.run", "subprocess.Popen", "asyncio.create_subprocess_exec", "asyncio.create_subprocess_shell"),
    *("subprocess.call", "subprocess.check_call", "subprocess.check_output", "os.system", "os.popen"),
    *("os.execv", "os.execvp", "os.execve", "os.posix_spawn", "os.posix_spawnp", "ps.spawn", "shutil.which"),
    *("tool", "network.tool", "run_tool", "child"),
}
_HELPERS = {"_must", "_run", "enter", "run", "spawn"}
_PYTHON = "python"
_PYTHONS_OWN = sysconfig.get_path("stdlib") + "/"


class Site(NamedTuple):
    """A place that starts a process."""

    place: str
    """``file::function``."""
    line: int
    programs: tuple[str, ...]
    """What it starts; empty: that is put together elsewhere."""


def sites() -> list[Site]:
    """Every place in the sources."""
    paths = (path for folder in FOLDERS for path in sorted((REPOSITORY / folder).rglob("*.py")))
    return [site for path in paths for site in _Finder(path).found]


class _Finder(ast.NodeVisitor):
    def __init__(self, path: Path) -> None:
        self._path = path
        self._functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = []
        self._module = ast.parse(path.read_text(encoding="utf-8"))
        self.found: list[Site] = []
        self.visit(self._module)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._functions.append(node)
        self.generic_visit(node)
        self._functions.pop()

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._functions.append(node)  # type: ignore[arg-type]
        self.generic_visit(node)
        self._functions.pop()

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        command: ast.expr | None = None
        if _dotted(node.func) in _STARTERS and node.args:
            command = node.args[0]
        for argument, following in zip(node.args, node.args[1:], strict=False):  # to_thread(subprocess.run, [...])
            if "." in (name := _dotted(argument)) and name in _STARTERS:
                command = following
        if command is None:
            known = self._first(node.args[0], set()) if self._passes_on(node) else set()
            if known and not any(" " in word for word in known):  # else it is SQL, which is run as well
                self._note(node, known)
            return
        self._note(node, self._first(command, set()))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """By its bare name nobody would know it again."""
        if any(f"{node.module}.{one.name}" in _STARTERS for one in node.names):
            self._note(node, set())

    def _passes_on(self, node: ast.Call) -> bool:
        """Whether a command in words is given to a function of ours that starts it."""
        name = node.func.attr if isinstance(node.func, ast.Attribute) else _dotted(node.func)
        words = bool(node.args) and isinstance(node.args[0], ast.List | ast.Tuple | ast.Name | ast.BinOp)
        return words and name in _HELPERS and self._path.is_relative_to(REPOSITORY / "src")

    def _note(self, node: ast.Call | ast.ImportFrom, programs: set[str]) -> None:
        function = self._functions[-1].name if self._functions else ""
        place = f"{self._path.relative_to(REPOSITORY)}::{function}"
        self.found.append(Site(place, node.lineno, tuple(sorted(programs))))

    def _first(self, value: ast.expr, seen: set[str]) -> set[str]:
        """What the first word can be; empty: cannot be told here."""
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            return {value.value}
        if isinstance(value, ast.List | ast.Tuple) and value.elts:
            return self._first(value.elts[0], seen)
        if isinstance(value, ast.Starred | ast.Subscript):
            return self._first(value.value, seen)
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
            return self._first(value.left, seen)
        if isinstance(value, ast.IfExp):
            both = self._first(value.body, seen), self._first(value.orelse, seen)
            return both[0] | both[1] if all(both) else set()
        if _dotted(value) == "sys.executable":
            return {_PYTHON}
        if isinstance(value, ast.Call):
            called = _dotted(value.func)
            if called in ("shutil.which", "tool", "network.tool") and value.args:
                return self._first(value.args[0], seen)
            if called == "map" and len(value.args) == 2:
                return self._first(value.args[1], seen)
            if called == "find_nginx":
                return {"nginx"}
            if called in ("ps.command", "prefix_of", "network.prefix_of"):
                return {_PYTHON if called == "ps.command" else "nsenter"}
        if isinstance(value, ast.Name) and value.id not in seen:
            return self._named(value.id, seen | {value.id})
        return set()

    def _named(self, name: str, seen: set[str]) -> set[str]:
        scopes: list[ast.AST] = [*reversed(self._functions), self._module]
        for scope in scopes:
            if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
                given = [*scope.args.args, *scope.args.posonlyargs, *scope.args.kwonlyargs, scope.args.vararg]
                if any(argument is not None and argument.arg == name for argument in given):
                    return set()
            values = [node.value for node in ast.walk(scope) if _assigns(node, name)]
            if values:
                each = [self._first(value, seen) for value in values]
                return set().union(*each) if all(each) else set()
        return set()


def _dotted(value: ast.expr) -> str:
    """``a`` or ``a.b``; empty for whatever else."""
    if isinstance(value, ast.Name):
        return value.id
    if isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name):
        return f"{value.value.id}.{value.attr}"
    return ""


def _assigns(node: ast.AST, name: str) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    named = any(isinstance(target, ast.Name) and target.id == name for target in targets)
    return named and getattr(node, "value", None) is not None


def words() -> set[str]:
    """Every word in the sources, but these."""
    paths = (path for folder in FOLDERS for path in (REPOSITORY / folder).rglob("*.py") if path != Path(__file__))
    return {word for path in paths for word in re.findall(r"[\w.+-]+", path.read_text(encoding="utf-8"))}


def chain(command: Sequence[str]) -> Iterator[str]:
    """The programs of a command: those that become another one, and the last."""
    while command:
        name = Path(command[0]).name
        if _is_ours(command[0]):
            return
        yield name
        line = " ".join(word.replace(" ", "_") for word in [name, *command[1:]]) + " "
        match = WRAPPERS[name].match(line) if name in WRAPPERS else None
        if match is None:
            return
        command = command[len(match[0].split()) :]


def _is_ours(program: str) -> bool:
    """Whether it is Python, or neither on the path nor one of the system's: a file of ours, or of a test's."""
    return (
        program == sys.executable
        or Path(program).name.startswith("python")
        or ("/" in program and not program.startswith(("/usr/", "/bin/", "/sbin/")))
    )


def unknown(command: Sequence[str]) -> list[str]:
    """The programs of a command that ``STARTED`` lacks."""
    return [name for name in chain(command) if name not in STARTED]


def _by_us() -> bool:
    """Whether code of ours starts it, and not a library's: whoever stands next, above what Python brings."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and (frame.f_code.co_filename.startswith(("<", _PYTHONS_OWN))):
        frame = frame.f_back
    place = Path(frame.f_code.co_filename) if frame is not None else Path("/")
    return place.is_relative_to(REPOSITORY) and "site-packages" not in place.parts


def watch(event: str, arguments: tuple[object, ...]) -> None:
    """An audit hook: refuse to start what ``STARTED`` lacks."""
    if event != "subprocess.Popen" or not _by_us():
        return
    command = arguments[1]
    told = [command] if isinstance(command, str | bytes) or not isinstance(command, Iterable) else [*command]
    missing = unknown([word.decode() if isinstance(word, bytes) else str(word) for word in told])
    if missing and shutil.which(missing[0]):
        raise AssertionError(
            f"{missing[0]} is started, and tests/fresh/programs.py does not know: name it in STARTED, and its package "
            "in the Makefile"
        )


# -- packages


class Installed(NamedTuple):
    """A package of this machine."""

    required: bool
    depends: tuple[tuple[str, ...], ...]
    """What it needs: of each, one."""


@cache
def installed() -> tuple[dict[str, Installed], dict[str, tuple[str, ...]]]:
    """By name; and who provides names that are nobody's."""
    form = "${Package}\t${db:Status-Status}\t${Essential}\t${Priority}\t${Pre-Depends}, ${Depends}\t${Provides}\n"
    told = subprocess.run(["dpkg-query", "-W", "-f", form], capture_output=True, text=True, check=True).stdout
    found: dict[str, Installed] = {}
    providers: dict[str, tuple[str, ...]] = {}
    for line in told.splitlines():
        name, status, essential, priority, needs, provides = line.split("\t")
        if status != "installed":
            continue
        each = tuple(tuple(_names(need, "|")) for need in needs.split(",") if need.strip())
        found[name] = Installed(essential == "yes" or priority == "required", each)
        for virtual in _names(provides, ","):
            providers[virtual] = (*providers.get(virtual, ()), name)
    return found, providers


def _names(text: str, separator: str) -> list[str]:
    return [part.split("(")[0].strip().partition(":")[0] for part in text.split(separator) if part.strip()]


def named_in_makefile(text: str) -> list[str]:
    """The packages that a Makefile names."""
    match = re.search(r"^PACKAGES :=((?:.*\\\n)*.*)", text, re.MULTILINE)
    assert match, "PACKAGES := ... is not there"
    return match[1].replace("\\\n", " ").split()


def there_on_a_fresh_machine(named: Iterable[str]) -> set[str]:
    """The packages that a machine has which had the base system and got these: they, and what they depend on."""
    found, providers = installed()
    todo = [*named, *BASE, "apt", *(name for name, one in found.items() if one.required)]
    there: set[str] = set()
    while todo:
        name = todo.pop()
        if name in there or name not in found:
            continue
        there.add(name)
        for alternatives in found[name].depends:
            real = [
                other for choice in alternatives for other in (choice, *providers.get(choice, ())) if other in found
            ]
            todo += real[:1]
    return there


def packages_of(programs: Iterable[str]) -> dict[str, str]:
    """The package that brings each program; empty: none."""
    folders = ["/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/lib/gridengine"]
    folders += map(str, Path("/usr/lib/postgresql").glob("*/bin"))
    places: dict[str, list[str]] = {}
    for program in programs:
        found = shutil.which(program, path=":".join(folders))
        # A link of the alternatives is nobody's; and packages know files by where they were before /bin was /usr/bin.
        paths = [] if found is None else [found, str(Path(found).resolve())]
        places[program] = [name for path in paths for name in (path, path.removeprefix("/usr"), f"/usr{path}")]
    asked = ["dpkg-query", "-S", *(path for each in places.values() for path in each)]
    told = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
    lines = [line.rpartition(": ") for line in told.splitlines() if not line.startswith("diversion ")]
    owners = {path: owner.partition(",")[0].partition(":")[0] for owner, _, path in lines}
    return {program: next((owners[path] for path in each if path in owners), "") for program, each in places.items()}


# -- shell

_BUILTINS = frozenset(
    {"break", "cd", "echo", "exec", "exit", "export", "for", "kill", "printf", "set", "shift", "test", "umask", "unset"}
    | {"wait"}
)
_BEFORE = re.compile(r"""\s*(?:(?:!|do|done|else|exec|if|then|until|while)(?=\s|$)|\w+\+?=\S*)""")
_WORD = re.compile(r"\s*([a-z][\w.-]*)(?=\s|$)")


def shell_words(script: str) -> set[str]:
    """The programs that a simple script calls: the first word of each of its commands."""
    found = set()
    for command in _commands(script):
        while before := _BEFORE.match(command):
            command = command[before.end() :]
        word = _WORD.match(command)
        if word and word[1] not in _BUILTINS:
            found.add(word[1])
    return found


def _commands(script: str) -> Iterator[str]:
    """The commands of a script, those in others too. What is quoted is one letter."""
    texts, quoted = [""], [False]
    for part in re.findall(r"""\\.|'[^']*'|\$\(|.""", script, re.DOTALL):
        if part == "$(":
            texts[-1] += "Q"
            texts.append("")
            quoted.append(False)
        elif part == '"':
            quoted[-1] = not quoted[-1]
            texts[-1] += "Q"
        elif quoted[-1]:
            continue
        elif part in "();|&{}\n":
            yield texts[-1]
            texts[-1] = ""
            if part == ")" and len(texts) > 1:
                texts.pop()
                quoted.pop()
        else:
            texts[-1] += "Q" if len(part) > 1 else part
    yield from texts


def recipes(makefile: str) -> str:
    """The shell in a Makefile."""
    lines = re.findall(r"^\t@?(.*(?:\\\n.*)*)", makefile, re.MULTILINE)
    return re.sub(r"\$\([A-Z_]+\)", "VALUE", "\n".join(lines).replace("\\\n", " ").replace("$$", "$"))
