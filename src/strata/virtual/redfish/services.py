"""What every simulated BMC has: the root, sessions, accounts, the manager and its settings."""

from __future__ import annotations

from strata.virtual.bmc.http import Reply
from strata.virtual.redfish.bmc import LOCK_OUT_AFTER, SESSIONS, Bmc
from strata.virtual.redfish.body import OK, ROOT, Json, action, done, link, missing, one_of, only, read_json, refuse
from strata.virtual.redfish.query import MOST_LEVELS
from strata.virtual.redfish.router import Call, Tree

MANAGER = f"{ROOT}/Managers/1"
ROLES = {
    "Administrator": ("Login", "ConfigureManager", "ConfigureUsers", "ConfigureSelf", "ConfigureComponents"),
    "Operator": ("Login", "ConfigureSelf", "ConfigureComponents"),
    "ReadOnly": ("Login", "ConfigureSelf"),
}
_AT = {"Tasks": "TaskService"}
"""What hangs off the root under another name than its own."""
SHORTEST_PASSWORD, LONGEST_PASSWORD = 8, 64

TREE: Tree[Bmc] = Tree()


@TREE.view("")
def _root(bmc: Bmc, call: Call) -> Json:
    return {
        "@odata.id": f"{ROOT}/",
        "@odata.type": "#ServiceRoot.v1_15_0.ServiceRoot",
        "Id": "RootService",
        "Name": f"Simulated BMC of {bmc.name}",
        "RedfishVersion": "1.17.0",
        "UUID": bmc.uuid("Manager"),
        "Vendor": bmc.part(bmc.kind, bmc.kind)["Manufacturer"],
        "Product": "Simulated BMC",
        "ProtocolFeaturesSupported": {
            "ExpandQuery": {
                "ExpandAll": True, "Levels": True, "Links": True, "NoLinks": True, "MaxLevels": MOST_LEVELS,
            },
            "FilterQuery": False,
            "SelectQuery": False,
            "ExcerptQuery": False,
            "OnlyMemberQuery": True,
        },
        **{name: link(f"{ROOT}/{_AT.get(name, name)}") for name in bmc.services},
        "Links": {"Sessions": link(SESSIONS)},
    }  # fmt: skip


@TREE.view("odata")
def _service_document(bmc: Bmc, call: Call) -> Json:
    values = [{"name": name, "kind": "Singleton", "url": f"{ROOT}/{_AT.get(name, name)}"} for name in bmc.services]
    return {"@odata.context": f"{ROOT}/$metadata", "value": values}


@TREE.view("SessionService", "SessionService.v1_1_8")
def _session_service(bmc: Bmc, call: Call) -> Json:
    timeout = int(bmc.account.expiry)
    return {"Name": "Sessions", "ServiceEnabled": True, "SessionTimeout": timeout, "Sessions": link(SESSIONS)}


@TREE.members("SessionService/Sessions", "Session.v1_6_0", lambda bmc, call: bmc.session_ids())
def _session(bmc: Bmc, call: Call) -> Json:
    return bmc.session()


@TREE.handles("DELETE SessionService/Sessions/*")
def _end_session(bmc: Bmc, call: Call) -> Reply:
    return done() if bmc.end_session(call.ids[0]) else missing(call.path)


@TREE.view("AccountService", "AccountService.v1_13_0")
def _account_service(bmc: Bmc, call: Call) -> Json:
    return {
        "Name": "Accounts",
        "ServiceEnabled": True,
        "AccountLockoutThreshold": LOCK_OUT_AFTER,
        "MinPasswordLength": SHORTEST_PASSWORD,
        "MaxPasswordLength": LONGEST_PASSWORD,
        "Accounts": link(f"{call.path}/Accounts"),
        "Roles": link(f"{call.path}/Roles"),
    }


@TREE.members("AccountService/Accounts", "ManagerAccount.v1_10_0", ["1"])
def _account(bmc: Bmc, call: Call) -> Json:
    return {
        "Name": "Account",
        "UserName": bmc.account.user,
        "Password": None,
        "RoleId": "Administrator",
        "Enabled": True,
        "Locked": bmc.locked,
        "AccountTypes": ["Redfish"],
        "Links": {"Role": link(f"{ROOT}/AccountService/Roles/Administrator")},
    }


@TREE.handles("PATCH AccountService/Accounts/1")
def _set_account(bmc: Bmc, call: Call) -> Reply:
    password = only(read_json(call.request.body), Password=(str,)).get("Password")
    if not isinstance(password, str) or not SHORTEST_PASSWORD <= len(password) <= LONGEST_PASSWORD:
        text = f"A password has {SHORTEST_PASSWORD} to {LONGEST_PASSWORD} characters."
        refuse(400, "PropertyValueFormatError", text)
    bmc.change_password(password)
    return done()


@TREE.members("AccountService/Roles", "Role.v1_3_1", ROLES)
def _role(bmc: Bmc, call: Call) -> Json:
    name = call.ids[0]
    return {"Name": f"{name} role", "RoleId": name, "IsPredefined": True, "AssignedPrivileges": ROLES[name]}


@TREE.members("Managers", "Manager.v1_17_0", ["1"])
def _manager(bmc: Bmc, call: Call) -> Json:
    return {
        "Name": f"BMC of {bmc.name}",
        "ManagerType": bmc.manager_type,
        "FirmwareVersion": bmc.firmware(call.now),
        "UUID": bmc.uuid("Manager"),
        "Status": OK,
        "PowerState": "On",
        "DateTime": bmc.site.date(call.now),
        "DateTimeLocalOffset": "+00:00",
        "ServiceEntryPointUUID": bmc.uuid("Manager"),
        "NetworkProtocol": link(f"{MANAGER}/NetworkProtocol"),
        "Actions": action(MANAGER, "Manager.Reset", ResetType=["ForceRestart"]),
        "Links": bmc.manages,
        **bmc.part("Manager", "Manager"),
    }


@TREE.handles("POST Managers/1/Actions/Manager.Reset")
def _reset_manager(bmc: Bmc, call: Call) -> Reply:
    one_of(read_json(call.request.body), "ResetType", ("ForceRestart",))
    bmc.restart()
    return done()


@TREE.view("Managers/1/NetworkProtocol", "ManagerNetworkProtocol.v1_9_0")
def _network_protocol(bmc: Bmc, call: Call) -> Json:
    return {
        "Name": "Network protocols",
        "HostName": f"{bmc.name}-bmc",
        "Status": OK,
        "HTTPS": {"ProtocolEnabled": True, "Port": 443},
        "SSDP": {"ProtocolEnabled": True, "Port": 1900},
        "NTP": {"ProtocolEnabled": bool(bmc.ntp), "NTPServers": bmc.ntp},
    }


@TREE.handles("PATCH Managers/1/NetworkProtocol")
def _set_network_protocol(bmc: Bmc, call: Call) -> Reply:
    given = only(read_json(call.request.body), NTP=(dict,)).get("NTP")
    settings = only(given, ProtocolEnabled=(bool,), NTPServers=(list,)) if isinstance(given, dict) else {}
    servers = settings.get("NTPServers")
    if isinstance(servers, list):
        if len(servers) > 8 or not all(isinstance(server, str) and 0 < len(server) < 256 for server in servers):
            refuse(400, "PropertyValueFormatError", "NTPServers is a list of at most 8 host names.")
        bmc.ntp = servers
    if settings.get("ProtocolEnabled") is False:
        bmc.ntp = []
    return done()
