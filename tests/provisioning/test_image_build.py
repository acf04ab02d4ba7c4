"""Building: recipes on nothing, on a parent and on Debian, and Containerfiles. All of it as root, in namespaces."""

from __future__ import annotations

import io
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from strata.core.errors import BadRequest
from strata.provisioning.images.build.recipe import parse_recipe
from support.image_support import Site, a_system, an_image, file, folder, layer

pytestmark = pytest.mark.slow


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    made = Site(tmp_path)
    await made.images.start()
    yield made
    await made.images.stop()
    await made.store.close()


async def test_a_recipe_from_nothing_puts_files_in(site: Site) -> None:
    recipe = """
from: scratch
files:
  - {path: /etc/motd, content: "hello\\n", mode: "0600", owner: "3:4"}
  - {path: /bin/tool, source: tools/tool, mode: "0755"}
argv: [/bin/tool]
env: {A: b}
"""
    release = await site.build("a:1", recipe, ("tools/tool", b"binary"))
    assert site.contents(release, "etc/motd") == b"hello\n"
    assert site.contents(release, "bin/tool") == b"binary"
    assert (release.config.argv, release.config.env) == (("/bin/tool",), ("A=b",))
    assert "-rw------- 3/4" in site.listed(release)


async def test_a_recipe_on_a_parent_makes_one_layer_of_what_is_new(site: Site) -> None:
    await site.take(an_image(a_system()), "base:1")
    recipe = """
from: base:1
files: [{path: /etc/new, content: n}]
run:
  - rm /etc/old
  - "mkdir -p /opt/made; echo $PATH > /opt/made/here; cat /etc/new >> /opt/made/here"
"""
    release = await site.build("child:1", recipe)
    made = site.images.catalogue.find("child:1")
    parent = site.images.catalogue.find("base:1")
    assert [one.digest for one in made.layers[:1]] == [one.digest for one in parent.layers]
    assert len(made.layers) == 2
    assert made.layers[1].size < 5000
    assert site.contents(release, "opt/made/here").endswith(b"/bin\nn")
    changes = {(change.path, change.change) for change in (await site.images.diff("base:1", "child:1")).files}
    assert changes >= {("etc/old", "removed"), ("etc/new", "added"), ("opt/made/here", "added")}
    assert not any(path.startswith(("proc/", "dev/", "sys/")) for path, _ in changes)
    assert release.config.argv == ("/bin/run",)  # the parent's


async def test_scripts_cannot_reach_the_machine(site: Site, tmp_path: Path) -> None:
    await site.take(an_image(a_system()), "base:1")
    (tmp_path / "secret").write_text("the machine's")
    recipe = f"""
from: base:1
run:
  - "busybox ls {tmp_path} && exit 3 || true"
  - "busybox mknod /sda b 8 0 && exit 4 || true"
  - "busybox mkdir /m; busybox mount -t tmpfs x /m && exit 5 || true"
  - "busybox chroot /proc/1/root busybox test -e {tmp_path}/secret && exit 6 || true"
"""
    await site.build("child:1", recipe)


