"""What a failed command said last, as the error tells it."""

from __future__ import annotations

from pathlib import Path

from strata.provisioning.images.build.last_words import last_words, one_line


def test_the_line_that_says_why_is_among_the_last_words(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        "I: installing remaining packages inside the chroot...\nBuilding dependency tree...\n"
        f"E: Unable to locate package nosuch\nE: setup failed: E: apt-get -o {'x' * 500} failed\n"
        "I: main() received signal PIPE: waiting for setup...\nE: mmdebstrap failed to run\n"
    )
    told = last_words(log)
    assert told.startswith("E: Unable to locate package nosuch | E: setup failed: E: apt-get -o xxx")
    assert told.endswith("… | E: mmdebstrap failed to run")
    assert len(told) < 400


def test_what_was_said_before_and_what_is_drawn_over_is_left_out(tmp_path: Path) -> None:
    log = tmp_path / "log"
    before = "of another step\n"
    log.write_text(before + "10 %\r50 %\r100 %\n\x1b[31mred\x1b[0m\n\nred again\nred again\n")
    assert last_words(log, len(before)) == "100 % | [31mred [0m | red again"
    assert last_words(log, log.stat().st_size) == ""
    assert last_words(tmp_path / "none") == ""


def test_secrets_are_not_in_what_is_told(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("trying password=hunter2 now\n")
    assert last_words(log) == "trying [hidden] now"
    assert one_line("curl\n  https://me:hunter2@host/x") == "curl https://[hidden]@host/x"
    assert one_line("a" * 200) == "a" * 79 + "…"
