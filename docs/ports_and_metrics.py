"""Pages on ports and metrics: numbers, labels and rights from the code that has them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from forms import MARK, code, table

SOURCES = Path(__file__).resolve().parents[1] / "src" / "strata"
KINDS = {"Counter": "counter", "Gauge": "gauge", "Histogram": "histogram"}

_METRICS = """# Metrics

What `/metrics` shows to Prometheus, read from the places in the code that make it. A histogram has `_bucket`, `_sum`
and `_count`. [Watch and measure](../how-to/watch-and-measure.md#metrics) says who may ask, and what is worth an alarm.
"""

_PORTS = """# Ports, and who may call them

Numbers are the defaults, as the code has them.

## Strata listens

{listens}
Nothing else is opened: a layer that does not run opens nothing, and the front door is on loopback until `listen.host`
says otherwise. Agents open no port on nodes; they call.

## Strata calls

{calls}
## Credentials

A caller shows a token, a client certificate or a login at the site's provider:
[Give access](../how-to/give-access.md). A BMC that pushes events has a secret of its own in the path.

Each route needs a right, which [REST](rest.md) names; these roles have it. A credential that is limited to groups has
none of the rights in *italics*.

{roles}
## Anybody may ask

Without a credential, over the front door:

{open}
"""


def metrics_page() -> str:
    """Every metric, read from where it is made."""
    return f"{MARK}\n{_METRICS}\n" + table(("metric", "kind", "labels", "tells", "made in"), sorted(_metrics()))


def _metrics() -> Iterator[tuple[str, str, str, str, str]]:
    for path in sorted(SOURCES.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "prometheus_client" not in text:
            continue
        for call in ast.walk(ast.parse(text)):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in KINDS:
                name, meaning, *more = (ast.literal_eval(argument) for argument in call.args)
                kind = KINDS[call.func.id]
                labels = ", ".join(map(code, more[0] if more else ())) or "-"
                full = f"{name}_total" if kind == "counter" else name
                yield code(full), kind, labels, meaning, code(path.relative_to(SOURCES))


def ports_page() -> str:
    """Every port that Strata listens on or calls, and which role has which right."""
    return f"{MARK}\n" + _PORTS.format(
        listens=table(("port", "set by", "what", "who may call"), _listens()),
        calls=table(("port", "whom", "set by"), _calls()),
        roles=table(("role", "may"), _role_rights()),
        open="\n".join(_open_routes()),
    )


def _listens() -> Iterator[tuple[str, str, str, str]]:
    import msgspec

    from strata.fleet.settings import ListenSettings
    from strata.provisioning.dhcp.listener import PORT as DHCP
    from strata.provisioning.dhcp.tftp import PORT as TFTP
    from strata.provisioning.networks import Networks

    (boot,) = (field.default for field in msgspec.structs.fields(Networks) if field.name == "boot_port")
    booting = "machines on the boot networks"
    yield (
        f"{ListenSettings().port}/tcp",
        "`listen.port`",
        "over TLS: API, dashboard, Redfish, CAPMC, agents, events of BMCs, images, boot media",
        "people, schedulers, nodes, BMCs, other controllers, each with its [credential](#credentials)",
    )
    yield "`admin.sock`", "`state_dir`", "the same API", "whoever may open the file (0600): admin"
    yield (
        f"{DHCP}/udp",
        "`provisioning.networks`",
        "DHCP, on the interfaces of the boot networks alone",
        f"{booting}, and relays that the networks declare",
    )
    yield f"{TFTP}/udp", "`provisioning.networks`", "iPXE, and nothing else", booting
    yield (
        f"{boot}/tcp",
        "`boot_port` of the networks",
        "boot scripts, and what belongs to one boot",
        "[a node at its own address and MAC](../how-to/boot-networks.md#who-gets-boot-data), while it boots",
    )
    yield f"{boot + 1}/tcp", "the one above", "kernels and the minimal OS, nothing secret", booting
    yield "ICMPv6", "`ipv6` of the networks", "router advertisements", booting
    yield "any/udp", "`hardware.syslog`", "syslog of nodes", "nodes; believed by their address"
    yield "any/udp", "`hardware.netconsole`", "messages of nodes' kernels", "nodes; believed by their address"


def _calls() -> Iterator[tuple[str, str, str]]:
    from strata.fleet.settings import ListenSettings
    from strata.hardware.bmc.ipmi.client import DEFAULT_PORT as IPMI
    from strata.hardware.discovery.sources_scan import PORT as SSDP

    yield "443/tcp", "BMCs: Redfish", "the node's `bmc`, which may name another port"
    yield f"{IPMI}/udp", "BMCs: IPMI, serial over LAN", "the node's `bmc`"
    yield f"{SSDP}/udp", "multicast, for discovery", "`strata hardware discover --ssdp`"
    yield "2379/tcp", "etcd, where it is the store", "`store.url`"
    yield "5432/tcp", "PostgreSQL, where it keeps telemetry", "`power.telemetry`"
    yield f"{ListenSettings().port}/tcp", "other controllers", "`listen.url` of each"
    yield "22/tcp", "hosts of schedulers' commands and of playbooks; git over ssh", "`strata workload connect --on`"
    yield "443/tcp", "login provider, Vault, git over HTTPS, registries, webhooks", "where a site names them"


def _role_rights() -> Iterator[tuple[str, str]]:
    from strata.fleet.access.principal import FLEET_WIDE, RIGHTS, VERBS, Right

    for role, rights in RIGHTS.items():
        parts = []
        for verb in VERBS:
            kinds = sorted(right.kind for right in rights if right.verb == verb)
            named = (f"*{kind}*" if Right(verb, kind) in FLEET_WIDE else kind for kind in kinds)
            parts += [f"{verb}: {', '.join(named)}"] if kinds else []
        yield code(role), "everything" if role == "admin" else "; ".join(parts)


def _open_routes() -> Iterator[str]:
    from strata.api.app import create_litestar
    from strata.api.rights import handlers_of

    found = {
        (path, method) for method, path, handler in handlers_of(create_litestar(1)) if handler.opt["right"] is None
    }
    yield from (f"- `{method} {path}`" for path, method in sorted(found))
