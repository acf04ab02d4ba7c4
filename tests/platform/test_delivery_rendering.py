"""Overlays of a repository: what they come to for a node, where each entry comes from; and hostile templates."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np
import pytest

from strata.core.errors import BadRequest
from strata.platform.config import explain as explained
from strata.platform.config.repository import Repository
from strata.platform.delivery import compose
from strata.platform.delivery.records import revision_of
from strata.platform.delivery.rendering import MOST_RANGE, Answer, Question, Task, Template, answer

NODES = "kind: nodes\nnodes: n[1-4]\n---\nkind: group\nname: compute\nmembers: n[1-2]\n"
NODE = {
    "name": "n1", "location": "", "nid": 1, "role": "compute", "architecture": "x86_64", "labels": {"rack": "r1"},
    "groups": ["compute"], "interfaces": [],
}  # fmt: skip


def repository(files: Mapping[str, str], system: str = "") -> Repository:
    return Repository(
        {"site/nodes.yaml": NODES.encode(), **{path: text.encode() for path, text in files.items()}}, system
    )


def overlay(name: str, entries: str, select: str = "") -> str:
    chosen = f'select: "{select}"\n' if select else ""
    return f"kind: overlay\nname: {name}\n{chosen}{entries}\n"


def rendered(text: str, *nodes: dict[str, object]) -> Answer:
    """As the worker renders it, here: its limits on memory and processor time are another test's."""
    given = nodes or (NODE,)
    return answer(
        Question(
            templates=(Template(place="files/a.j2", text=text),),
            vars=({"ports": ["80", "443"]},),
            nodes=given,
            tasks=(Task(template=0, vars=0, nodes=tuple(range(len(given)))),),
        )
    )


async def content(found: Repository, node: str, path: str) -> str:
    _, delivered = await explained.rendered(found, node)
    texts = {entry.path: text for entry, text in zip(delivered.merged.files, delivered.texts, strict=True)}
    return texts[path]


# what it comes to


@pytest.mark.slow
async def test_the_narrower_rules_then_the_later_layer_and_explain_says_where_each_entry_comes_from() -> None:
    found = repository(
        {
            "vendor/a.yaml": overlay("a", "files: [{path: /etc/a, content: vendor}]"),
            "site/a.yaml": overlay("a", "files: [{path: /etc/a, content: site}, {path: /etc/b, source: b.j2}]"),
            "site/files/b.j2": "b of {{ node.name }}",
            "systems/main/files/b.j2": "system's b of {{ node.name }}",
            "site/c.yaml": overlay("c", "files: [{path: /etc/a, content: group}]", "@compute"),
            "site/n.yaml": overlay("n", "files: [{path: /etc/a, content: node}, {path: /etc/b, absent: true}]", "n2"),
        }
    )
    assert [await content(found, node, "/etc/a") for node in ("n1", "n2", "n3")] == ["group", "node", "site"]
    assert await content(found, "n1", "/etc/b") == "system's b of n1"
    with pytest.raises(KeyError):
        await content(found, "n2", "/etc/b")
    origins = {origin.field: origin for origin in explained.explain(found, "n2")}
    assert origins["file /etc/a"].place.startswith("site/n.yaml, line 4")
    assert [place.split(",")[0] for place in origins["file /etc/a"].overrides] == [
        "vendor/a.yaml", "site/a.yaml", "site/c.yaml",
    ]  # fmt: skip
    assert "file /etc/b" not in origins


async def test_two_that_are_equally_narrow_and_differ_are_an_error() -> None:
    found = repository(
        {
            "site/a.yaml": overlay("a", "files: [{path: /etc/a, content: one}]"),
            "site/b.yaml": overlay("b", "files: [{path: /etc/a, content: two}]"),
        }
    )
    with pytest.raises(
        BadRequest, match=r"says something else about files /etc/a than site/a\.yaml, line 3"
    ) as refused:
        await explained.rendered(found, "n1")
    assert refused.value.where.startswith("site/b.yaml, line 3")