async def test_links_in_a_parent_lead_nowhere_else(site: Site, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    trap = layer(folder("bin"), ("etc", {"type": tarfile.SYMTYPE, "linkname": str(outside)}))
    await site.take(an_image(trap), "trap:1")
    with pytest.raises(BadRequest, match="cannot be put in"):  # inside the image the link leads to nothing
        await site.build("child:1", "from: trap:1\nfiles: [{path: /etc/x, content: y}]\n")
    assert list(outside.iterdir()) == []


async def test_a_script_that_fails_is_said_and_leaves_nothing(site: Site) -> None:
    await site.take(an_image(a_system()), "base:1")
    scripts = '["mkdir /a", "echo one; echo about to fail; exit 7", "mkdir /b"]'
    with pytest.raises(BadRequest) as failed:
        await site.build("child:1", f"from: base:1\nrun: {scripts}\n")
    assert failed.value.where == "recipe, run"
    assert failed.value.detail == (
        "script 2 of 3 (echo one; echo about to fail; exit 7) failed with status 7: one | about to fail"
    )
    assert "about to fail" in site.log.read_text()
    assert "child" not in site.images.catalogue.names
    assert list((site.images.shelf.root / "work").iterdir()) == []


async def test_a_script_that_fails_is_told_of_shortly_and_without_its_secrets(site: Site) -> None:
    await site.take(an_image(a_system()), "base:1")
    script = f"echo before; echo password=hunter2 {'x' * 200}; for i in 1 2 3 4 5; do echo line $i; done; false"
    with pytest.raises(BadRequest) as failed:
        await site.build("child:1", f"from: base:1\nrun: [mkdir /a, '{script}']\n")
    told = failed.value.detail
    assert told.startswith("script 2 of 2 (echo before; echo [hidden] xxx")
    assert told.endswith("failed with status 1: line 3 | line 4 | line 5")
    assert "hunter2" not in told
    assert len(told) < 400
    with pytest.raises(BadRequest, match=r"\(exit 3\) failed with status 3: it said nothing"):
        await site.build("child:1", "from: base:1\nrun: [exit 3]\n")


async def test_a_file_that_cannot_be_put_in_is_named(site: Site) -> None:
    await site.take(an_image(a_system()), "base:1")
    with pytest.raises(BadRequest, match="cannot write /etc/old"):
        await site.build("child:1", "from: base:1\nfiles: [{path: /etc/old/new, content: x}]\n")


async def test_a_containerfile_that_fails_names_its_step(site: Site) -> None:
    await site.take(an_image(a_system()), "base:1")
    text = "FROM localhost/base:1\nRUN echo about to fail; exit 7\n"
    with pytest.raises(BadRequest, match=r"about to fail.*STEP.*RUN echo about to fail.*exit status 7"):
        await site.build("child:1", text, name="Containerfile")


async def test_a_containerfile_is_built_on_an_image_of_ours(site: Site) -> None:
    await site.take(an_image(a_system()), "base:1")
    text = 'FROM localhost/base:1\nCOPY hello /etc/hello\nRUN rm /etc/old\nENTRYPOINT ["/bin/sh"]\n'
    release = await site.build("c:1", text, ("hello", b"hi"), name="Containerfile")
    assert site.contents(release, "etc/hello") == b"hi"
    assert release.config.argv == ("/bin/sh",)
    changes = {(change.path, change.change) for change in (await site.images.diff("base:1", "c:1")).files}
    assert ("etc/old", "removed") in changes


async def test_what_comes_with_a_build_cannot_leave_its_place(site: Site, tmp_path: Path) -> None:
    for entry in (file("../evil", b"x"), ("l", {"type": tarfile.SYMTYPE, "linkname": "/etc"})):
        ident = await site.images.uploads.begin()
        await site.images.uploads.write(ident, 0, layer(file("recipe.yaml", b"from: scratch\n"), entry))
        with pytest.raises(BadRequest, match="plain files"):
            await site.images.build("alice", ident, "a:1", site.log)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("from: [", "not YAML"),
        ("from: debian\nwhat: x", "unknown key 'what'; accepted are from, suite"),
        ("from: Not/AName", "name:tag"),
        ("from: scratch\npackages: [a]", "packages need a system"),
        ("from: debian\npackages: ['a; rm -rf /']", "not the name of a Debian package"),
        ("from: debian\npackages: ['--option']", "not the name of a Debian package"),
        ("from: debian\nsuite: '$(x)'", "suite"),
        ("from: scratch\nfiles: [{path: etc/x, content: y}]", "absolute"),
        ("from: scratch\nfiles: [{path: /a/../../x, content: y}]", "absolute"),
        ("from: scratch\nfiles: [{path: /x}]", "either content or source"),
        ("from: scratch\nfiles: [{path: /x, source: ../../etc/shadow}]", "beside the recipe"),
        ("from: scratch\nfiles: [{path: /x, content: y, owner: root}]", "two numbers"),
        ("from: scratch\nfiles: [{path: /x, content: y, mode: '9'}]", "mode"),
    ],
)
def test_a_recipe_that_cannot_be_followed_says_where(text: str, says: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse_recipe(text)
    assert says in str(caught.value)


@pytest.mark.server
async def test_the_demonstration_recipe_is_built_from_debian_and_can_be_built_upon(site: Site) -> None:
    recipe = Path(__file__).parents[2] / "src/strata/cli/up/images/demo/recipe.yaml"
    release = await site.build("demo:v1", recipe.read_text())
    assert release.size < 80_000_000
    made = site.images.catalogue.find("demo:v1")
    assert made.packages > 50
    assert site.contents(release, "srv/www/index.html")
    assert "etc/resolv.conf" not in site.listed(release)
    assert "etc/hostname" not in site.listed(release)
    with tarfile.open(fileobj=io.BytesIO(b"".join([p async for p in await site.images.export("demo:v1")]))) as tar:
        assert "oci-layout" in tar.getnames()
    child = await site.build(
        "demo:v2", "from: demo:v1\npackages: [iputils-ping]\nrun: ['getcap /bin/ping | grep net_raw']\n"
    )
    differing = {(package.name, package.before) for package in (await site.images.diff("demo:v1", "demo:v2")).packages}
    assert ("iputils-ping", "") in differing
    assert "etc/resolv.conf" not in site.listed(child)
    assert "usr/sbin/policy-rc.d" not in site.listed(child)
