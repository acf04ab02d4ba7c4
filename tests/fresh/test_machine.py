"""What a fresh machine is told about where packages come from: all that this one was, and nothing of it by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from fresh.machine import FreshMachine, Here

SOURCES = """Types: deb
URIs: file:/srv/debian
Suites: bookworm
Signed-By: /usr/share/keyrings/site.gpg
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    texts = {
        "etc/apt/sources.list": "# nothing\n",
        "etc/apt/sources.list.d/site.sources": SOURCES,
        "etc/apt/sources.list.d/other.list": "deb [signed-by=/etc/apt/keyrings/other.asc] http://m bookworm main\n",
        "etc/apt/sources.list.d/old.list.disabled": "deb http://old old main\n",
        "etc/apt/keyrings/other.asc": "key",
        "etc/apt/auth.conf.d/site.conf": "machine mirror",
        "etc/apt/apt.conf.d/20hooks": 'DPkg::Post-Invoke { "/usr/bin/only-here"; };',
        "usr/share/keyrings/site.gpg": "key",
        "etc/ssl/certs/ca-certificates.crt": "all",
        "etc/hosts": "127.0.0.1 localhost\n",
        "etc/pip.conf": "[global]\ncert = /etc/ssl/certs/ca-certificates.crt\n",
        "home/me/.config/pip/pip.conf": "[global]\nextra-index-url = https://a/simple file:///srv/pypi/simple\n",
        "home/me/.npmrc": "cafile=/etc/ssl/certs/ca-certificates.crt\n",
        "srv/pypi/simple/index.html": "",
        "srv/pypi/files/a.whl": "",
        "srv/wheels/b.whl": "",
        "srv/debian/dists": "",
    }
    for name, text in texts.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def here(root: Path, **environment: str) -> Here:
    return Here(root, root / "home/me", environment)


def test_sources_that_say_something_are_taken_with_their_keys_and_passwords_and_without_hooks(root: Path) -> None:
    found = here(root)
    assert [path.name for path in found.sources()] == ["other.list", "site.sources"]
    copied = {str(name) for name in found.files().values()}
    assert {"usr/share/keyrings/site.gpg", "etc/apt/keyrings", "etc/apt/auth.conf.d", "etc/hosts"} <= copied
    assert {"etc/pip.conf", "root/.config/pip/pip.conf", "etc/ssl/certs/ca-certificates.crt"} <= copied
    assert "root/.npmrc" in copied
    assert not any("apt.conf" in name for name in copied)


def test_of_the_environment_only_what_leads_to_packages_is_handed_on(root: Path) -> None:
    told = {"PIP_CERT": "/etc/x", "HTTPS_PROXY": "http://p:1", "no_proxy": "a", "SSL_CERT_FILE": "/y"}
    told |= {"NODE_EXTRA_CA_CERTS": "/y", "npm_config_registry": "http://n:1"}
    found = here(root, **told, STRATA_STATE="/s", MAKEFLAGS="-j", PYTHONPATH="/z", VIRTUAL_ENV="/v")
    assert found.environment == told


def test_folders_that_packages_lie_in_are_shown_whole_and_those_of_the_system_are_not(root: Path) -> None:
    found = here(root, PIP_FIND_LINKS="/srv/wheels https://b/c /srv/gone", SSL_CERT_FILE="/etc/hosts")
    assert found.places() == [root / "srv/debian", root / "srv/pypi", root / "srv/wheels"]


def test_a_machine_whose_sources_lack_the_release_says_so(root: Path) -> None:
    for path in (root / "etc/apt/sources.list.d").iterdir():
        path.write_text("deb http://mirror trixie main\n")
    with pytest.raises(SystemExit, match="do not have bookworm"):
        FreshMachine(root / "fresh", here(root), {}).make()
    assert not (root / "fresh").exists()
