"""Logging in over Redfish: every way, what each role may do with accounts and sessions, and what is never shown."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from machine_support import PASSWORD, ROOT, MachineService, machine_service
from redfish_support import ACCOUNTS, SESSIONS, basic, keys

from strata.fleet.access import accounts
from strata.fleet.access.logins import Logins
from strata.fleet.access.sessions import Sessions


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What hashing costs is tested with the accounts."""
    monkeypatch.setattr(accounts, "hash_password", lambda password, salt: salt + password.encode())


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[MachineService]:
    async with machine_service(tmp_path) as found:
        yield found


async def log_in(client: httpx.AsyncClient, name: str, password: str = PASSWORD) -> httpx.Response:
    return await client.post(SESSIONS, json={"UserName": name, "Password": password})


# ways in


async def test_the_root_is_for_everybody_and_the_rest_is_not(service: MachineService) -> None:
    async with service.client("front") as client:
        for path in ("/redfish", ROOT, f"{ROOT}/", f"{ROOT}/odata", f"{ROOT}/$metadata"):
            assert (await client.get(path)).status_code == 200
        for path in (SESSIONS, ACCOUNTS, f"{ROOT}/Systems", f"{ROOT}/Nonsense"):
            answer = await client.get(path)
            assert (answer.status_code, keys(answer)) == (401, ["NoValidSession", "NotAuthenticated"])
            assert "Basic" in answer.headers["www-authenticate"]
        assert (await client.delete(f"{ROOT}/")).status_code == 401


async def test_a_session_opens_with_a_password_and_closes_for_good(service: MachineService) -> None:
    await service.account("ada", "viewer")
    async with service.client("front") as client:
        opened = await log_in(client, "ada")
        assert opened.status_code == 201
        token, path = opened.headers["x-auth-token"], opened.headers["location"]
        assert opened.json()["UserName"] == "ada"
        assert opened.json()["Password"] is None
        assert token not in opened.text
        client.headers["X-Auth-Token"] = token
        assert [m["@odata.id"] for m in (await client.get(SESSIONS)).json()["Members"]] == [path]
        assert (await client.get(path)).status_code == 200
        assert (await client.delete(path)).status_code == 204
        assert (await client.get(SESSIONS)).status_code == 401


@pytest.mark.parametrize(
    ("body", "status", "key"),
    [
        ({}, 400, "PropertyMissing"),
        ({"UserName": "ada"}, 400, "PropertyMissing"),
        ({"UserName": "ada", "Password": 5}, 400, "PropertyValueError"),
        ({"UserName": "ada", "Password": "wrong and long"}, 401, "NoValidSession"),
        ({"UserName": "bob", "Password": PASSWORD}, 401, "NoValidSession"),
    ],
)
async def test_a_login_that_is_wrong_opens_nothing(
    service: MachineService, body: dict[str, object], status: int, key: str
) -> None:
    await service.account("ada", "viewer")
    async with service.client("front") as client:
        answer = await client.post(SESSIONS, json=body)
    assert (answer.status_code, keys(answer)[0]) == (status, key)
    assert "wrong and long" not in answer.text
    assert not service.of(Sessions).all()


async def test_basic_bearer_and_token_as_password_all_work(service: MachineService) -> None:
    await service.account("ada", "viewer")
    token = await service.token("viewer")
    ident = token.split("_")[1]
    ways = (basic("ada", PASSWORD), basic(ident, token), f"Bearer {token}")
    async with service.client("front") as client:
        for way in ways:
            assert (await client.get(SESSIONS, headers={"Authorization": way})).status_code == 200
        for way in (basic("ada", "no"), basic(ident, token + "x"), "Basic ?", "Basic YQ==", "Digest x"):
            assert (await client.get(SESSIONS, headers={"Authorization": way})).status_code == 401


async def test_a_bad_credential_is_not_made_good_by_the_local_socket(service: MachineService) -> None:
    async with service.client("admin") as client:
        assert (await client.get(ACCOUNTS)).status_code == 200
        for headers in ({"X-Auth-Token": "00"}, {"Authorization": basic("ada", "no")}):
            assert (await client.get(ACCOUNTS, headers=headers)).status_code == 401


