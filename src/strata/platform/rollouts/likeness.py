"""What a simulation has to know of a cluster: read from the running fleet, by classes of nodes that are alike."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from strata.core.intset import Runs, pack
from strata.core.model import UNKNOWN, Budget
from strata.core.node import Node
from strata.core.nodeset import fold
from strata.core.texts import Out
from strata.fleet.columns import Indices
from strata.fleet.fleet import Fleet
from strata.platform.rollouts.learnt import Lessons
from strata.platform.rollouts.records import RolloutSpec
from strata.virtual.fleet.model import MUTATIONS, VARIABLES


class TwinClass(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that are alike: their places in ``Twin.nodes``, what is known and what is wanted of them."""

    members: Runs
    facts: Mapping[str, str]
    goals: Mapping[str, tuple[str, ...]]


class Twin(Out, frozen=True, kw_only=True):
    """A cluster, as far as a simulation needs it."""

    spec: RolloutSpec
    """The rollout, with its nodes named one by one, and without what cannot be simulated."""
    nodes: tuple[Node, ...]
    groups: Mapping[str, Runs]
    """Group → places in ``nodes``."""
    classes: tuple[TwinClass, ...]
    budgets: tuple[Budget, ...]
    seconds: Mapping[str, float]
    """What mutations took here on the mean, as far as this controller has seen them."""
    failure_rate: float
    """The part of the tries that failed here, of the mutations that make such a change."""
    left_out: tuple[str, ...]
    """Variables and checks that are not simulated."""


def likeness(fleet: Fleet, nodes: Indices, chosen: Indices, spec: RolloutSpec, lessons: Lessons) -> Twin:
    """The cluster as it is now. ``chosen``: the nodes that the rollout changes, of ``nodes``."""
    registry, model = fleet.registry, fleet.controller.model
    place = np.full(registry.size, -1, dtype=np.int64)
    place[nodes] = np.arange(len(nodes))
    used = {budget.weight for budget in model.budgets.values()}
    used |= {budget.per.partition(":")[2] for budget in model.budgets.values() if budget.per.startswith("label:")}
    groups = {}
    for name in registry.groups:
        members = place[np.flatnonzero(registry.groups.mask(name))]
        groups[name] = pack(members[members >= 0])
    making = [m.name for m in model.mutations.values() if m.variable in spec.set and m.name in lessons.all]
    tries = [lessons.all[name] for name in making]
    left_out = [*(name for name in model.variables if name not in VARIABLES), *spec.checks]
    return Twin(
        spec=msgspec.structs.replace(
            spec,
            select=fold(fleet.view.names(chosen)),
            document=None,
            checks=(),
            set={name: values for name, values in spec.set.items() if name in VARIABLES},
            require={name: value for name, value in spec.require.items() if name in VARIABLES},
        ),
        nodes=tuple(_bare(registry.node_at(index), used) for index in nodes.tolist()),
        groups=groups,
        classes=tuple(_classes(fleet, nodes)),
        budgets=tuple(
            budget
            for budget in model.budgets.values()
            if all(name in MUTATIONS for name in budget.mutations) and budget.driver in ("", "bmc", "node", "workload")
        ),
        seconds={name: one.seconds for name, one in lessons.all.items() if name in MUTATIONS and one.succeeded},
        failure_rate=sum(one.failed for one in tries) / max(1, sum(one.failed + one.succeeded for one in tries)),
        left_out=tuple(left_out),
    )


def _bare(node: Node, labels: set[str]) -> Node:
    """What of a node budgets go by."""
    kept = {key: value for key, value in node.labels.items() if key in labels}
    return Node(name=node.name, uid=0, location=node.location, role=node.role, labels=kept)


def _classes(fleet: Fleet, nodes: Indices) -> list[TwinClass]:
    columns = fleet.controller.engine.table.columns
    variables = [name for name in VARIABLES if name in columns]
    key = np.zeros(len(nodes), dtype=np.int64)
    for name in variables:
        for codes in (columns[name].fact[nodes], fleet.registry.desires.goals(name).codes[nodes]):
            # Folded at every turn, so that the key never outgrows its integer.
            _, key = np.unique(key * (int(codes.max(initial=0)) + 1) + codes, return_inverse=True)
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    found = []
    for number, at in enumerate(first.tolist()):
        node = int(nodes[at])
        facts = {name: columns[name].words[columns[name].fact[node]] for name in variables}
        wanted = {name: fleet.registry.desires.goals(name) for name in variables}
        goals = {name: goal.table[goal.codes[node]] for name, goal in wanted.items()}
        found.append(
            TwinClass(
                members=pack(np.flatnonzero(inverse == number)),
                facts={name: value for name, value in facts.items() if value != UNKNOWN},
                goals={name: values for name, values in goals.items() if values},
            )
        )
    return found
