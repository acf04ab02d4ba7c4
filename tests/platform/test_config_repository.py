"""A site repository: layers merge in order, every value has a place, and what is wrong is said with line and column."""

from __future__ import annotations

from pathlib import Path

import pytest

from strata.cli import main
from strata.core.errors import BadRequest
from strata.platform.config.documents import KINDS, schema
from strata.platform.config.explain import explain
from strata.platform.config.records import Configuration, NodeEntry, Origin
from strata.platform.config.repository import Repository
from strata.platform.config.starter import Machine
from strata.platform.config.starter import files as starter


def repository(files: dict[str, str], system: str = "") -> Repository:
    return Repository({path: text.encode() for path, text in files.items()}, system)


def read(files: dict[str, str], system: str = "") -> Configuration:
    return repository(files, system).configuration()


def node(found: Configuration, name: str = "n1") -> NodeEntry:
    return next(entry for entry in found.nodes if entry.name == name)


def wrong(files: dict[str, str], system: str = "") -> str:
    with pytest.raises(BadRequest) as caught:
        read(files, system)
    return str(caught.value)


LAYERED = {
    "vendor/all.yaml": "kind: defaults\narchitecture: aarch64\nrole: login\nlabels: {cooling: air, maker: acme}\n",
    "site/all.yaml": "kind: defaults\nlabels: {cooling: water}\n---\nkind: group\nname: gpu\nmembers: n2\n"
    "nodes: {role: gpu, labels: {cooling: oil}}\n",
    "systems/prod/nodes.yaml": "kind: nodes\nnodes: n[1-3]\nlabels: {system: prod}\n---\n"
    "kind: node\nname: n3\nrole: service\n",
    "systems/test/nodes.yaml": "kind: nodes\nnodes: t1\n---\nkind: group\nname: gpu\nabsent: true\n",
}


def test_the_later_layer_wins_and_the_narrower_over_all_layers() -> None:
    found = read(LAYERED, "prod")
    assert [entry.name for entry in found.nodes] == ["n1", "n2", "n3"]
    assert {node(found, name).architecture for name in ("n1", "n2", "n3")} == {"aarch64"}
    assert [node(found, name).role for name in ("n1", "n2", "n3")] == ["login", "gpu", "service"]
    assert node(found, "n1").labels == {"cooling": "water", "maker": "acme", "system": "prod"}
    assert node(found, "n2").labels == {"cooling": "oil", "maker": "acme", "system": "prod"}


def test_two_systems_share_a_base_and_differ_by_a_small_overlay() -> None:
    found = read(LAYERED, "test")
    assert [entry.name for entry in found.nodes] == ["t1"]
    assert node(found, "t1").labels == {"cooling": "water", "maker": "acme"}
    assert not found.groups, "the test system said that it has no such group"
    assert "--system prod or test" in wrong(LAYERED)
    assert "there is no systems/lab/" in wrong(LAYERED, "lab")


def test_every_value_says_where_it_comes_from_and_what_it_overrides() -> None:
    found = {origin.field: origin for origin in repository(LAYERED, "prod").explain("n2")}
    assert found["role"] == Origin(
        field="role",
        value="gpu",
        layer="site",
        place="site/all.yaml, line 7, column 15",
        overrides=("vendor/all.yaml, line 3, column 7",),
    )
    assert found["labels.cooling"].overrides == (
        "vendor/all.yaml, line 4, column 19",
        "site/all.yaml, line 2, column 19",
    )
    assert found["labels.system"].place == "systems/prod/nodes.yaml, line 3, column 18"
    assert (found["group"].value, found["group"].place) == ("gpu", "site/all.yaml, line 5, column 7")


DESIRES = {
    "vendor/d.yaml": 'kind: desire\nname: base\nselect: "*"\nset: {power: off, os: up}\n',
    "site/n.yaml": "kind: nodes\nnodes: n[1-2]\n---\nkind: group\nname: compute\nmembers: n[1-2]\n",
    "site/d.yaml": 'kind: desire\nname: compute\nselect: "@compute"\nset: {power: on}\n',
    "systems/main/d.yaml": "kind: desire\nname: broken\nselect: n2\nset: {power: off}\n---\n"
    "kind: desire\nname: base\nset: {os: down}\n",
}


