"""Shared fixtures. ``tests/support`` holds the helpers that several rooms use."""

import logging
import os
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from support.etcd_cluster import EtcdCluster

sys.path.insert(0, str(Path(__file__).parent))

# What a command says must be seen at once without it, too: few people have it.
os.environ.pop("PYTHONUNBUFFERED", None)
# Thousands of our processes start in the tests: each would compile all of our modules again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# What an example may cost is the machine's business, not the property's: a loaded machine must not fail a test.
settings.register_profile("strata", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("strata")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--late", metavar="SEED", help="let everything come late by chance, to find races (see support/late)"
    )


def pytest_configure(config: pytest.Config) -> None:
    from fresh.programs import watch

    sys.addaudithook(watch)  # nobody starts a program of which the Makefile's packages are not held to have it
    seed = config.getoption("--late")
    if seed:
        from support.late import be_late

        be_late(f"{seed} {os.environ.get('PYTEST_XDIST_WORKER', '')}")


@pytest.fixture(scope="session")
def etcd_cluster(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[EtcdCluster]":
    """A real three-member etcd cluster. A test that harms it calls ``heal`` before it ends."""
    from support.etcd_cluster import EtcdCluster

    if not EtcdCluster.available():
        pytest.fail("etcd is not installed: make setup")
    cluster = EtcdCluster(tmp_path_factory.mktemp("etcd"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Work is shared out by id: of several tests with the same one, all but the first would be left out silently."""
    twice = [nodeid for nodeid, count in Counter(item.nodeid for item in items).items() if count > 1]
    if twice:
        raise pytest.UsageError(f"several tests have the same id: {', '.join(twice[:5])}")
    if hasattr(config, "workerinput"):
        from support.longest_first import longest_first

        items[:] = longest_first(items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Logging is the process's: whatever a test, or a request in it, changes there ends with it."""
    before = {logger: (logger.level, logger.disabled, logger.propagate) for logger in _loggers()}
    disabled = logging.root.manager.disable
    result = yield
    logging.disable(disabled)
    for logger in _loggers():
        level, logger.disabled, logger.propagate = before.get(logger, (logging.NOTSET, False, True))
        logger.setLevel(level)
    return result


def _loggers() -> list[logging.Logger]:
    known = logging.root.manager.loggerDict
    ours = [
        logger for name, logger in known.items() if name.startswith("strata") and isinstance(logger, logging.Logger)
    ]
    return [logging.root, *ours]
