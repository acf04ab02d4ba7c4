"""The dashboard's files: where they come from, and what may not be in them."""

from __future__ import annotations

import json
import re
from pathlib import Path

from strata.api.nginx_config import FrontDoor, config_text
from strata.dashboard.files import published

WEB = Path(__file__).parents[2] / "src/strata/dashboard/web"
SOURCES = sorted((WEB / "src").rglob("*.ts*"))


def test_nothing_in_the_sources_can_make_html_or_code_of_a_text() -> None:
    assert len(SOURCES) > 20
    dangerous = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|dangerouslySet|document\.write|\beval\(|new Function|srcdoc"
    )
    found = [
        f"{path.name}: {line}" for path in SOURCES for line in path.read_text().splitlines() if dangerous.search(line)
    ]
    assert found == []


def test_the_lock_has_a_hash_for_everything_and_no_addresses() -> None:
    packages = json.loads((WEB / "package-lock.json").read_text())["packages"]
    installed = {name: package for name, package in packages.items() if name}
    assert len(installed) > 5
    assert [name for name, package in installed.items() if not package.get("integrity")] == []
    assert [name for name, package in packages.items() if "resolved" in package] == []


def test_what_is_published_is_just_what_was_built_and_readable_to_nginx(tmp_path: Path) -> None:
    built, to = tmp_path / "static", tmp_path / "state"
    (built / "assets").mkdir(parents=True)
    (built / "index.html").write_text("page")
    (built / "assets" / "app-1.js").write_text("new")
    (built / "assets" / "app-1.js").chmod(0o600)
    (to / "assets").mkdir(parents=True)
    (to / "assets" / "app-0.js").write_text("old")
    assert published(to, built) == to
    assert {path.relative_to(to).as_posix() for path in to.rglob("*.*")} == {"index.html", "assets/app-1.js"}
    assert (to / "assets" / "app-1.js").stat().st_mode & 0o777 == 0o644
    assert (to / "assets").stat().st_mode & 0o777 == 0o755


def test_without_built_files_nothing_is_published_and_the_front_page_says_how_to_build_them(tmp_path: Path) -> None:
    assert published(tmp_path / "state", tmp_path / "none") is None
    door = FrontDoor(
        directory=tmp_path, host="127.0.0.1", port=1, upstream=tmp_path, secret="s", certificate=tmp_path,
        key=tmp_path, ca=tmp_path,
    )  # fmt: skip
    assert "make dashboard" in config_text(door)
