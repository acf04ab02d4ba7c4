"""Slurm's configuration as text, from what a cluster is: ``files(cluster)`` gives every file by its name. Pure.

Nodes come in classes: those that are alike are one ``NodeName`` line, ten thousand or four. The same cluster always
makes the same text, so that a file that differs has changed. Knows nothing of inventories, and writes no file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from strata.core.errors import BadRequest
from strata.core.texts import NAME, PLAIN, In
from strata.schedulers.slurm.hostlists import hostlist, in_order, natural

SLURM_CONF, TOPOLOGY_CONF, GRES_CONF, CGROUP_CONF = "slurm.conf", "topology.conf", "gres.conf", "cgroup.conf"
SLURMDBD_CONF = "slurmdbd.conf"
"""Made where Strata is told of an accounting; a site's own is left alone."""
FILES = (SLURM_CONF, TOPOLOGY_CONF, GRES_CONF, CGROUP_CONF, SLURMDBD_CONF)
"""What is made, in the order in which it is shown."""

HEADER = "# Made by Strata from the inventory: what is written here by hand is lost. See 'strata slurm --help'.\n"

DEFAULTS: Mapping[str, str] = {
    "AuthType": "auth/munge",
    "SlurmUser": "slurm",
    "StateSaveLocation": "/var/lib/slurm/slurmctld",
    "SlurmdSpoolDir": "/var/lib/slurm/slurmd",
    "SlurmctldLogFile": "/var/log/slurm/slurmctld.log",
    "SlurmdLogFile": "/var/log/slurm/slurmd.log",
    "SelectType": "select/cons_tres",
    "SelectTypeParameters": "CR_Core_Memory",
    "ProctrackType": "proctrack/cgroup",
    "TaskPlugin": "task/affinity,task/cgroup",
    # A node that comes back from a boot is of use again, whatever it was down for; a drain stays.
    "ReturnToService": "2",
    # What nodes fetch from slurmctld: nobody has to put files on them.
    "SlurmctldParameters": "enable_configless",
}
"""What is said where the site says nothing; paths are those of Debian's packages."""

CGROUP: Mapping[str, str] = {"ConstrainCores": "yes", "ConstrainDevices": "yes", "ConstrainRAMSpace": "yes"}

_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}\Z")
_VALUE = re.compile(r"[^\x00-\x1f\x7f\"#\\]{0,4096}\Z")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}\Z")
_OURS = frozenset(("nodename", "partitionname", "switchname", "clustername", "slurmctldhost"))


SettingText = Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,63}$(?!\n)", max_length=64)]
SettingValue = Annotated[str, Meta(pattern=PLAIN, max_length=4096)]
NameText = Annotated[str, Meta(pattern=NAME, max_length=63)]
HostText = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.()\[\]:-]{0,254}$(?!\n)", max_length=255)]
PathText = Annotated[str, Meta(pattern=r"^/[A-Za-z0-9_./-]{0,254}$(?!\n)")]


class Gpus(msgspec.Struct, frozen=True, kw_only=True):
    """Accelerators of one type in a node."""

    count: int
    type: str = ""
    """``a100``, say. Empty: just GPUs."""
    files: str = ""
    """Their devices (``/dev/nvidia[0-3]``). Empty: they are counted, and kept from nobody."""


class Hardware(msgspec.Struct, frozen=True, kw_only=True):
    """What a node has that Slurm gives to jobs."""

    sockets: int = 1
    cores: int = 1
    """Of each socket."""
    threads: int = 1
    """Of each core."""
    memory: int = 1
    """MiB. A node that has less when it reports for duty is drained by Slurm, so it is rather too low."""
    gpus: tuple[Gpus, ...] = ()


