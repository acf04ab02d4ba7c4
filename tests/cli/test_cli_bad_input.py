"""What people hand to commands by mistake: each is told in a line or two what, where, and what would do."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_support import Run

FILES = {
    "empty": b"",
    "rubbish": bytes(range(128, 256)) * 8,
    "unclosed.yaml": b"name: a\nmembers: [",
    "list.yaml": b"- 1\n- 2\n",
    "nameless.yaml": b"name: 5\nmembers: []\n",
    "date.yaml": b"name: a\nmembers: [{name: x, release: 2026-01-31}]\n",
    "nan.yaml": b"name: a\nmembers: [.nan]\n",
    "bytes.yaml": b"name: a\nmembers: !!binary aGVsbG8=\n",
    "loop.yaml": b"name: a\nmembers: [&x {name: *x}]\n",
    "tag.yaml": b"name: !!python/object:os.system x\n",
    "deep.yaml": b"{a: " * 3000,
    "deep.json": b"[" * 100_000,
    "long.json": b'{"name": "a", "members": [], "x": ' + b"9" * 5000 + b"}",
    "recipe-list.yaml": b"from: scratch\nfiles: 3\n",
    "recipe-key.yaml": b"from: scratch\nfile: []\n",
    "recipe-beside.yaml": b"from: scratch\nfiles: [{path: /x, source: nowhere}]\n",
    "policy.yaml": b"limit: 5kW\n",
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder").mkdir()
    (tmp_path / "layout").mkdir()
    (tmp_path / "layout/oci-layout").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("personality put absent", "absent: cannot be read: No such file or directory"),
        ("personality put folder", "'folder' is a directory"),
        ("personality put empty", "empty: a personality is a mapping with name and members"),
        ("personality put list.yaml", "list.yaml: a personality is a mapping with name and members"),
        ("personality put rubbish", "rubbish: cannot be read: it is not UTF-8 text"),
        ("personality put unclosed.yaml", "unclosed.yaml, line 2: not YAML: "),
        ("personality put nameless.yaml", "nameless.yaml: a personality has a name"),
        ("personality put date.yaml", "write dates, and what else YAML takes for something, in quotes"),
        ("personality put nan.yaml", "nan.yaml: holds something besides texts, numbers"),
        ("personality put bytes.yaml", "bytes.yaml: holds something besides texts, numbers"),
        ("personality put loop.yaml", "loop.yaml: holds something besides texts, numbers"),
        ("personality put tag.yaml", "tag.yaml, line 1: not YAML: could not determine a constructor"),
        ("personality put deep.yaml", "deep.yaml: is nested too deeply"),
        ("personality put deep.json", "deep.json: is nested too deeply"),
        ("personality put long.json", "long.json: is nested too deeply, or has a number that is too long"),
        ("personality show ''", "'': is not a name"),
        ("personality delete ../nodes", "'../nodes': is not a name"),
        ("image show ''", "'' is not NAME:TAG"),
        ("image diff a:1 ''", "Invalid value for AFTER: '' is not an image"),
        ("image import absent --name x", "absent: no such file (an image in a registry is written docker://HOST/NAME)"),
        ("image import folder --name x", "folder: is not an OCI layout: it has no 'oci-layout'"),
        ("image import layout --name x", "layout: is not an OCI layout: it has no 'index.json'"),
        ("image build folder --name x", "folder: holds none of recipe.yaml"),
        ("image build recipe-list.yaml --name x", "recipe: must be a list, not a whole number - at `$.files`"),
        ("image build recipe-key.yaml --name x", "recipe: unknown key 'file'; accepted are from, suite"),
        ("image build recipe-beside.yaml --name x", "files, nowhere: no such file beside the recipe"),
        ("image build deep.yaml --name x", "recipe: is nested too deeply"),
        ("image export a:1 folder", "folder: is a directory (name the file to write)"),
        ("image export a:1 nowhere/x.tar", "nowhere: no such directory"),
        ("image export a:1 /proc/x.tar", "/proc/.x.tar.part: No such file or directory"),
        ("minos show ''", "minOS '': there is no such build"),
        ("minos choose ../folder", "minOS '../folder': there is no such build"),
        ("minos build --arch vax", "no recipe for architecture 'vax' (there are aarch64, x86_64)"),
        ("minos build --hardware empty", "it names no device (cat /sys/bus/*/devices/*/modalias prints"),
        ("minos build --hardware rubbish", "Invalid value for --hardware: it is not UTF-8 text"),
        ("minos build --crash-hook empty", "Invalid value for --crash-hook: it is empty"),
        ("boot revoke ''", "'': is not a name"),
        ("boot profile show ''", "'': is not a name"),
        ("virtual create --memory 99999999999", "99999999999 is not in the range"),
        ("virtual list --dir folder", "folder: no virtual chassis here (strata virtual create)"),
        ("energy job ''", "'': is not a name"),
        ("power policy show ''", "'': is not a name"),
        ("power policy put rubbish", "rubbish: cannot be read: it is not UTF-8 text"),
        ("energy import deep.json", "accounting: not what sacct --json prints"),
        ("power queue import deep.json", "queue: not what squeue --json prints"),
        ("power queue import empty --good-for nan", "'nan' is not a number that can be used"),
        ("power simulate --policy policy.yaml --days nan", "'nan' is not a number that can be used"),
        ("power simulate --policy rubbish", "rubbish: cannot be read: it is not UTF-8 text"),
        ("auth cert create a --role admin --csr empty", "empty: the request is empty; it must be a PEM file"),
    ],
)
def test_a_mistake_is_told_in_a_line_or_two(run: Run, place: Path, command: str, said: str) -> None:
    done = run(*("" if word == "''" else word for word in command.split()))
    assert done.code in (1, 2), done.err
    assert said in done.err
    assert done.out == ""
    assert "internal error" not in done.err
    assert len(done.err.splitlines()) <= 2
    assert len(done.err) < 500


def test_a_build_that_cannot_be_read_does_not_become_the_latest(run: Run, short_dir: Path) -> None:
    build = short_dir / "minos/0123456789ab"
    build.mkdir(parents=True)
    (build / "manifest.json").write_text("{")
    done = run("minos", "choose", "0123456789ab")
    assert done.code == 1
    assert "its manifest cannot be read" in done.err
    assert not (short_dir / "minos/latest").is_symlink()
