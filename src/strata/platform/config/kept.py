"""The kinds of documents that rooms of their own keep, one line each: as they stand in files, and what they come to.

A document says what its room keeps, field by field; what it leaves out is left to an earlier layer, or to the room.
What is written otherwise in files than it is kept (times with units, a text in a file of its own) is put right
here; whether a fleet can have it, its room says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import msgspec
from msgspec import UNSET, UnsetType

from strata.core.errors import BadRequest
from strata.core.input.yamltree import Document
from strata.core.texts import In
from strata.core.units import Seconds
from strata.fleet.budgets.records import BudgetEntry
from strata.platform.cloudinit.records import CloudInit
from strata.platform.cloudinit.records import check as check_cloud_init
from strata.platform.config.records import KeptKind, Named
from strata.platform.flows.files import WrittenFlow, WrittenSystem, plain_stages, plain_steps
from strata.platform.flows.records import FlowEntry, SystemEntry
from strata.platform.health.files import WrittenCheck, plain_check
from strata.platform.health.records import CheckEntry, HealthPolicy, HealthPolicyEntry
from strata.platform.playbooks.records import PlaybookEntry
from strata.platform.playbooks.records import check as check_playbook
from strata.platform.rollouts.records import RolloutPolicy
from strata.platform.secrets.records import SecretEntry
from strata.platform.secrets.records import check as check_secret
from strata.platform.sources.records import SourceEntry
from strata.platform.sources.records import check as check_source
from strata.platform.written import plain
from strata.power.policies.policy import parse as parse_policy
from strata.power.policies.records import PolicyEntry
from strata.provisioning.boot.profiles import check_parameters
from strata.provisioning.boot.records import ProfileEntry
from strata.provisioning.bootnets.here import require_sound
from strata.provisioning.bootnets.records import NetworkEntry
from strata.provisioning.minos.artefacts import LATEST

_SHOWN = 200


class Left(NamedTuple):
    """What the layers leave of a document."""

    name: str
    fields: dict[str, Any]
    document: Document
    """The last that says something, for places."""
    priority: Callable[[str], int]
    """What a selection counts for, where the document itself does not say."""
    text: Callable[[str], tuple[str, str] | None]
    """A file of ``files/``: its path and what is in it."""
    folder: Callable[[str], Mapping[str, str]]
    """The files of a folder of ``files/``: path in it → what is in it."""

    def need(self, field: str, words: str) -> None:
        """Raise ``BadRequest`` unless a field is said."""
        if field not in self.fields:
            raise BadRequest(words, where=self.document.place("name"))


class Kept(NamedTuple):
    """One kind."""

    document: type[msgspec.Struct]
    entry: Callable[[Left], Named]
    """What a document comes to; ``BadRequest`` where it is not sound."""
    words: Callable[[Any], str] = lambda one: str(getattr(one, "select", getattr(one, "description", "")))[:_SHOWN]
    """What a plan says of one."""
    listed: str = ""
    """Where the API lists them, for ``config import``."""
    written: Callable[[Mapping[str, Any]], Mapping[str, Any] | None] = dict
    """What the API says of one, as it stands in a file; None: it is not to be written."""
    apart: str = ""
    """The field that a file of its own holds, which ``source`` names."""


def document(kind: KeptKind, of: type[msgspec.Struct], /, **own: Any) -> type[msgspec.Struct]:
    """A kind of document with the fields of ``of``, each of which may be left out. ``own``: fields of other types, or
    (None) which it does not have."""
    fields = {one.name: one.type for one in msgspec.structs.fields(of) if one.name != "name"} | own
    names = [one for one in msgspec.structs.fields(of) if one.name == "name"]
    given: list[Any] = [("kind", Literal[kind]), *(("name", one.type) for one in names if one.required)]
    given += [("name", one.type, one.default) for one in names if not one.required]
    given += [(name, type_ | UnsetType, UNSET) for name, type_ in fields.items() if type_ is not None]
    given.append(("absent", bool, False))
    title = "".join(word.title() for word in kind.split("-"))
    about = {"__doc__": of.__doc__, "__module__": __name__}
    return msgspec.defstruct(f"{title}Document", given, bases=(In,), frozen=True, kw_only=True, namespace=about)


def _cloud_init(left: Left) -> CloudInit:
    select = left.fields.pop("select", "*")
    if "priority" not in left.fields:
        left.fields["priority"] = left.priority(select)
    found = CloudInit(name=left.name, select=select, **left.fields)
    check_cloud_init(found, f"cloud-init {left.name}")
    return found


def _secret(left: Left) -> SecretEntry:
    left.need("select", "a secret must say which nodes it is for: select")
    found = SecretEntry(name=left.name, **left.fields)
    check_secret(found, f"secret {left.name}")
    return found


def _flow(left: Left) -> FlowEntry:
    left.need("steps", "a flow must have steps")
    steps = plain_steps(left.document, left.fields["steps"])
    return FlowEntry(name=left.name, steps=steps, description=left.fields.get("description", ""))


def _system(left: Left) -> SystemEntry:
    left.need("stages", "a system must have stages")
    return SystemEntry(stages=plain_stages(left.document, left.fields["stages"]))


def _check(left: Left) -> CheckEntry:
    left.need("check", f"must say what is checked: check, one of {', '.join(_CHECKS)}")
    spec = plain_check(left.document, {"kind": left.fields.pop("check"), **left.fields})
    return CheckEntry.of(spec, name=left.name)


def _profile(left: Left) -> ProfileEntry:
    found = ProfileEntry(name=left.name, **left.fields)
    check_parameters(found.parameters)
    return found


def _power_policy(left: Left) -> PolicyEntry:
    source, text, place = left.fields.pop("source", ""), left.fields.pop("text", ""), left.document.place("name")
    if bool(source) == bool(text):
        raise BadRequest("a power policy is either in a file (source) or in its text", where=place)
    if source:
        found = left.text(source)
        if found is None:
            raise BadRequest(f"there is no files/{source[:_SHOWN]}", where=left.document.place("source"))
        place, text = found
    said = parse_policy(text, source=place)
    if said.name and said.name != left.name:
        raise BadRequest(f"the document calls itself {said.name!r}", where=place, hint=f"it is {left.name} here")
    return PolicyEntry(name=left.name, text=text, **left.fields)


def _image(left: Left) -> SourceEntry:
    left.need("image", "must name the tag to publish it under: image")
    recipe = left.fields.pop("recipe", "")
    files = left.folder(recipe.rstrip("/")) if recipe else {}
    if recipe and not files:
        raise BadRequest(f"there is no folder files/{recipe[:_SHOWN]}", where=left.document.place("recipe"))
    found = SourceEntry(name=left.name, files=files, **left.fields)
    check_source(found, f"image {left.name}")
    return found


def _playbook(left: Left) -> PlaybookEntry:
    for field in ("select", "path", "commit"):
        left.need(field, f"a playbook must have a {field}")
    found = plain(left.document, {**left.fields, "name": left.name}, PlaybookEntry)
    check_playbook(found, f"playbook {left.name}")
    return found


def _network(left: Left) -> NetworkEntry:
    left.need("network", "must say which network it is, such as 10.77.0.0/24: network")
    found = NetworkEntry(name=left.name, **left.fields)
    if not found.via:  # those that others have to do with are looked at where all are known
        require_sound({found.name: found})
    return found


def _written_network(item: Mapping[str, Any]) -> Mapping[str, Any] | None:
    found: Mapping[str, Any] | None = item["entry"]  # none where the controller's own file says it
    return found


def _policy_words(one: PolicyEntry) -> str:
    return ("runs" if one.enabled else "does not run") + (
        f"; not simulated: {one.without_simulation}" if one.without_simulation else ""
    )


def _numbers(one: BudgetEntry) -> str:
    said = {name: getattr(one, name) for name in ("limit", "percent", "rate")}
    return ", ".join(f"{name} {value:g}" for name, value in said.items() if value is not None)


def _written_check(item: Mapping[str, Any]) -> Mapping[str, Any]:
    said = dict(item["spec"])
    return {"name": item["name"], "check": said.pop("kind"), **said}


def _written_budget(item: Mapping[str, Any]) -> Mapping[str, Any] | None:
    numbers = {name: item[name] for name in ("limit", "percent", "rate") if item[name] != item["declared"].get(name)}
    return {"name": item["name"], **numbers} if numbers else None


def _written_policy(item: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**_of("name", "enabled", "text")(item), "without_simulation": item["unsimulated"]}


def _written_profile(item: Mapping[str, Any]) -> Mapping[str, Any] | None:
    own = _of("name", "minos", "parameters", "method", "description")(
        {"minos": LATEST, "parameters": "", "method": "ipxe", "description": "", **item}
    )
    return own if item["revision"] else None  # nobody said anything of the built-in one


def _written_health(item: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return None if msgspec.convert(item, HealthPolicy) == HealthPolicy() else item


def _of(*names: str) -> Callable[[Mapping[str, Any]], Mapping[str, Any]]:
    return lambda item: {name: item[name] for name in names}


_CHECKS: Sequence[str] = get_args({one.name: one.type for one in msgspec.structs.fields(CheckEntry)}["kind"])

KEPT: Mapping[KeptKind, Kept] = {
    "cloud-init": Kept(
        document("cloud-init", CloudInit),
        _cloud_init,
        listed="/v1/cloud-init",
        written=_of("name", "select", "priority", "user_data", "vendor_data", "ssh_keys"),
    ),
    "secret": Kept(document("secret", SecretEntry), _secret),
    "flow": Kept(document("flow", WrittenFlow), _flow, listed="/v1/flows", written=_of("name", "description", "steps")),
    "system": Kept(
        document("system", SystemEntry, **{one.name: one.type for one in msgspec.structs.fields(WrittenSystem)}),
        _system,
        words=lambda one: ", ".join(stage.name for stage in one.stages)[:_SHOWN],
        listed="/v1/system",
        written=_of("stages"),
    ),
    "health-check": Kept(
        document("health-check", WrittenCheck, kind=None, check=Literal[tuple(_CHECKS)]),
        _check,
        listed="/v1/health-checks",
        written=_written_check,
    ),
    "health-policy": Kept(
        document("health-policy", HealthPolicyEntry),
        lambda left: HealthPolicyEntry(**left.fields),
        words=lambda one: ", ".join(one.repairs),
        listed="/v1/health-policy",
        written=_written_health,
    ),
    "boot-profile": Kept(
        document("boot-profile", ProfileEntry),
        _profile,
        listed="/v1/boot/profiles",
        written=_written_profile,
    ),
    "power-policy": Kept(
        document("power-policy", PolicyEntry, source=str),
        _power_policy,
        words=_policy_words,
        listed="/v1/power/policies",
        written=_written_policy,
        apart="text",
    ),
    "budget": Kept(
        document("budget", BudgetEntry),
        lambda left: BudgetEntry(name=left.name, **left.fields),
        words=_numbers,
        listed="/v1/budgets",
        written=_written_budget,
    ),
    "rollout-policy": Kept(
        document("rollout-policy", RolloutPolicy, soak=Seconds, drain_after=Seconds),
        lambda left: plain(left.document, left.fields, RolloutPolicy),
        words=lambda one: f"{one.commits} commits: waves {', '.join(one.waves)}",
        listed="/v1/rollout-policy",
    ),
    "playbook": Kept(
        document("playbook", PlaybookEntry, timeout=Seconds),
        _playbook,
        listed="/v1/playbooks",
        written=_of("name", "select", "path", "commit", "url", "vars", "batch", "timeout"),
    ),
    "image": Kept(
        document("image", SourceEntry, files=None, recipe=str),
        _image,
        words=lambda one: f"{one.image} from {one.registry or 'a recipe'}"[:_SHOWN],
    ),
    "network": Kept(
        document("network", NetworkEntry),
        _network,
        words=lambda one: f"{one.network}{f' via {one.via}' if one.via else ''}",
        listed="/v1/networks",
        written=_written_network,
    ),
}
"""Every kind that a room of its own keeps."""
