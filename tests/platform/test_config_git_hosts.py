"""Repositories on other hosts, by real ssh and real https: only those are spoken to that are known."""

from __future__ import annotations

from pathlib import Path

import pytest

from strata.core.errors import Unavailable
from strata.platform.config.git import Mirror, Reach, read_commit
from support.git_host import git_host
from support.site_repository import NODES, SiteRepository, small_site
from support.ssh_server import sshd

pytestmark = [pytest.mark.slow, pytest.mark.server]


@pytest.fixture
def site(tmp_path: Path) -> SiteRepository:
    return small_site(tmp_path / "hosted" / "site")


async def test_a_repository_is_fetched_by_ssh_from_a_host_whose_key_is_known(
    tmp_path: Path, site: SiteRepository
) -> None:
    keys = tmp_path / "keys"
    keys.mkdir()
    with sshd(keys) as config:
        url = f"ssh://cluster-login{site.directory}"
        mirror = Mirror(tmp_path / "mirror", reach=Reach(ssh_config=config))
        commit = await mirror.fetch(url, "main")
        assert commit == site.git("rev-parse", "HEAD")
        assert read_commit(mirror.directory, commit)["site/nodes.yaml"] == NODES.encode()
        known = config.parent / "known"
        right = known.read_text(encoding="utf-8")
        known.write_text("", encoding="utf-8")
        with pytest.raises(Unavailable, match=r"key is not known here.*known_hosts"):
            await mirror.fetch(url, "main")
        other = (config.parent / "user.pub").read_text(encoding="utf-8")
        known.write_text(f"cluster-login {other}", encoding="utf-8")
        with pytest.raises(Unavailable, match="another key than the one that is known"):
            await mirror.fetch(url, "main")
        known.write_text(right, encoding="utf-8")
        text = config.read_text(encoding="utf-8")
        config.write_text(text.replace("/user\n", "/host\nIdentitiesOnly yes\nIdentityAgent none\n"), encoding="utf-8")
        with pytest.raises(Unavailable, match=r"lets nobody in.*deploy key"):
            await mirror.fetch(url, "main")


async def test_a_repository_is_fetched_by_https_from_a_host_whose_certificate_is_good(
    tmp_path: Path, site: SiteRepository
) -> None:
    with git_host(site.directory.parent, tmp_path / "ca") as host:
        url = host.url("https", "site/.git")
        mirror = Mirror(tmp_path / "mirror", reach=Reach(ca=host.ca))
        assert await mirror.fetch(url, "main") == site.git("rev-parse", "HEAD")
        with pytest.raises(Unavailable, match=r"certificate is not good.*platform\.git_ca"):
            await Mirror(tmp_path / "other").fetch(url, "main")


@pytest.mark.parametrize("to", ["http", "https", "file://", "ext::sh -c touch%20/tmp/x "])
async def test_a_host_that_sends_elsewhere_is_not_followed(tmp_path: Path, site: SiteRepository, to: str) -> None:
    with (
        git_host(site.directory.parent, tmp_path / "ca") as host,
        git_host(site.directory.parent, tmp_path / "ca" if to == "https" else None) as elsewhere,
    ):
        host.sends_to = elsewhere.url(to, "").rstrip("/") if to in ("http", "https") else f"{to}{site.directory.parent}"
        with pytest.raises(Unavailable, match="sends to another address"):
            await Mirror(tmp_path / "mirror", reach=Reach(ca=host.ca)).fetch(host.url("https", "site/.git"), "main")
        assert host.asked and elsewhere.asked == []
