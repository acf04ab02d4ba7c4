"""YAML and CSV files: values stay text, errors name the place."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from strata.cli.files import read_bundle, read_nodes
from strata.core.errors import BadRequest

SITE = """\
kind: desire
name: compute-ready
select: "@compute"
set: {power: on, image: [1.10, v2], config: null, workload: yes}
priority: -5
---
kind: group
name: gpu
members: [n1, "n[2-3]"]
---
# nothing here
---
kind: nodes
nodes: n[01-03]
role: compute
labels: {rack: 007}
---
kind: node
name: login1
location: x1000c0s0b0n0
nid: 12
"""


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_plain_values_stay_the_text_that_was_typed(tmp_path: Path) -> None:
    bundle = read_bundle([write(tmp_path / "a.yaml", SITE)])
    assert bundle.desires == [
        {
            "name": "compute-ready",
            "select": "@compute",
            "set": {"power": ["on"], "image": ["1.10", "v2"], "config": ["null"], "workload": ["yes"]},
            "priority": -5,
        }
    ]
    assert bundle.groups == [{"name": "gpu", "members": "n1,n[2-3]"}]
    assert [node["name"] for node in bundle.nodes] == ["n01", "n02", "n03", "login1"]
    assert bundle.nodes[0] == {"name": "n01", "role": "compute", "labels": {"rack": "007"}}
    assert bundle.nodes[3] == {"name": "login1", "location": "x1000c0s0b0n0", "nid": 12}


def test_a_directory_is_read_in_order(tmp_path: Path) -> None:
    write(tmp_path / "b.yml", "kind: node\nname: second")
    write(tmp_path / "a.yaml", "kind: node\nname: first")
    write(tmp_path / "README.md", "not this")
    assert [node["name"] for node in read_bundle([tmp_path]).nodes] == ["first", "second"]


def test_a_directory_without_files_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match=r"no \*\.yaml"):
        read_bundle([tmp_path])


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("kind: desire\nname: a\nselect: '*'\n", "document 1 set", "power: on"),
        ("kind: desire\nname: a\nselect: '*'\nset: {a: {b: c}}\n", "set.a", "a value or a list"),
        ("kind: desire\nname: a\nselect: '*'\nset: {a: []}\n", "set.a", "a value or a list"),
        ("kind: desire\nname: a\nset: {a: b}\n", "document 1 select", "not nothing"),
        ("kind: desire\nname: a\nselect: '*'\nset: {a: b}\npriority: high\n", "priority", "whole number"),
        ("kind: node\nname: a\n---\nkind: plane\n", "document 2", "desire, group, node, nodes"),
        ("name: a\n", "document 1", "kind is missing"),
        ("- a\n", "document 1", "a list"),
        ("kind: node\nname: a\ncolour: red\n", "document 1", "unknown key 'colour'"),
        ("kind: desire\nname: a\nselekt: n1\ndesires: {}\n", "document 1", "'selekt'; accepted are kind, name, select"),
        ("kind: desire\nname: a\nselekt: n1\ndesires: {}\n", "document 1", "(did you mean select?)"),
        ("kind: node\nname: a\nname: b\n", "line 3, column 1", "'name' occurs twice"),
        ("kind: node\nname: " + "[" * 200_000, "line 2, column 56", "nested more than 50 deep"),
        ("kind: node\nname: &a n1\nrole: *a\n", "line 3, column 7", "an alias"),
        ("kind: node\nname: [a\n", "line", "not YAML"),
        ("kind: node\nname: a\nnid: x\n", "nid", "whole number"),
        ("kind: nodes\nnodes: n[1-99999999]\n", "nodeset", "at most"),
        ("kind: nodes\nnodes: [{role: x}]\n", "nodes[0] name", "a text"),
        ("kind: node\nname: a\n---\nkind: nodes\nnodes: a\n", "document 2", "already in"),
        ("kind: group\nname: g\nmembers: {a: b}\n", "members", "nodeset"),
    ],
)
def test_an_error_names_the_place_and_what_would_do(tmp_path: Path, text: str, where: str, what: str) -> None:
    with pytest.raises(BadRequest) as caught:
        read_bundle([write(tmp_path / "site.yaml", text)])
    assert where in caught.value.where
    assert what in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match=r"nope\.yaml: cannot be read: No such file"):
        read_bundle([tmp_path / "nope.yaml"])


def test_bytes_that_are_no_text_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadRequest, match="UTF-8"):
        read_bundle([tmp_path / "x.yaml"])


@given(st.text(max_size=200))
def test_no_text_makes_it_fall_over(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("any") / "x.yaml"
    path.write_text(text, encoding="utf-8", newline="")
    try:
        read_bundle([path])
    except BadRequest as error:
        assert str(path) in error.where


VALUE = st.text(st.characters(codec="ascii", categories=["L", "N", "P"]), min_size=1, max_size=20)


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from(["power", "image", "os"]), VALUE, min_size=1))
def test_a_desire_that_yaml_wrote_is_read_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, want: dict[str, str]
) -> None:
    document = {"kind": "desire", "name": "d", "select": "*", "set": want}
    path = tmp_path_factory.mktemp("any") / "x.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    assert read_bundle([path]).desires[0]["set"] == {name: [value] for name, value in want.items()}


def test_a_csv_of_nodes(tmp_path: Path) -> None:
    path = write(tmp_path / "n.csv", "name,nid,labels,bmc\nn1,1,rack=7;row=b,https://10.0.0.1\nn2,,,\n")
    assert read_nodes(path) == [
        {"name": "n1", "nid": 1, "labels": {"rack": "7", "row": "b"}, "bmc": "https://10.0.0.1"},
        {"name": "n2"},
    ]


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("name,colour\nn1,red\n", "line 2"),
        ("name\nn1,2\n", "line 2"),
        ("name,labels\nn1,rack\n", "line 2 labels"),
        ("name,nid\n,4\n", "line 2 name"),
    ],
)
def test_an_error_in_a_csv_names_the_line(tmp_path: Path, text: str, where: str) -> None:
    with pytest.raises(BadRequest) as caught:
        read_nodes(write(tmp_path / "n.csv", text))
    assert caught.value.where.endswith(where)


def test_a_yaml_file_of_nodes_may_be_a_plain_list(tmp_path: Path) -> None:
    path = write(tmp_path / "n.yaml", "- name: n1\n- {name: n2, role: login}\n")
    assert read_nodes(path) == [{"name": "n1"}, {"name": "n2", "role": "login"}]


def test_a_file_of_nodes_takes_nothing_else(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="it can be node, nodes"):
        read_nodes(write(tmp_path / "n.yaml", "kind: group\nname: g\n"))


def test_interfaces_are_read_from_yaml_and_from_csv(tmp_path: Path) -> None:
    told = [{"mac": "52:54:00:12:34:56", "address": "10.77.0.11"}, {"port": "sw/Eth1/5"}]
    document = write(
        tmp_path / "n.yaml",
        "kind: node\nname: n1\ninterfaces: [{mac: 52:54:00:12:34:56, address: 10.77.0.11}, {port: sw/Eth1/5}]\n",
    )
    table = write(
        tmp_path / "n.csv", 'name,interfaces\nn1,"mac=52:54:00:12:34:56,address=10.77.0.11;port=sw/Eth1/5"\nn2,\n'
    )
    assert read_nodes(document) == [{"name": "n1", "interfaces": told}]
    assert read_nodes(table) == [{"name": "n1", "interfaces": told}, {"name": "n2"}]


@pytest.mark.parametrize(
    ("told", "complaint"),
    [
        ("x", "interfaces: must be a list"),
        ("[x]", "interfaces[0]: must be a mapping of texts"),
        ("[{mak: 1}]", "interfaces[0]: unknown key 'mak'; accepted are mac, address, name, port (did you mean mac?)"),
    ],
)
def test_a_wrong_interface_is_named_with_its_place(tmp_path: Path, told: str, complaint: str) -> None:
    with pytest.raises(BadRequest) as caught:
        read_nodes(write(tmp_path / "n.yaml", f"kind: node\nname: n1\ninterfaces: {told}\n"))
    assert complaint in str(caught.value)