class Nodes(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that are alike: one line."""

    names: tuple[str, ...]
    hardware: Hardware
    settings: Mapping[str, str] = {}
    """What else the line says (``Weight``, ``Feature``); it rules over what the hardware would say."""
    addresses: tuple[str, ...] = ()
    """Where slurmctld reaches each, in the order of the names. Empty: by name, which has to be known to it: one that is
    not holds its start up for ten seconds."""


class Partition(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that jobs are submitted to."""

    name: str
    names: tuple[str, ...]
    settings: Mapping[str, str] = {}


class Switch(msgspec.Struct, frozen=True, kw_only=True):
    """One switch of the tree: what is on it."""

    name: str
    names: tuple[str, ...] = ()
    """Nodes."""
    switches: tuple[str, ...] = ()
    """Switches below it."""


class Saving(msgspec.Struct, frozen=True, kw_only=True):
    """Slurm's power saving, by Strata's programs."""

    after: int
    """Seconds that a node is idle before it is switched off."""
    off: int = 120
    """Seconds that switching off may take."""
    on: int = 900
    """Seconds from being switched on until slurmd has reported for duty."""
    never: tuple[str, ...] = ()
    """Nodes that stay on."""


class AccountingSpec(In, frozen=True, kw_only=True):
    """Have slurmdbd keep what became of jobs, in a MariaDB."""

    host: HostText
    """Where slurmdbd runs."""
    address: Annotated[str, Meta(pattern=r"^([A-Za-z0-9][A-Za-z0-9_.:-]{0,254})?$(?!\n)", max_length=255)] = ""
    """Where it is reached. Empty: by the name of its host."""
    storage: HostText = "localhost"
    """Host of the database."""
    user: NameText = "slurm"
    database: NameText = "slurm_acct_db"
    secret: PathText = "/run/strata/secrets/slurmdbd"
    """A file where slurmdbd runs that says ``StoragePass=...``: what is made here holds no secret. The default is where
    the secret ``slurmdbd`` of a node is."""
    settings: Annotated[Mapping[SettingText, SettingValue], Meta(max_length=500)] = {}
    """More of slurmdbd.conf; one that is empty is not written."""


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """All that the files are made from."""

    name: str
    controllers: tuple[str, ...]
    """Hosts that slurmctld runs on, the first in charge: ``HOST`` or ``HOST(ADDRESS)``."""
    nodes: tuple[Nodes, ...] = ()
    partitions: tuple[Partition, ...] = ()
    switches: tuple[Switch, ...] = ()
    """None: the network is flat."""
    saving: Saving | None = None
    accounting: AccountingSpec | None = None
    programs: str = "/usr/bin"
    """The folder that Strata's programs are in, where slurmctld runs."""
    settings: Mapping[str, str] = {}
    """Of slurm.conf, by the site: they rule over ``DEFAULTS``; one that is empty is not written."""
    cgroup: Mapping[str, str] = {}
    """The same of cgroup.conf, over ``CGROUP``."""


def files(cluster: Cluster) -> dict[str, str]:
    """Every file by its name. Raises ``BadRequest`` for what Slurm could not read, or would read otherwise."""
    made = {
        SLURM_CONF: _slurm(cluster),
        TOPOLOGY_CONF: HEADER + "".join(_switch(one) for one in cluster.switches),
        GRES_CONF: HEADER + "".join(_gres(cluster)),
        CGROUP_CONF: HEADER + _settings({**CGROUP, **cluster.cgroup}, "cgroup"),
    }
    return made if cluster.accounting is None else {**made, SLURMDBD_CONF: _slurmdbd(cluster, cluster.accounting)}


def _slurm(cluster: Cluster) -> str:
    if not cluster.controllers:
        raise BadRequest("the host that slurmctld runs on is not named", where="controllers")
    _check_name(cluster.name, "name")
    lines = [HEADER, f"ClusterName={cluster.name}\n"]
    lines += [f"SlurmctldHost={_plain(host, 'controllers')}\n" for host in cluster.controllers]
    lines.append(_settings(_chosen(cluster), "settings"))
    lines += [_node(one) for one in cluster.nodes]
    lines += [_partition(one) for one in cluster.partitions]
    return "".join(lines)


def _chosen(cluster: Cluster) -> dict[str, str]:
    """What slurm.conf says beside nodes and partitions. The keys are the site's, in whatever case it wrote them."""
    chosen: dict[str, str] = dict(DEFAULTS)
    if any(one.hardware.gpus for one in cluster.nodes):
        chosen["GresTypes"] = "gpu"
    if cluster.switches:
        chosen["TopologyPlugin"] = "topology/tree"
    if cluster.accounting:
        chosen |= _accounted(cluster.accounting)
    if cluster.saving:
        chosen |= _saving(cluster.saving, cluster.programs)
    by_lower = {key.lower(): key for key in chosen}
    for key, value in cluster.settings.items():
        if key.lower() in _OURS:
            raise BadRequest(
                f"{key} cannot be set here: Strata sets it", where="settings", hint="it has a field of its own"
            )
        if key.lower() == "slurmctldparameters":
            value = ",".join(dict.fromkeys((*chosen["SlurmctldParameters"].split(","), *value.split(","))))
        chosen[by_lower.setdefault(key.lower(), key)] = value
    socket = re.search(r"\bsocket=([^,]+)", chosen.get(by_lower.get("authinfo", ""), ""))
    if cluster.accounting and socket and "accountingstoragepass" not in by_lower:
        chosen["AccountingStoragePass"] = socket[
            1
        ]  # what everybody takes for slurmdbd, who has AuthInfo for the others
    return {key: value for key, value in chosen.items() if value}


def _saving(saving: Saving, programs: str) -> dict[str, str]:
    return {
        "SuspendTime": str(saving.after),
        "SuspendTimeout": str(saving.off),
        "ResumeTimeout": str(saving.on),
        # How many at once is Strata's to say: it knows what feeds them.
        "SuspendRate": "0",
        "ResumeRate": "0",
        "SuspendProgram": f"{programs}/strata-slurm-suspend",
        "ResumeProgram": f"{programs}/strata-slurm-resume",
        "RebootProgram": f"{programs}/strata-slurm-reboot",
        "SuspendExcNodes": hostlist(saving.never),
        # A node that is switched off can be had again, whatever state it was in before.
        "SlurmctldParameters": f"{DEFAULTS['SlurmctldParameters']},idle_on_node_suspend,reboot_from_controller",
    }


def _accounted(accounting: AccountingSpec) -> dict[str, str]:
    return {
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": accounting.address or accounting.host,
        "JobAcctGatherType": "jobacct_gather/linux",
        # What a job of ours is known by, also after slurmctld has forgotten it.
        "AccountingStoreFlags": "job_comment",
    }


def _slurmdbd(cluster: Cluster, accounting: AccountingSpec) -> str:
    """Of slurm.conf it takes over who it is and how everybody proves who they are."""
    shared = {key: value for key, value in _chosen(cluster).items() if key in ("AuthType", "AuthInfo", "SlurmUser")}
    told = {
        **shared,
        "DbdHost": _plain(accounting.host, "accounting"),
        "DbdAddr": accounting.address,
        "LogFile": "/var/log/slurm/slurmdbd.log",
        "StorageType": "accounting_storage/mysql",
        "StorageHost": _plain(accounting.storage, "accounting"),
        "StorageUser": _plain(accounting.user, "accounting"),
        "StorageLoc": _plain(accounting.database, "accounting"),
        **accounting.settings,
    }
    if wrong := [key for key in told if key.lower() in ("storagepass", "include")]:
        raise BadRequest(
            f"{wrong[0]} must not be set here", where="accounting", hint="put it into the file of the secret"
        )
    return f"{HEADER}{_settings(told, 'accounting')}Include {_plain(accounting.secret, 'accounting')}\n"


def _node(nodes: Nodes) -> str:
    has = nodes.hardware
    told = {
        "Sockets": str(has.sockets),
        "CoresPerSocket": str(has.cores),
        "ThreadsPerCore": str(has.threads),
        "RealMemory": str(has.memory),
        "Gres": ",".join(f"gpu:{one.type}:{one.count}" if one.type else f"gpu:{one.count}" for one in has.gpus),
    }
    wanted = {key.lower() for key in nodes.settings}
    if wanted & {"cpus", "procs", "boards", "sockets"}:
        told = {key: value for key, value in told.items() if key in ("RealMemory", "Gres")}
    told = {key: value for key, value in told.items() if value and key.lower() not in wanted}
    names, where = hostlist(nodes.names), ""
    if nodes.addresses:
        pairs = sorted(zip(nodes.names, nodes.addresses, strict=True), key=lambda pair: natural(pair[0]))
        names, where = (in_order(column) for column in zip(*pairs, strict=True))
        where = f" NodeAddr={where}"
    return f"NodeName={names}{where}{_options({**told, **nodes.settings}, 'nodes')}\n"


def _partition(partition: Partition) -> str:
    _check_name(partition.name, "partitions")
    if not partition.names:
        return f"# PartitionName={partition.name}: it has no nodes\n"
    options = _options(partition.settings, "partitions")
    return f"PartitionName={partition.name} Nodes={hostlist(partition.names)}{options}\n"


def _switch(switch: Switch) -> str:
    _check_name(switch.name, "switches")
    on = f" Nodes={hostlist(switch.names)}" if switch.names else f" Switches={hostlist(switch.switches)}"
    return f"SwitchName={switch.name}{on}\n"


def _gres(cluster: Cluster) -> Iterable[str]:
    alike: dict[Gpus, list[str]] = {}
    for nodes in cluster.nodes:
        for gpus in nodes.hardware.gpus:
            alike.setdefault(gpus, []).extend(nodes.names)
    for gpus, names in alike.items():
        kind = f" Type={_plain(gpus.type, 'gpus')}" if gpus.type else ""
        which = f" File={_plain(gpus.files, 'gpus')}" if gpus.files else f" Count={gpus.count}"
        yield f"NodeName={hostlist(names)} Name=gpu{kind}{which}\n"


def _settings(settings: Mapping[str, str], where: str) -> str:
    return "".join(f"{_key(key, where)}={_value(value, where)}\n" for key, value in settings.items() if value)


def _options(settings: Mapping[str, str], where: str) -> str:
    for key in settings:
        if key.lower() in _OURS | {"nodes"}:
            raise BadRequest(f"{key} cannot be set here: Strata sets it", where=where)
    return "".join(f" {_key(key, where)}={_quoted(value, where)}" for key, value in settings.items() if value)


def _key(key: str, where: str) -> str:
    if key.lower() == "include":
        raise BadRequest("other files cannot be included", where=where, hint="say what stands in them here")
    if not _KEY.match(key):
        raise BadRequest(f"not a setting of Slurm: {key[:40]!r}", where=where)
    return key


def _value(value: str, where: str) -> str:
    if not _VALUE.match(value):
        raise BadRequest(
            f"Slurm could not read it: {value[:60]!r}", where=where, hint="no quotes, '#', '\\', line ends"
        )
    return value


def _quoted(value: str, where: str) -> str:
    return f'"{_value(value, where)}"' if " " in value else _value(value, where)


def _plain(value: str, where: str) -> str:
    if not value or " " in value:
        raise BadRequest(f"must be one word, not {value[:60]!r}", where=where)
    return _value(value, where)


def _check_name(name: str, where: str) -> None:
    if not _NAME.match(name):
        raise BadRequest(f"not a name: {name[:60]!r}", where=where, hint="letters, digits, '-', '_', '.'")