def test_a_desire_for_the_current_configuration_is_for_the_revision_of_the_same_commit() -> None:
    desire = 'kind: desire\nname: all\nselect: "*"\nset: {config: current}\n'
    one = repository(
        {"d.yaml": desire, "a.yaml": overlay("a", "files: [{path: /etc/a, content: one}]")}
    ).configuration()
    moved = repository(
        {"d.yaml": desire, "b.yaml": overlay("a", "files: [{path: /etc/a, content: one}]")}
    ).configuration()
    other = repository(
        {"d.yaml": desire, "a.yaml": overlay("a", "files: [{path: /etc/a, content: two}]")}
    ).configuration()
    assert one.desires[0].set == {"config": (revision_of(one.overlays),)}
    assert revision_of(moved.overlays) == revision_of(one.overlays), "where it is written is not what it says"
    assert revision_of(other.overlays) != revision_of(one.overlays)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ("files: [{path: /etc/a}]", "a file must have one of source, content and template"),
        ("files: [{path: /run/a, content: x}]", "nothing is delivered below /run"),
        ("files: [{path: /etc/../a, content: x}]", "path"),
        ("files: [{path: etc/a, content: x}]", "path"),
        ("files: [{path: /etc/a, source: ../../nodes.yaml}]", "source"),
        ("files: [{path: /etc/a, source: missing.j2}]", "there is no files/missing.j2"),
        ("files: [{path: /etc/a, content: x, mode: 644}]", "mode"),
        ("users: [{name: ann}]", "a user must have a name and a uid"),
        ("users: [{name: 'ann:0', uid: 1}]", "name"),
        ("users: [{name: ann, uid: 1, comment: 'a:b'}]", "comment"),
        ("users: [{name: ann, uid: 1, keys: [ssh-ed25519 AAA]}]", "a user with keys must have a home"),
        ("services: [{name: a.service}]", "a service must say enabled or running"),
        ("services: [{name: --force, running: true}]", "name"),
        ("sysctls: [{name: ../../etc/passwd, value: 1}]", "name"),
        ("packages: [{name: --allow-unauthenticated}]", "name"),
        ("packages: [{name: htop, version: 1 -o APT::Get::AllowUnauthenticated=1}]", "version"),
        ("mounts: [{target: /mnt, source: a}]", "a mount must have a source and a type"),
    ],
)
def test_an_entry_that_cannot_be_is_refused_with_its_place(entries: str, message: str) -> None:
    with pytest.raises(BadRequest) as refused:
        repository({"site/a.yaml": overlay("a", entries)}).configuration()
    assert message in str(refused.value)
    assert refused.value.where.startswith("site/a.yaml, line 3, column ")


def test_what_is_delivered_is_no_configuration_even_if_it_is_yaml() -> None:
    found = repository(
        {"site/a.yaml": overlay("a", "files: [{path: /etc/a, source: a.yaml}]"), "files/a.yaml": "kind: x\n"}
    )
    assert found.configuration().overlays[0].files[0].content == "kind: x\n"


# rendered per class


def test_a_template_is_rendered_once_for_every_set_of_values_that_it_uses() -> None:
    nodes = [{**NODE, "name": f"n{number}", "role": ("compute", "login")[number % 2]} for number in range(6)]
    assert rendered("same\n", *nodes).tasks == ((0,),)
    assert rendered("{{ vars.ports | join(',') }}\n", *nodes).texts == ("80,443\n",)
    assert rendered("{{ node.role }}", *nodes).texts == ("compute", "login")
    assert rendered("{{ node['role'] }}", *nodes).tasks == ((0, 1, 0, 1, 0, 1),)
    assert len(rendered("{{ node.name }}", *nodes).texts) == 6
    assert len(rendered("{% set me = node %}{{ me.name }}", *nodes).texts) == 6, "what is handed on may be used"