def test_what_is_wanted_of_a_node_is_explained_by_the_same_order() -> None:
    found = repository(DESIRES)
    one = {origin.field: origin for origin in explain(found, "n1")}
    two = {origin.field: origin for origin in explain(found, "n2")}
    assert (one["desire power"].value, one["desire power"].layer) == ("on", "site")
    assert one["desire power"].overrides == ("vendor/d.yaml, line 4, column 14",)
    assert two["desire power"].value == "off"
    assert two["desire power"].place.startswith("systems/main/d.yaml, line 4, column 14")
    assert one["desire os"].value == "down", "the system's overlay changed a part of the vendor's desire"
    assert one["desire os"].place.startswith("systems/main/d.yaml, line 8, column 11")


def test_what_a_document_says_that_is_not_there_counts_for_nothing_in_later_layers() -> None:
    found = read(
        {
            "site/n.yaml": "kind: nodes\nnodes: n[1-2]\n",
            "site/d.yaml": "kind: desire\nname: d\nabsent: true\nselect: '*'\npriority: 7\nset: {image: v9}\n---\n"
            "kind: group\nname: g\nabsent: true\nmembers: n2\ndescription: old\n",
            "systems/main/d.yaml": "kind: desire\nname: d\nselect: n1\nset: {power: on}\n---\n"
            "kind: group\nname: g\nmembers: n1\n",
        }
    )
    [desire], [group] = found.desires, found.groups
    assert (desire.select, desire.set, desire.priority != 7) == ("n1", {"power": ("on",)}, True)
    assert (group.members, group.description) == ("n1", "")


def test_a_priority_that_is_given_is_the_one_that_counts() -> None:
    text = 'kind: desire\nname: a\nselect: "*"\nset: {power: on}\npriority: 7\n'
    assert [desire.priority for desire in read({"a.yaml": text}).desires] == [7]


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("kind: nodes\nnodes: [{name: n1, nid: many}]\n", "site/a.yaml, line 2, column 25", "'many'"),
        ("kind: nodes\nnodes:\n  - {name: n1, colour: red}\n", "site/a.yaml, line 3, column 16", "colour"),
        ("kind: nodes\nnodes: n[1-\n", "site/a.yaml, line 2, column 8", "n[1-"),
        ("kind: node\nname: n1\nlocation: q7\n", "site/a.yaml", "q7"),
        ("name: n1\n", "site/a.yaml, line 1, column 1", "kind is missing"),
        ("kind: nod\nname: n1\n", "site/a.yaml, line 1, column 7", "it can be defaults, nodes, node"),
        ("- n1\n", "site/a.yaml, line 1, column 1", "must be a mapping"),
        ("kind: desire\nname: d\nset: {power: on}\n", "site/a.yaml, line 2, column 7", "select"),
        ("kind: desire\nname: d\nselect: 'n[1'\nset: {power: on}\n", "site/a.yaml, line 2, column 7", "brackets"),
        ("kind: group\nname: a\nmembers: '@b'\n", "group a", "b"),
        ("kind: group\nname: a\nmembers: '@a'\n", "group a", "names itself: a → a"),
        (
            "kind: node\nname: n1\n---\nkind: node\nname: n1\n",
            "site/a.yaml, line 4, column 1",
            "already in site/a.yaml",
        ),
        (
            "kind: group\nname: a\n---\nkind: group\nname: a\n",
            "site/a.yaml, line 5, column 7",
            "already in site/a.yaml",
        ),
        ("kind: nodes\nnodes: [{name: n1, nid: 1}, {name: n2, nid: 1}]\n", "site/a.yaml, line 2", "NID 1 is also"),
        ("kind: node\nname: &a n1\nrole: *a\n", "site/a.yaml, line 3, column 7", "alias"),
        ("kind: node\nkind: node\n", "site/a.yaml, line 2, column 1", "occurs twice"),
        ("[" * 100_000, "site/a.yaml, line 1, column 51", "nested more than 50 deep"),
        ("kind: [\n", "site/a.yaml, line 2", "not YAML"),
    ],
)
def test_what_is_wrong_is_said_with_file_line_and_column(text: str, place: str, words: str) -> None:
    said = wrong({"site/a.yaml": text})
    assert place in said and words in said, said