async def test_a_credential_that_is_given_twice_is_none(service: MachineService) -> None:
    await service.account("ada", "viewer")
    good = basic("ada", PASSWORD)
    async with service.client("front") as client:
        headers = [("Authorization", good), ("Authorization", good)]
        assert (await client.get(SESSIONS, headers=headers)).status_code == 401


async def test_without_accounts_tokens_still_work(service: MachineService) -> None:
    token = await service.token("viewer")
    service.services.drop(Logins)
    async with service.client("front", token) as client:
        assert (await client.get(f"{ROOT}/AccountService")).json()["ServiceEnabled"] is False
        assert (await client.get(SESSIONS)).status_code == 503
        assert (await client.get(ROOT, headers={"X-Auth-Token": "00"})).status_code == 503


# accounts


async def test_an_account_is_made_changed_and_removed(service: MachineService) -> None:
    async with service.client("admin") as client:
        made = await client.post(ACCOUNTS, json={"UserName": "ada", "Password": PASSWORD, "RoleId": "Operator"})
        assert made.status_code == 201
        path = made.headers["location"]
        assert made.json()["Password"] is None
        assert PASSWORD not in made.text
        changed = await client.patch(path, json={"RoleId": "ReadOnly", "Enabled": False})
        assert (changed.json()["RoleId"], changed.json()["Enabled"]) == ("ReadOnly", False)
        assert (await log_in(client, "ada")).status_code == 401
        again = await client.post(ACCOUNTS, json={"UserName": "ada", "Password": PASSWORD, "RoleId": "Operator"})
        assert (again.status_code, keys(again)) == (409, ["ResourceAlreadyExists"])
        assert (await client.delete(path)).status_code == 204
        assert (await client.get(path)).status_code == 404
    actions = [one.action for one in await service.ledger.latest() if one.action.startswith("account.")]
    assert actions == ["account.delete", "account.change", "account.create"]


@pytest.mark.parametrize(
    ("body", "key"),
    [
        ({}, "NoOperation"),
        ({"@odata.id": "x"}, "NoOperation"),
        ({"Nonsense": 1}, "PropertyUnknown"),
        ({"Password": PASSWORD, "Nonsense": 1}, "PropertyUnknown"),
        ({"Id": "bob"}, "PropertyNotWritable"),
        ({"Password": "short"}, "PropertyValueError"),
        ({"Password": None}, "PropertyValueError"),
        ({"Enabled": "yes"}, "PropertyValueTypeError"),
        ({"RoleId": "King"}, "PropertyValueNotInList"),
        ({"RoleId": "Operator@"}, "PropertyValueNotInList"),
        ({"Locked": True}, "PropertyValueError"),
    ],
)
async def test_a_change_that_is_wrong_in_part_changes_nothing(
    service: MachineService, body: dict[str, object], key: str
) -> None:
    await service.account("ada", "viewer")
    before = service.accounts.get("ada")
    async with service.client("admin") as client:
        answer = await client.patch(f"{ACCOUNTS}/ada", json=body)
    assert (answer.status_code, keys(answer)) == (400, [key])
    assert service.accounts.get("ada") == before


async def test_people_see_and_change_themselves_only(service: MachineService) -> None:
    await service.account("ada", "viewer")
    await service.account("bob", "operator")
    async with service.as_user("ada") as client:
        assert [m["@odata.id"] for m in (await client.get(ACCOUNTS)).json()["Members"]] == [f"{ACCOUNTS}/ada"]
        assert (await client.get(f"{ACCOUNTS}/bob")).status_code == 404
        assert (await client.patch(f"{ACCOUNTS}/bob", json={"Password": PASSWORD * 2})).status_code == 404
        assert (await client.patch(f"{ACCOUNTS}/ada", json={"RoleId": "Administrator"})).status_code == 403
        both = {"Password": PASSWORD * 2, "RoleId": "Administrator"}
        assert (await client.patch(f"{ACCOUNTS}/ada", json=both)).status_code == 403
        assert (await client.delete(f"{ACCOUNTS}/ada")).status_code == 403
        assert (await client.post(ACCOUNTS, json=both)).status_code == 403
        assert (await client.patch(f"{ACCOUNTS}/ada", json={"Password": PASSWORD * 2})).status_code == 200
        assert (await client.get(ACCOUNTS)).status_code == 401
    assert service.accounts.get("ada").role == "viewer"


