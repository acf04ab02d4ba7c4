"""AccountService: accounts and roles. Roles are Strata's own (``control.principal``) under the names that Redfish has;
``Operator@gpu+login`` is the one that reaches no further than those groups.

Everybody sees their own account and may change its password; the rest is for those with rights on credentials.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from strata.api.redfish.protocol.bodies import change, missing
from strata.api.redfish.protocol.errors import Rejected, rejected
from strata.api.redfish.protocol.login import ACCOUNTS, logins_of
from strata.api.redfish.protocol.route import ROOT, Call, Json, Reply, Routes, collection, link
from strata.api.redfish.protocol.schemas import resource
from strata.api.redfish.resources.forms import service
from strata.core.errors import BadRequest, Conflict, NotFound
from strata.fleet.access.accounts import (
    LEAST_PASSWORD,
    LOCK_AFTER,
    LOCK_TIME,
    MOST_PASSWORD,
    Account,
    AccountChange,
    Accounts,
)
from strata.fleet.access.logins import Logins
from strata.fleet.access.principal import Principal, Right, Role

_SERVICE = f"{ROOT}/AccountService"
_ROLES = f"{_SERVICE}/Roles"
_SEE = Right("read", "credential")
_CREATE = Right("create", "credential")
_CHANGE = Right("change", "credential")
_DELETE = Right("delete", "credential")

ROLE_IDS: Mapping[Role, str] = {
    "admin": "Administrator",
    "operator": "Operator",
    "viewer": "ReadOnly",
    "node": "Node",
    "workload-manager": "WorkloadManager",
    "user": "User",
}
_ROLE_OF: Mapping[str, Role] = {ident: role for role, ident in ROLE_IDS.items()}
_PRIVILEGES: Mapping[Role, tuple[str, ...]] = {
    "admin": ("Login", "ConfigureManager", "ConfigureUsers", "ConfigureComponents", "ConfigureSelf"),
    "operator": ("Login", "ConfigureComponents", "ConfigureSelf"),
    "viewer": ("Login", "ConfigureSelf"),
    "node": ("Login", "ConfigureSelf"),
    "workload-manager": ("Login", "ConfigureSelf"),
    "user": ("Login", "ConfigureSelf"),
}
_GROUP = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}"
_ROLE_ID = re.compile(rf"([A-Za-z]+)(?:@({_GROUP}(?:\+{_GROUP}){{0,31}}))?\Z")
_PREDEFINED = ("admin", "operator", "viewer")
_WRITABLE: Mapping[str, type] = {
    "Password": str,
    "RoleId": str,
    "Enabled": bool,
    "Locked": bool,
    "PasswordChangeRequired": bool,
}

ROUTES = Routes()


@ROUTES.get(_SERVICE)
async def _service(call: Call) -> Json:
    return service(
        _SERVICE,
        "Accounts and roles",
        enabled=call.services.find(Logins) is not None,
        HTTPBasicAuth="Enabled",
        LocalAccountAuth="Enabled",
        MinPasswordLength=LEAST_PASSWORD,
        MaxPasswordLength=MOST_PASSWORD,
        AccountLockoutThreshold=LOCK_AFTER,
        AccountLockoutDuration=int(LOCK_TIME),
        AccountLockoutCounterResetAfter=int(LOCK_TIME),
        AccountLockoutCounterResetEnabled=True,
        Accounts=link(ACCOUNTS),
        Roles=link(_ROLES),
    )


@ROUTES.get(ACCOUNTS)
async def accounts(call: Call) -> Json:
    """The accounts that the caller may see."""
    names = [name for name in _accounts(call).names() if _may_see(call.who, name)]
    return collection(ACCOUNTS, "ManagerAccount", "Accounts", [f"{ACCOUNTS}/{name}" for name in names])


@ROUTES.get(f"{ACCOUNTS}/{{account}}")
async def account(call: Call) -> Json:
    return _resource(call, _seen(call))


@ROUTES.post(ACCOUNTS, _CREATE)
async def create(call: Call) -> Reply:
    given = change(call, {**_WRITABLE, "UserName": str}, {})
    for name in ("UserName", "Password", "RoleId"):
        if given.get(name) is None:
            raise missing(name)
    role, scope = _parsed(given["RoleId"])
    try:
        made = await _accounts(call).create(
            call.who,
            given["UserName"],
            given["Password"],
            role,
            scope=scope,
            must_change=bool(given.get("PasswordChangeRequired")),
            enabled=given.get("Enabled") is not False,
        )
    except Conflict:
        name = str(given["UserName"])[:63]
        raise rejected(409, "ResourceAlreadyExists", "ManagerAccount", "UserName", name, about="UserName") from None
    except BadRequest as error:
        raise _wrong(error) from None
    return Reply(status=201, body=_resource(call, made), headers={"Location": f"{ACCOUNTS}/{made.name}"})


@ROUTES.patch(f"{ACCOUNTS}/{{account}}")
async def update(call: Call) -> Json:
    """Change an account: one's own password, or with the right anybody's anything."""
    found = _seen(call)
    given = change(call, _WRITABLE, _resource(call, found))
    asked = {name for name in given if not name.startswith("@")}
    for name in asked:
        if given[name] is None:
            raise rejected(400, "PropertyValueError", name, about=name)
    own = call.who.via == "password" and call.who.credential == found.name
    if not (own and asked == {"Password"}):
        call.who.require(_CHANGE)
    if own and logins_of(call.services).must_change_password(call.who) and asked != {"Password"}:
        raise rejected(403, "PasswordChangeRequired", call.path)
    if given.get("Locked") is True:
        raise rejected(400, "PropertyValueError", "Locked", about="Locked", hint="Locked can only be set to false")
    if "Locked" in asked:
        _accounts(call).unlock(found.name)
    role, scope = _parsed(given["RoleId"]) if "RoleId" in asked else (None, None)
    wanted = AccountChange(
        password=given.get("Password"),
        role=role,
        scope=scope,
        enabled=given.get("Enabled"),
        must_change=given.get("PasswordChangeRequired"),
    )
    try:
        changed = await _accounts(call).change(call.who, found.name, wanted)
    except BadRequest as error:
        raise _wrong(error) from None
    if wanted.password is not None and not own:
        await logins_of(call.services).sessions.close_all(call.who, changed.principal.name)
    return _resource(call, changed)


@ROUTES.delete(f"{ACCOUNTS}/{{account}}")
async def delete(call: Call) -> Reply:
    """Remove an account, and end its sessions."""
    found = _seen(call)
    call.who.require(_DELETE)
    await _accounts(call).delete(call.who, found.name)
    await logins_of(call.services).sessions.close_all(call.who, found.principal.name)
    return Reply(status=204)


@ROUTES.get(_ROLES)
async def roles(call: Call) -> Json:
    used = {_role_id(a) for a in map(_accounts(call).get, _accounts(call).names()) if _may_see(call.who, a.name)}
    idents = dict.fromkeys((*ROLE_IDS.values(), *sorted(used)))
    return collection(_ROLES, "Role", "Roles", [f"{_ROLES}/{ident}" for ident in idents])


@ROUTES.get(f"{_ROLES}/{{role}}")
async def role(call: Call) -> Json:
    ident = call.params["role"]
    try:
        found, scope = _parsed(ident)
    except Rejected:
        raise NotFound("no such role") from None
    limit = f", limited to {', '.join(scope)}" if scope else ""
    return resource(
        f"{_ROLES}/{ident}",
        "Role",
        f"Strata's role {found}{limit}",
        RoleId=ident,
        IsPredefined=found in _PREDEFINED and not scope,
        AssignedPrivileges=list(_PRIVILEGES[found]),
        OemPrivileges=[],
    )


def _parsed(ident: str) -> tuple[Role, tuple[str, ...]]:
    """Our role, and the groups that it is limited to."""
    match = _ROLE_ID.match(ident)
    if match is None or match[1] not in _ROLE_OF:
        raise rejected(400, "PropertyValueNotInList", ident[:100], "RoleId", about="RoleId")
    return _ROLE_OF[match[1]], tuple(match[2].split("+")) if match[2] else ()


def _role_id(account: Account) -> str:
    return ROLE_IDS[account.role] + (f"@{'+'.join(account.scope)}" if account.scope else "")


def _accounts(call: Call) -> Accounts:
    return logins_of(call.services).accounts


def _seen(call: Call) -> Account:
    found = _accounts(call).get(call.params["account"])
    if not _may_see(call.who, found.name):
        raise NotFound("no such account")
    return found


def _may_see(who: Principal, name: str) -> bool:
    return (who.via == "password" and who.credential == name) or who.may(_SEE)


def _wrong(error: BadRequest) -> Exception:
    if error.where in ("UserName", "Password"):
        return rejected(400, "PropertyValueError", error.where, about=error.where, hint=error.detail)
    return error


def _resource(call: Call, account: Account) -> Json:
    ident = _role_id(account)
    found: dict[str, Any] = resource(
        f"{ACCOUNTS}/{account.name}",
        "ManagerAccount",
        "Account",
        UserName=account.name,
        Password=None,
        RoleId=ident,
        Enabled=account.enabled,
        Locked=_accounts(call).is_locked(account.name),
        AccountTypes=["Redfish"],
        StrictAccountTypes=True,
        PasswordChangeRequired=account.must_change,
        Links={"Role": link(f"{_ROLES}/{ident}")},
    )
    return found