@pytest.mark.slow
async def test_nodes_of_one_class_share_what_they_get() -> None:
    found = repository(
        {
            "site/a.yaml": overlay("a", "files: [{path: /etc/a, template: '{{ node.role }}'}]"),
            "site/b.yaml": overlay("b", "files: [{path: /etc/b, content: x}]", "@compute"),
        }
    )
    configuration = found.configuration()
    registry = explained._described(configuration)
    made = await compose.composed(registry, configuration.overlays, np.flatnonzero(registry.alive), "test")
    assert made["n1"] is made["n2"] and made["n3"] is made["n4"]
    assert made["n1"].digest != made["n3"].digest
    assert msgspec.json.decode(made["n3"].wire("r"))["digest"] == made["n3"].digest


# hostile templates

HOSTILE = {
    "\n{{ ''.__class__.__mro__ }}": "access to attribute '__class__' of 'str' object is unsafe",
    "\n{{ ''['__cla' ~ 'ss__'] }}": "access to attribute '__class__' of 'str' object is unsafe",
    "\n{{ () | attr('__class__') }}": "access to attribute '__class__' of 'tuple' object is unsafe",
    "\n{{ vars.__init__.__globals__ }}": "access to attribute '__init__' of 'dict' object is unsafe",
    "\n{{ self.__init__.__globals__ }}": "access to attribute '__init__'",
    "\n{{ node.__class__ }}": "a node has no '__class__'",
    "\n{{ node[vars.ports[0]] }}": "has no attribute '80'",
    "\n{{ range.__globals__ }}": "access to attribute '__globals__' of 'function' object is unsafe",
    "\n{% for i in range(1000000000) %}x{% endfor %}": f"a range of 1000000000; at most {MOST_RANGE}",
    "\n{% for i in range(10000) %}{{ 'x' * 500 }}{% endfor %}": "comes to more than 512 KiB",
    "\n{{ 'x' * 1000000000 }}": "* makes more than 512 KiB",
    "\n{{ 9 ** 9 ** 9 }}": "there is no ** in templates",
    "\n{{ '%999999999d' % 1 }}": "texts are not formatted by %",
    "\n{{ 'x'.ljust(1000000000) }}": "access to attribute 'ljust'",
    "\n{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}": "calls itself without end",
    "\n{{ missing }}": "'missing' is undefined",
    "\n{{ node.labels.missing }}": "has no attribute 'missing'",
    "\n{{ vars.ports.append('1') }}": "access to attribute 'append' of 'list' object is unsafe",
    "\n{% include '/etc/passwd' %}": "there is no include, import or extends",
    "\n{% import 'os' as os %}": "there is no include, import or extends",
    "\n{{ 1 / 0 }}": "division by zero",
    "\n{{ [1] | random }}": "No filter named 'random'",
    "\n{{ vars.ports.count }}": "cannot be written into a file",
    "\n{% if %}": "Expected an expression",
    "\n" + "{% if 1 %}" * 200 + "{% endif %}" * 200: "nested",
}


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_template_is_an_error_with_its_line(text: str) -> None:
    with pytest.raises(BadRequest) as refused:
        rendered(text)
    assert HOSTILE[text] in refused.value.detail
    assert refused.value.where == "files/a.j2, line 2"


@pytest.mark.slow
async def test_a_template_that_never_ends_is_ended_and_said_with_its_line() -> None:
    loops = "{% for i in range(10000) %}{% for j in range(10000) %}{% for k in range(10000) %}"
    text = f"\n\n{loops}{'{% endfor %}' * 3}"
    found = repository({"site/a.yaml": overlay("a", "files: [{path: /etc/a, source: a.j2}]"), "files/a.j2": text})
    with pytest.raises(BadRequest, match="takes more than 2 s to render") as refused:
        await explained.rendered(found, "n1")
    assert refused.value.where == "files/a.j2, line 3"


@pytest.mark.slow
async def test_a_template_that_takes_all_memory_is_ended_and_said_with_its_line() -> None:
    text = "{% set a = 'x' * 500000 %}\n" + "{% set a = a ~ a ~ a ~ a %}\n" * 12 + "{{ a | length }}"
    found = repository({"site/a.yaml": overlay("a", "files: [{path: /etc/a, source: a.j2}]"), "files/a.j2": text})
    with pytest.raises(BadRequest, match="takes more memory than there is") as refused:
        await explained.rendered(found, "n1")
    assert refused.value.where.startswith("files/a.j2, line ")
