"""The dashboard as people use it: Chromium, nginx, a real service, simulated nodes."""

from __future__ import annotations

import json
import os
import re
import tarfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Route, expect

from strata.virtual.bmc.server import SIMULATED_ACCOUNT
from support.chromium import chromium
from support.dashboard_browser import Visitor, front_door, token
from system.system_support import Controller, World, eventually, strata, world

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(900)]

NODES = 48
_SCALES = """() => [...new Set([...document.querySelectorAll(".graphs svg")].map(
    (svg) => Math.round(100 * svg.getScreenCTM().a) / 100))]"""
_WIDEST = "() => Math.max(...[...document.querySelectorAll('.scroll')].map((one) => one.scrollWidth))"
HOSTILE = "<img src=x onerror=document.title='owned'>"


@pytest.fixture(scope="module")
def site() -> Iterator[World]:
    with world() as found:
        yield found


@pytest.fixture(scope="module")
def service(site: World) -> Controller:
    controller = site.controller("c1", site.simulator(NODES, 0.05), tls=True)
    controller.start()
    controller.wait_ready()
    return controller


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pictures are kept: with the run, or where ``make pictures`` wants them."""
    wanted = os.environ.get("STRATA_PICTURES")
    return Path(wanted) if wanted else tmp_path_factory.mktemp("dashboard")


def test_an_operator_sees_the_fleet_come_up_and_heal_and_an_unwanted_rollout_stop(
    service: Controller, browser: Browser, pictures: Path
) -> None:
    operator = Visitor(browser, service)
    page = operator.page
    operator.sign_in(token(service, "operator"))
    eventually("every node is a cell", lambda: operator.counts() == {"unmanaged": NODES}, 120.0)

    service.want_ready()
    eventually("the fleet comes up, without a reload", lambda: operator.counts() == {"ready": NODES}, 300.0)
    operator.picture(pictures, "machine")

    page.get_by_label("Find nodes").fill("n00007")
    page.get_by_label("Find nodes").press("Enter")
    expect(page.get_by_test_id("hits")).to_contain_text("1 node found")
    page.get_by_test_id("hits").get_by_role("link", name="n00007").click()
    expect(page.get_by_test_id("why")).to_contain_text("at its goal")
    expect(page.get_by_test_id("fact-power")).to_contain_text("on")
    operator.picture(pictures, "node")
    page.get_by_role("tab", name="Console").click()
    expect(page.get_by_role("log")).to_contain_text("n00007")
    with page.expect_response("**/v1/nodes/n00007/console/keys") as typed:
        page.get_by_label("Type at the console").fill("root")
        page.get_by_label("Type at the console").press("Enter")
    assert typed.value.status == 204
    page.get_by_role("tab", name="History").click()

    page.get_by_role("button", name="Power off").click()
    question = page.get_by_role("dialog")
    expect(question).to_contain_text("Power off n00007?")
    assert service.client.get("/v1/nodes/n00007")["desires"]["power"]["values"] == ["on"]  # it only asks so far
    question.get_by_role("button", name="Power off").click()
    expect(page.get_by_test_id("fact-power")).to_contain_text("off")
    expect(page.get_by_test_id("state")).to_have_text("off")
    expect(page.get_by_role("button", name="Power on")).to_be_visible()

    page.get_by_role("button", name="Power on").click()
    page.get_by_role("dialog").get_by_role("button", name="Power on").click()
    expect(page.get_by_test_id("fact-workload")).to_have_text(re.compile(r"^in\b"))
    expect(page.get_by_test_id("state")).to_have_text("ready")
    expect(page.get_by_test_id("why")).to_contain_text("at its goal")
    expect(page.get_by_label("History, newest first")).to_contain_text("power off → on")

    told = page.get_by_label("History, newest first").get_by_role("listitem")
    switched = told.filter(has_text=re.compile(r"power (on|off) → (on|off)"))
    # All that is in the history already is shown before: what comes after it is this healing, and nothing else.
    before = _switched(service, "n00007")
    expect(switched).to_have_count(before)
    _cut_power(service, "n00007")  # nobody wants that: it is to heal
    expect(switched).to_have_count(before + 2)
    expect(switched.nth(1)).to_contain_text("power on → off")
    expect(switched.nth(1)).not_to_contain_text("power-off")  # no step of ours
    expect(switched.first).to_contain_text("power off → on")
    expect(switched.first).to_contain_text("power-on")
    expect(page.get_by_test_id("fact-power")).to_contain_text("on")
    expect(page.get_by_test_id("fact-workload")).to_have_text(re.compile(r"^in\b"))
    expect(page.get_by_test_id("state")).to_have_text("ready")
    expect(told.filter(has_text="want")).not_to_have_count(0)
    expect(told.filter(has_text="want").first).to_contain_text("token:")  # who wanted it

    boots = page.get_by_label("History, newest first").get_by_text("os", exact=True)
    before = boots.count()
    page.get_by_role("button", name="Power cycle").click()
    page.get_by_role("dialog").get_by_role("button", name="Power cycle").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(boots).not_to_have_count(before)  # its OS is gone with its power
    expect(page.get_by_test_id("fact-workload")).to_have_text(re.compile(r"^in\b"))
    expect(page.get_by_test_id("state")).to_have_text("ready")

    rollout = {"select": "n[00001-00040]", "set": {"image": ["v2"]}, "waves": ["1"], "soak": 600}
    service.client.request("PUT", "/v1/rollouts/new-image", body=rollout)
    operator.go("Rollouts")
    expect(page.get_by_test_id("rollout-state-new-image")).to_have_text("running")
    page.get_by_test_id("rollout-new-image").get_by_role("button", name="Pause").click()
    page.get_by_label("Reason").fill("the night shift asks first")
    page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    expect(page.get_by_test_id("rollout-state-new-image")).to_have_text("paused")
    assert service.client.get("/v1/rollouts/new-image")["state"] == "paused"
    operator.picture(pictures, "rollouts")
    assert operator.complaints == []
    assert {"machine.png", "node.png", "rollouts.png"} <= {path.name for path in pictures.iterdir()}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_of_the_layers_that_run_is_there_and_complains_of_nothing(
    service: Controller, browser: Browser, pictures: Path, scheme: Literal["light", "dark"]
) -> None:
    admin = Visitor(browser, service, color_scheme=scheme)
    admin.sign_in(token(service, "admin"))
    # No images: simulated nodes have none that anybody serves.
    links = admin.page.get_by_role("navigation", name="Pages").get_by_role("link")
    pages = ["Machine", "Model", "Rollouts", "Power", "Jobs", re.compile(r"^Alerts( \d+)?$"), "Audit"]
    expect(links).to_have_text(pages)
    admin.page.get_by_label("Colour by").select_option("watts")
    eventually("every node has its watts", lambda: _all_measured(admin.counts()), 120.0)
    barriers = {"Machine": admin.barriers()}
    admin.go("Model")
    expect(admin.page.get_by_test_id("count-power-on")).to_have_text(re.compile(r"\d+"))
    admin.picture(pictures, "model")
    eventually("all graphs are drawn in one size", lambda: admin.page.evaluate(_SCALES) == [1], 60.0)
    expect(admin.page).to_have_title("Model – Strata")
    barriers["Model"] = admin.barriers()
    admin.go("Power")
    expect(admin.page.get_by_test_id("system-power")).to_contain_text("drawn")
    expect(admin.page.get_by_role("region", name="Cabinets")).to_contain_text("caps allow")
    admin.picture(pictures, "power")
    barriers["Power"] = admin.barriers()
    admin.go("Rollouts")
    expect(admin.page.get_by_role("navigation", name="Pages").get_by_text("Rollouts")).to_have_attribute(
        "aria-current", "page"
    )
    barriers["Rollouts"] = admin.barriers()
    admin.go("Jobs")
    expect(admin.page.get_by_text("No jobs.")).to_be_visible()
    admin.go("Alerts")
    expect(admin.page.get_by_test_id("open-alerts")).to_have_text(re.compile(r"\d+"))
    barriers["Alerts"] = admin.barriers()
    admin.go("Audit")
    expect(admin.page.get_by_label("Audit log")).to_contain_text("token.mint")
    expect(admin.page.get_by_label("Audit log")).to_contain_text(
        "role: admin; expires: "
    )  # words, not a program's marks
    barriers["Audit"] = admin.barriers()
    admin.open("#/node/n00003")
    expect(admin.page.get_by_test_id("why")).not_to_be_empty()
    barriers["a node"] = admin.barriers()
    assert {page: found for page, found in barriers.items() if found} == {}
    assert admin.complaints == []


def test_images_and_jobs_are_shown_with_what_became_of_them(site: World, browser: Browser) -> None:
    whole = site.controller("c2", None, tls=True)
    whole.start()
    whole.wait_ready()
    archive = site.directory / "tiny.tar"
    with tarfile.open(archive, "w") as tar:
        for name in ("bin", "etc", "usr"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(folder)
    imported = strata(whole.state, "image", "import", archive, "--name", "tiny", "--tag", "1")
    assert imported.code == 0, imported.err
    # Its account has no home to write to, so it fails where there is none; the page shows either.
    strata(whole.state, "job", "submit", "--account", "nobody", "--name", "hello", "--wait", "--", "true")
    for scheme in ("light", "dark"):
        admin = Visitor(browser, whole, color_scheme=scheme)
        admin.open()
        expect(admin.page.get_by_label("Token")).to_be_visible()
        assert admin.barriers() == []
        admin.sign_in(token(whole, "admin"))
        admin.go("Images")
        row = admin.page.get_by_role("region", name="Images").get_by_role("row").filter(has_text="tiny:1")
        expect(row).to_contain_text("local-admin")
        assert admin.barriers() == []
        admin.go("Jobs")
        row = admin.page.get_by_role("region", name="Jobs").get_by_role("row").filter(has_text="hello")
        expect(row).to_contain_text("nobody")
        expect(row).to_contain_text("local")
        assert row.get_by_role("link").count() == 0  # it ran here: no node of the fleet
        assert admin.barriers() == []
        assert admin.complaints == []

    whole.client.request("POST", "/v1/nodes", body={"nodes": [{"name": "n1"}]})
    runs = {"members": [{"name": "system", "release": "tiny:1"}]}
    whole.client.request("PUT", "/v1/personalities/compute", body=runs)
    operator = Visitor(browser, whole)
    operator.sign_in(token(whole, "operator"))
    operator.open("#/node/n1")
    operator.page.get_by_role("button", name="Personality").click()
    operator.page.get_by_role("dialog").get_by_role("button", name="Set").click()
    expect(operator.page.get_by_role("dialog")).to_have_count(0)
    assert whole.client.get("/v1/nodes/n1")["desires"]["image"]["values"] == ["compute"]
    whole.stop()


def _cut_power(service: Controller, node: str) -> None:
    """As if somebody had pulled the plug: by the BMC, past Strata."""
    bmc = service.client.get(f"/v1/nodes/{node}")["bmc"]
    request = urllib.request.Request(
        f"{bmc}/redfish/v1/Systems/1/Actions/ComputerSystem.Reset",
        json.dumps({"ResetType": "ForceOff"}).encode(),
        {"Authorization": SIMULATED_ACCOUNT.basic, "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as reply:
        assert reply.status < 300


def _switched(service: Controller, node: str) -> int:
    """How often the history has the node go on or off."""
    past = service.client.get(f"/v1/nodes/{node}/history")["items"]
    return sum(one["variable"] == "power" and {one["old"], one["new"]} == {"on", "off"} for one in past)


def _all_measured(counts: dict[str, int]) -> bool:
    return sum(counts.values()) == NODES and all(value.endswith(" W") for value in counts)


def test_the_past_is_replayed_with_a_slider(service: Controller, browser: Browser) -> None:
    service.want_ready()
    viewer = Visitor(browser, service)
    viewer.sign_in(token(service, "viewer"))
    viewer.page.get_by_role("button", name="1 h", exact=True).click()
    slider = viewer.page.get_by_role("slider")
    slider.fill(str(float(slider.get_attribute("min") or 0)))
    eventually("all nodes are as they were before anybody knew them", lambda: set(viewer.counts()) == {"unknown"}, 60.0)
    viewer.page.get_by_role("button", name="Back to now").click()
    eventually("and as they are", lambda: "unknown" not in viewer.counts(), 60.0)
    assert viewer.complaints == []


def test_a_viewer_is_offered_nothing_that_changes_anything_and_is_refused_where_it_tries(
    service: Controller, browser: Browser
) -> None:
    secret = token(service, "viewer")
    viewer = Visitor(browser, service)
    viewer.sign_in(secret)
    viewer.open("#/node/n00009")
    expect(viewer.page.get_by_test_id("why")).not_to_be_empty()
    assert viewer.page.get_by_role("group", name="Actions").get_by_role("button").count() == 0
    assert viewer.page.get_by_role("tab", name="Console").count() == 0
    assert viewer.page.get_by_role("link", name="Audit").count() == 0
    tried = """async (token) => (await fetch("/v1/desires", {
        method: "POST",
        headers: {"Authorization": `Bearer ${token}`, "Content-Type": "application/json"},
        body: '{"select": "n00009", "set": {"power": ["off"]}}',
    })).status"""
    assert viewer.page.evaluate(tried, secret) == 403


def test_somebody_who_only_runs_jobs_is_shown_jobs(service: Controller, browser: Browser) -> None:
    user = Visitor(browser, service)
    user.sign_in(token(service, "user"))
    expect(user.page.get_by_role("navigation", name="Pages").get_by_role("link")).to_have_text(["Jobs"])
    expect(user.page.get_by_text("No jobs.")).to_be_visible()
    assert user.complaints == []


def test_a_wrong_token_is_told_so_and_opens_nothing(service: Controller, browser: Browser) -> None:
    stranger = Visitor(browser, service)
    stranger.open()
    stranger.page.get_by_label("Token").fill("strata_0123456789abcdef_wrong")
    stranger.page.get_by_role("button", name="Sign in").click()
    expect(stranger.page.get_by_role("alert")).to_be_visible()
    assert stranger.page.get_by_role("navigation").count() == 0


def test_a_hostile_host_name_and_whatever_devices_say_stay_text(service: Controller, browser: Browser) -> None:
    service.want_ready()
    service.client.request("POST", "/v1/holds", body={"select": "n00011", "reason": HOSTILE})
    operator = Visitor(browser, service)
    page = operator.page

    def renamed(route: Route) -> None:
        """As if a name had come through that no registry takes."""
        answer = route.fetch()
        route.fulfill(response=answer, body=answer.text().replace('"n00011"', json.dumps(HOSTILE)))

    for path in ("machine", "nodes/n00011"):
        page.route(f"**/v1/{path}", renamed)
    reading = {"name": HOSTILE, "kind": "temperature", "unit": HOSTILE, "value": 1, "health": HOSTILE, "high": None}
    told = {"items": [{"node": "n00011", "time": 1, "trouble": HOSTILE, "readings": [reading]}]}
    page.route("**/v1/bmc/sensors*", lambda route: route.fulfill(json=told))
    part = dict.fromkeys(("id", "kind", "name", "slot", "vendor", "model", "serial", "firmware", "health"), HOSTILE)
    page.route("**/n00011/hardware", lambda route: route.fulfill(json={"seen": 1, "components": [part]}))
    operator.sign_in(token(service, "operator"))
    page.locator("canvas[data-painted]").focus()
    for _ in range(11):
        page.keyboard.press("ArrowDown")
    operator.open("#/node/n00011")
    expect(page.get_by_role("heading", level=2)).to_contain_text(HOSTILE)
    expect(page.get_by_label("Why", exact=True)).to_contain_text(HOSTILE)
    page.get_by_role("tab", name="Sensors").click()
    expect(page.get_by_label("Sensors", exact=True)).to_contain_text(HOSTILE)
    expect(page.get_by_label("Parts", exact=True)).to_contain_text(HOSTILE)
    page.get_by_role("button", name="Release").click()
    expect(page.get_by_role("dialog")).to_contain_text(HOSTILE)
    assert page.locator("img").count() == 0
    assert page.title() == "n00011 – Strata"
    assert operator.complaints == []


def test_a_client_certificate_signs_in_without_a_token(service: Controller, browser: Browser, site: World) -> None:
    request = {"name": "ada", "role": "viewer", "ttl": 3600}
    issued = service.client.request("POST", "/v1/auth/certificates", body=request).body
    url = front_door(service)
    shown = {"origin": url, "cert": issued["certificate"].encode(), "key": issued["key"].encode()}
    ada = Visitor(browser, service, client_certificates=[shown])
    ada.open()
    expect(ada.page.locator(".who")).to_contain_text("ada (viewer)")
    assert ada.page.get_by_role("button", name="Sign out").count() == 0
    assert ada.complaints == []


def test_a_phone_shows_the_machine_without_scrolling_sideways(service: Controller, browser: Browser) -> None:
    phone = Visitor(browser, service, has_touch=True, is_mobile=True)
    phone.page.set_viewport_size({"width": 360, "height": 740})
    phone.sign_in(token(service, "admin"))
    phone.page.locator("canvas[data-painted]").wait_for()
    assert phone.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    phone.go("Audit")
    entry = phone.page.get_by_label("Audit log").get_by_role("row").filter(has_text="token.mint").first
    expect(entry).to_contain_text("role: admin")
    assert phone.page.evaluate(_WIDEST) <= 360, "what does not fit stands below one another"


def test_keys_go_from_node_to_node_and_open_one(service: Controller, browser: Browser) -> None:
    viewer = Visitor(browser, service)
    viewer.sign_in(token(service, "viewer"))
    canvas = viewer.page.locator("canvas[data-painted]")
    canvas.focus()
    for key in ("ArrowDown", "ArrowDown", "+", "Enter"):
        canvas.press(key)
    expect(viewer.page.get_by_role("heading", level=2)).to_contain_text("n00002")


def test_keys_answer_a_question_and_go_from_tab_to_tab(service: Controller, browser: Browser) -> None:
    operator = Visitor(browser, service)
    page = operator.page
    operator.sign_in(token(service, "operator"))
    operator.open("#/node/n00012")
    hold = page.get_by_role("button", name="Hold")
    hold.press("Enter")
    expect(page.get_by_label("Reason")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(hold).to_be_focused()
    page.get_by_role("tab", name="History").press("ArrowRight")
    expect(page.get_by_role("tab", name="Console")).to_be_focused()
    expect(page.get_by_role("log")).to_be_visible()
    assert operator.complaints == []