async def test_people_end_their_own_sessions_and_administrators_all(service: MachineService) -> None:
    await service.account("ada", "viewer")
    await service.account("bob", "operator")
    async with service.client("admin") as client:
        adas = (await log_in(client, "ada")).headers["location"]
        bobs = (await log_in(client, "bob")).headers["location"]
    async with service.as_user("ada") as client:
        assert (await client.delete(bobs)).status_code == 404
        assert (await client.delete(adas)).status_code == 204
    async with service.client("admin") as client:
        assert (await client.delete(bobs)).status_code == 204


async def test_a_new_password_from_somebody_else_ends_the_sessions(service: MachineService) -> None:
    await service.account("ada", "viewer")
    async with service.client("front") as client:
        token = (await log_in(client, "ada")).headers["x-auth-token"]
        async with service.client("admin") as admin:
            assert (await admin.patch(f"{ACCOUNTS}/ada", json={"Password": PASSWORD * 2})).status_code == 200
        assert (await client.get(SESSIONS, headers={"X-Auth-Token": token})).status_code == 401


async def test_a_password_that_must_be_changed_opens_nothing_else(service: MachineService) -> None:
    own = f"{ACCOUNTS}/ada"
    async with service.client("admin") as client:
        body = {"UserName": "ada", "Password": PASSWORD, "RoleId": "Administrator", "PasswordChangeRequired": True}
        assert (await client.post(ACCOUNTS, json=body)).status_code == 201
    async with service.as_user("ada") as client:
        opened = await log_in(client, "ada")
        assert opened.status_code == 201
        assert opened.json()["@Message.ExtendedInfo"][0]["MessageArgs"] == [own]
        refused = await client.get(SESSIONS)
        assert (refused.status_code, keys(refused)) == (403, ["PasswordChangeRequired"])
        assert (await client.get(f"{ROOT}/Systems")).status_code == 403
        assert (await client.get(own)).json()["PasswordChangeRequired"] is True
        undo = await client.patch(own, json={"PasswordChangeRequired": False})
        assert (undo.status_code, keys(undo)) == (403, ["PasswordChangeRequired"])
        changed = await client.patch(own, json={"Password": PASSWORD * 2})
        assert (changed.status_code, changed.json()["PasswordChangeRequired"]) == (200, False)
    async with service.as_user("ada", PASSWORD * 2) as client:
        assert (await client.get(SESSIONS)).status_code == 200


async def test_a_role_may_be_limited_to_groups(service: MachineService) -> None:
    role = "Operator@g1+g2"
    async with service.client("admin") as client:
        made = await client.post(ACCOUNTS, json={"UserName": "ada", "Password": PASSWORD, "RoleId": role})
        assert made.json()["RoleId"] == role
        found = (await client.get(made.json()["Links"]["Role"]["@odata.id"])).json()
        assert (found["Id"], found["IsPredefined"]) == (role, False)
        listed = (await client.get(f"{ROOT}/AccountService/Roles")).json()["Members"]
        assert {"@odata.id": f"{ROOT}/AccountService/Roles/{role}"} in listed
        assert (await client.get(f"{ROOT}/AccountService/Roles/King")).status_code == 404
    account = service.accounts.get("ada")
    assert (account.role, account.scope) == ("operator", ("g1", "g2"))


async def test_locking_shows_and_an_administrator_unlocks(service: MachineService) -> None:
    await service.account("ada", "viewer")
    async with service.client("admin") as client:
        for _ in range(5):
            await log_in(client, "ada", "a wrong password")
        assert (await client.get(f"{ACCOUNTS}/ada")).json()["Locked"] is True
        assert (await client.patch(f"{ACCOUNTS}/ada", json={"Locked": False})).json()["Locked"] is False
        assert (await log_in(client, "ada")).status_code == 201