def test_two_groups_that_disagree_about_a_node_are_told_to_leave_it_to_the_node() -> None:
    group = "kind: group\nname: {name}\nmembers: n1\nnodes: {{role: {name}}}\n"
    nodes = "kind: nodes\nnodes: n1\n"
    files = {"site/n.yaml": nodes, "site/a.yaml": group.format(name="a"), "site/b.yaml": group.format(name="b")}
    said = wrong(files)
    assert "site/b.yaml, line 4, column 15" in said and "site/a.yaml, line 4, column 15" in said
    files["site/n.yaml"] = nodes + "role: c\n"
    assert "another role" in wrong(files), "what the node says does not hide that the groups disagree"


def test_a_file_that_no_layer_would_read_is_an_error_and_not_silence() -> None:
    assert "sties/a.yaml: is in no layer" in wrong({"sties/a.yaml": "kind: node\nname: n1\n"})
    assert "holds no *.yaml" in wrong({})


def test_a_file_that_is_not_text_is_named() -> None:
    with pytest.raises(BadRequest, match=r"site/a\.yaml: is not text"):
        Repository({"site/a.yaml": b"\xff\xfe\x00"})


def test_modes_of_files_are_octal_as_everywhere_else() -> None:
    text = (
        "kind: personality\nname: p\nmembers:\n"
        "  - {name: system, release: 'a:1', files: [{path: /etc/x, mode: 0600}]}\n"
    )
    (personality,) = read({"a.yaml": text}).personalities
    assert personality.members[0].files[0].mode == 0o600
    assert "a.yaml, line 4, column 65" in wrong({"a.yaml": text.replace("0600", "600")})


def test_the_starter_repository_describes_whatever_machine_it_is_begun_with() -> None:
    port = {"mac": "52:54:00:00:00:01", "address": "10.77.0.11", "name": "boot"}
    bmc = "http://127.0.0.1:4290/bmc/n0001"
    nodes = [{"name": "n0001", "nid": 1, "bmc": bmc, "interfaces": [port]}, {"name": "n0002", "nid": 2}]
    machine = Machine(nodes=nodes, group="compute", desire="up", wanted={"power": "on", "os": "up"}, vendor="qemu")
    found = read({path: text for path, text in starter("virtual", machine).items() if path.endswith(".yaml")})
    one, two = found.nodes
    assert (one.bmc, one.nid, one.labels, two.nid) == (bmc, 1, {"vendor": "qemu"}, 2)
    assert [(port.mac, port.address, port.name) for port in one.interfaces] == [tuple(port.values())]
    assert [(group.name, group.members) for group in found.groups] == [("compute", "n[0001-0002]")]
    [desire] = found.desires
    assert (desire.name, desire.select, desire.set) == ("up", "@compute", {"power": ("on",), "os": ("up",)})


def test_the_starter_repository_is_sound_and_its_schema_knows_every_kind() -> None:
    found = read({path: text for path, text in starter("main").items() if path.endswith(".yaml")})
    assert (len(found.nodes), found.system) == (4, "main")
    made = schema()
    kinds = {part["properties"]["kind"]["enum"][0] for part in made["$defs"].values() if "kind" in part["required"]}
    assert kinds == set(KINDS)


def test_a_check_renders_templates_for_all_nodes_and_says_what_is_there_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "all.yaml").write_text(
        "kind: nodes\nnodes: n[1-2]\n---\nkind: group\nname: g\nmembers: n1\n---\n"
        "kind: overlay\nname: o\nselect: n2\nfiles: [{path: /etc/motd, source: motd.j2}]\n"
    )
    (tmp_path / "files" / "motd.j2").write_text("{{ node.nam }}\n")
    assert main.run(["config", "check", str(tmp_path)]) == 1
    assert "files/motd.j2, line 1: a node has no 'nam'" in capsys.readouterr().err
    (tmp_path / "files" / "motd.j2").write_text("{{ node.name }}\n")
    assert main.run(["config", "check", str(tmp_path)]) == 0
    assert "2 nodes, 1 group, 0 desires, 0 personalities, 1 overlay" in capsys.readouterr().out


def test_a_desire_that_names_nobody_is_told_what_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match=r"desire d does not say whom it is about: select \('\*' is every node\)"):
        Repository({"all.yaml": b"kind: desire\nname: d\nset: {power: on}\n"}).configuration()
