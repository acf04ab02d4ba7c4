"""The parts of the minimal OS's build, each by itself."""

import ctypes
import errno
import json
import lzma
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from strata.core.errors import BadRequest, NotFound
from strata.provisioning.minos import elf, modules, packages, python, root, standin
from strata.provisioning.minos.packages import Packages
from strata.provisioning.minos.recipe import recipe
from strata.provisioning.minos.tree import File, directory, fingerprint, link, pack, regular

SCRIPTS = Path(root.__file__).parent / "rootfs"
RELEASE = "6.1.0-test"


def module(*info: str) -> File:
    """A kernel module that holds no code: an ELF file with a .modinfo section."""
    body = b"".join(text.encode() + b"\0" for text in info)
    names = b"\0.modinfo\0.shstrtab\0"
    start = 64
    table = start + len(body) + len(names)
    header = (
        b"\x7fELF\x02\x01"
        + bytes(10)
        + struct.pack("<HHIQQQIHHHHHH", 1, elf.X86_64, 1, 0, 0, table, 0, 64, 0, 0, 64, 3, 2)
    )
    rows = [
        (0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        (1, 1, 0, 0, start, len(body), 0, 0, 1, 0),
        (10, 3, 0, 0, start + len(body), len(names), 0, 0, 1, 0),
    ]
    return regular(header + body + names + b"".join(struct.pack("<IIQQQQIIQQ", *row) for row in rows))


def kernel(**found: File) -> dict[str, File]:
    base = {name: module() for name in modules.ALWAYS}
    files = {f"lib/modules/{RELEASE}/kernel/x/{name}.ko": file for name, file in {**base, **found}.items()}
    files[f"lib/modules/{RELEASE}/modules.builtin"] = regular(b"kernel/net/unix.ko\n")
    return files


def table(tree: dict[str, File], name: str) -> str:
    return tree[f"lib/modules/{RELEASE}/modules.{name}"].data.decode()


def test_modules_come_with_all_that_they_need_in_the_order_of_loading():
    tree = modules.select(
        kernel(
            virtio_net=module("depends=net_failover,virtio", "alias=virtio:d00000001v*"),
            net_failover=module("depends=failover"),
            failover=module(),
            virtio=module(),
            unwanted=module("alias=pci:v1"),
        ),
        RELEASE,
    )
    assert "kernel/x/virtio_net.ko: kernel/x/virtio.ko kernel/x/net_failover.ko kernel/x/failover.ko\n" in table(
        tree, "dep"
    )
    assert table(tree, "alias") == "alias virtio:d00000001v* virtio_net\n"
    assert not any("unwanted" in path for path in tree)


def test_a_module_that_should_be_there_first_is_loaded_first():
    tree = modules.select(
        kernel(e1000=module("softdep=pre: crc32c post: later"), crc32c=module(), later=module()), RELEASE
    )
    assert "kernel/x/e1000.ko: kernel/x/crc32c.ko\n" in table(tree, "dep")
    assert not any("later" in path for path in tree)


def test_a_module_that_was_asked_for_and_is_not_there_is_an_error_and_one_built_in_is_not():
    with pytest.raises(NotFound, match="has no module 'nonsense'"):
        modules.select(kernel(), RELEASE, ["nonsense"])
    modules.select(kernel(), RELEASE, ["unix"])


def test_drivers_of_the_hardware_that_was_told_are_carried_and_the_usual_ones_are_not():
    files = kernel(
        e1000=module("alias=pci:v00008086d*"),
        rare=module("alias=pci:v00001234d0000ABCDsv*", "depends=below"),
        below=module(),
        veth=module(),
    )
    told = ["pci:v00001234d0000ABCDsv00000000", "acpi:PNP0C0F:"]
    tree = modules.select(files, RELEASE, hardware=told)
    found = {path.rpartition("/")[2].removesuffix(".ko") for path in tree if path.endswith(".ko")}
    assert found == {"rare", "below", "veth", *modules.ALWAYS}


def test_a_module_that_is_packed_is_unpacked_before_it_is_carried():
    plain = module("alias=virtio:x")
    files = kernel()
    files[f"lib/modules/{RELEASE}/kernel/x/virtio_net.ko.xz"] = regular(lzma.compress(plain.data))
    tree = modules.select(files, RELEASE)
    assert tree[f"lib/modules/{RELEASE}/kernel/x/virtio_net.ko"] == plain


def test_modules_that_need_each_other_end_the_search():
    tree = modules.select(kernel(e1000=module("depends=igb"), igb=module("depends=e1000")), RELEASE)
    assert "kernel/x/e1000.ko" in table(tree, "dep")


def test_an_elf_file_that_is_cut_off_is_no_elf_file():
    whole = module("depends=x").data
    assert elf.read(whole, (".modinfo",)) is not None
    assert all(elf.read(whole[:size]) is None for size in (0, 5, 20, len(whole) // 2))
    assert elf.read(b"\x7fELF\x02\x01" + b"\xff" * 200) is None


def test_a_stand_in_has_what_the_program_asks_for_and_every_function_says_that_it_is_not_supported(tmp_path: Path):
    path = tmp_path / "libsystemd.so.0"
    crun = Path(shutil.which("crun") or "/no/crun").read_bytes()
    functions = elf.imports(crun, path.name)
    assert functions["sd_notify"].startswith("LIBSYSTEMD_")
    header = elf.read(crun)
    assert header is not None
    path.write_bytes(standin.library(path.name, header.machine, functions))
    found = ctypes.CDLL(str(path))
    assert {getattr(found, name)() for name in functions} == {-errno.ENOSYS}
    done = subprocess.run(["crun", "--version"], env={"LD_LIBRARY_PATH": str(tmp_path)}, capture_output=True, text=True)
    assert done.returncode == 0 and "crun version" in done.stdout, done.stderr


def test_a_program_takes_nothing_of_a_library_that_it_does_not_name():
    assert elf.imports(Path(sys.executable).resolve().read_bytes(), "libsystemd.so.0") == {}
    assert elf.imports(module().data, "libsystemd.so.0") == {}


def test_the_same_files_make_the_same_archive_in_whatever_order_they_came():
    files = {"b": regular(b"2"), "a/c": regular(b"1", executable=True), "d": link("b"), "e": directory(0o700)}
    again = dict(reversed(files.items()))
    assert pack(files) == pack(again)
    assert fingerprint(files) == fingerprint(again)
    assert fingerprint(files) != fingerprint({**files, "b": regular(b"2", executable=True)})


def test_the_archive_is_what_cpio_reads():
    archive = pack({"a/c": regular(b"text", executable=True), "d": link("a/c"), "e": directory(0o700)})
    done = subprocess.run(["cpio", "-itv", "--numeric-uid-gid"], input=archive, capture_output=True, check=True)
    rows = [line.split() for line in done.stdout.decode().splitlines()]
    assert [(row[0], row[2], row[8]) for row in rows] == [
        ("drwxr-xr-x", "0", "a"),
        ("-rwxr-xr-x", "0", "a/c"),
        ("lrwxrwxrwx", "0", "d"),
        ("drwx------", "0", "e"),
    ]


def library(**sources: str) -> dict[str, File]:
    wanted = {name.split(".")[0] for name in python.AT_RUN_TIME}
    texts = {**dict.fromkeys(wanted, ""), **sources}
    return {f"usr/lib/python3.11/{name}.py": regular(text.encode()) for name, text in texts.items()}


def names(tree: dict[str, File]) -> set[str]:
    return {path.removeprefix("usr/lib/python3.11/").removesuffix(".pyc") for path, file in tree.items() if file.data}


def test_python_carries_what_the_agent_imports_and_what_that_imports_and_no_more():
    files = library(json="import codecs\ndef late():\n    import decoder", decoder="", email="import json", pdb="")
    tree = python.library(files, "3.11", {"__main__.py": "import json"})
    assert {"json", "decoder", "codecs", "strata_agent/__main__"} <= names(tree)
    assert not {"email", "pdb"} & names(tree)


def test_a_debugger_named_in_a_function_is_left_out_but_one_that_loading_needs_is_not():
    files = library(json="def late():\n    import pdb", pdb="", ssl="import pickle", pickle="")
    tree = python.library(files, "3.11", {"__main__.py": "import json, ssl"})
    assert "pdb" not in names(tree)
    assert "pickle" in names(tree)
    assert "pdb" in names(python.library(files, "3.11", {"__main__.py": "def f():\n    import pdb"}))


def test_what_only_type_checkers_see_is_not_carried():
    text = "if TYPE_CHECKING:\n    import heavy\nif __name__ == '__main__':\n    import also"
    tree = python.library(library(heavy="", also=""), "3.11", {"__main__.py": text})
    assert not {"heavy", "also"} & names(tree)


def test_bytecode_needs_no_source_beside_it_and_is_never_checked_against_one():
    tree = python.library(library(), "3.11", {"__main__.py": "print(1)"})
    code = tree["usr/lib/python3.11/strata_agent/__main__.pyc"].data
    assert struct.unpack("<I", code[4:8]) == (1,)
    assert not any(path.endswith(".py") for path in tree)


def test_an_agent_that_does_not_compile_fails_the_build():
    with pytest.raises(SyntaxError):
        python.library(library(), "3.11", {"__main__.py": "def"})


def test_an_unknown_architecture_names_those_that_there_are():
    with pytest.raises(BadRequest, match="aarch64, x86_64"):
        recipe("sparc")


def test_a_package_name_that_is_an_option_never_reaches_apt(tmp_path: Path):
    with pytest.raises(NotFound, match="no package name"):
        Packages(tmp_path, "amd64").find(["--allow-unauthenticated"])


def test_apt_keeps_its_index_in_our_cache_one_for_each_kind_of_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    asked: list[list[str]] = []
    monkeypatch.setattr(packages, "_run", lambda command, **_: asked.append(command) or "amd64\n")
    with pytest.raises(NotFound, match="knows no package busybox"):
        Packages(tmp_path, "amd64").find(["busybox"])
    index = [[word for word in command if "pkgcache" in word] for command in asked if command[0] == "apt-cache"]
    kept = tmp_path / "apt-amd64"
    assert index == [[f"-oDir::Cache::pkgcache={kept / name}"] for name in ("machine.index", "own.index")]


def shell(function: str, *arguments: str, **environment: str) -> str:
    script = f'. "$SCRIPTS/minos.sh"; {function} "$@"'
    done = subprocess.run(
        ["busybox", "sh", "-euc", script, "sh", *arguments],
        env={"SCRIPTS": str(SCRIPTS), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert not done.stderr
    return done.stdout


BOOT = {
    "node": "n0001",
    "ca": "-----BEGIN CERTIFICATE-----\nMIIB [x] {y}\n",
    "net": {
        "interfaces": [
            {"mac": "52:54:00:00:00:01", "address": "10.77.0.11/24", "gateway": "10.77.0.1", "dns": []},
            {"mac": "52:54:00:00:00:02", "address": "fd77::b/64", "gateway": "", "dns": ["fd77::1", "10.77.0.1"]},
        ]
    },
    "later": {"address": "1.2.3.4/8"},
}


@pytest.mark.parametrize("indent", [None, 2])
def test_the_shell_reads_addresses_from_the_boot_data_however_it_is_laid_out(tmp_path: Path, indent: int | None):
    path = tmp_path / "boot.json"
    path.write_text(json.dumps(BOOT, indent=indent, separators=(",", ":") if indent is None else None))
    assert shell("interfaces", str(path)).splitlines() == [
        "52:54:00:00:00:01 10.77.0.11/24 10.77.0.1 -",
        "52:54:00:00:00:02 fd77::b/64 - fd77::1,10.77.0.1",
    ]
    assert shell("node_name", str(path)).strip() == "n0001"


def test_boot_data_of_discovery_has_no_name_and_no_addresses(tmp_path: Path):
    path = tmp_path / "boot.json"
    path.write_text('{"discovery":true,"controllers":["https://10.77.0.1:8443"]}')
    assert shell("interfaces", str(path)) == ""
    assert shell("node_name", str(path)) == ""


def test_a_name_that_is_no_name_is_not_taken(tmp_path: Path):
    path = tmp_path / "boot.json"
    path.write_text('{"node":"a; reboot"}')
    assert shell("node_name", str(path)) == ""


def test_scripts_are_what_busybox_can_read():
    for path in sorted(SCRIPTS.iterdir()):
        if path.name != "inittab":
            subprocess.run(["busybox", "sh", "-n", path], check=True)
    assert "getty" not in (SCRIPTS / "inittab").read_text()
