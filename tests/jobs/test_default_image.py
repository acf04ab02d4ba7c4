"""The site's default image, as a command promotes it and as the programs that schedulers call go by it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from container_support import layout

from strata.core.errors import BadRequest
from strata.jobs.containers import policy
from strata.jobs.containers.cache import Cache
from strata.jobs.native import program
from strata.platform.config import explain as explained
from strata.platform.config.repository import Repository
from support.image_support import file, folder, layer, symlink
from support.native import USER, as_user

pytestmark = pytest.mark.slow


class Site:
    """Images that nobody has unpacked yet, a folder that nodes see, and a policy."""

    def __init__(self, place: Path) -> None:
        self.place, self.cache, self.policy = place, place / "images", place / "containers.conf"

    def layout(self, name: str) -> str:
        busybox = file("bin/busybox", Path("/bin/busybox").read_bytes(), mode=0o755)
        applets = [symlink(f"bin/{applet}", "busybox") for applet in ("cat", "ls", "sh")]
        mark = file("etc/mark", f"{name}\n".encode())
        layout(self.place / name, layer(folder("bin"), busybox, *applets, folder("etc"), mark))
        return f"oci:{self.place / name}"

    def promote(self, name: str, *options: str) -> subprocess.CompletedProcess[str]:
        words = ("container", "default", self.layout(name), "--name", name, "--cache", str(self.cache), *options)
        command = [sys.executable, "-m", "strata.cli", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)

    def job(self, asked: str = "", *command: str) -> str:
        """What a job of Grid Engine's prints, as a user's; or why it has none."""
        environment = {"PATH": "/bin", **({"STRATA_IMAGE": asked} if asked else {})}
        line = [program("strata-grid-engine"), "start", self.policy, *(command or ("cat", "/etc/mark"))]
        done = as_user(line, env=environment)
        return done.stdout + done.stderr


@pytest.fixture
def site(runner: Path, folder: Path) -> Site:
    return Site(folder)


def test_what_is_promoted_is_the_next_job_s_and_what_was_before_can_still_be_asked_for(site: Site) -> None:
    told = site.promote("one", "--policy", str(site.policy), "--bind", "/usr:/host:ro", "--json")
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout)["changed"] == [str(site.policy)]
    assert site.job() == "one\n"
    assert site.promote("two", "--policy", str(site.policy)).returncode == 0
    assert [site.job(asked) for asked in ("", "one", "two", "previous")] == ["two\n", "one\n", "two\n", "one\n"]
    assert "make" in site.job("", "ls", "/host/bin"), "what was said of binds stays said"
    assert "this site has every job run in an image" in site.job("none")
    assert not Cache(site.cache).gc(keep=0), "what the policy names is never too old"


def test_members_of_a_group_opt_out_and_others_do_not(site: Site) -> None:
    assert site.promote("one", "--policy", str(site.policy), "--opt-out", f"root,{USER}").returncode == 0
    assert f"opt-out = 0 {USER}\n" in site.policy.read_text()
    assert "No such file" in site.job("none")
    site.policy.write_text(site.policy.read_text().replace(f"opt-out = 0 {USER}", "opt-out = 0 1"))
    assert "opt-out is for groups that you are in none of" in site.job("none")
    line = [program("strata-grid-engine"), "submit", site.policy]
    spoken = "START\nENV ADD STRATA_IMAGE none\nBEGIN\nQUIT\n"
    accepted = as_user(line, input=spoken).stdout
    assert "RESULT STATE CORRECT" in accepted, "qmaster cannot know whose member somebody is"


async def test_a_policy_in_the_site_s_repository_reaches_nodes_as_a_file_of_theirs(site: Site) -> None:
    layer_of_site = site.place / "mysite/site"
    layer_of_site.mkdir(parents=True)
    (layer_of_site / "nodes.yaml").write_text("kind: nodes\nnodes: n[1-2]\n")
    assert site.promote("one", "--site", str(layer_of_site)).returncode == 0
    root = site.place / "mysite"
    files = {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    _, delivered = await explained.rendered(Repository(files, ""), "n1")
    [(entry, text)] = zip(delivered.merged.files, delivered.texts, strict=True)
    assert (entry.path, policy.parse(text, "").named.keys()) == (policy.PLACE, {"one"})
    again = site.promote("two", "--site", str(layer_of_site), "--dry-run")
    assert "image previous = " in again.stdout
    assert "two" not in (layer_of_site / "files/containers.conf").read_text()


def test_a_policy_is_read_as_it_was_written() -> None:
    whole = policy.Policy(
        images="/i", default="a/root", named={"a": "a/root"}, opt_out=(5, 7), home="user", binds=("/scratch:ro",)
    )
    assert policy.parse(whole.text(), "x") == whole
    with pytest.raises(BadRequest, match="line 2 is not a setting of an image policy"):
        policy.parse("images = /i\nbinds = /x\n", "x")
    with pytest.raises(BadRequest, match="there is no group 'nobodies'"):
        policy.group_numbers("nobodies")


def test_images_of_another_folder_are_not_mixed_in(site: Site) -> None:
    site.policy.write_text("images = /elsewhere\ndefault = a/root\n")
    os.chown(site.policy, 0, 0)
    refused = site.promote("one", "--policy", str(site.policy))
    assert refused.returncode != 0
    assert "its images are below /elsewhere" in refused.stderr
