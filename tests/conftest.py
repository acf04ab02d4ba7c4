"""Shared fixtures. ``tests/support`` holds the helpers that several rooms use."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from support.etcd_cluster import EtcdCluster

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def etcd_cluster(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[EtcdCluster]":
    """A real three-member etcd cluster. A test that harms it calls ``heal`` before it ends."""
    from support.etcd_cluster import EtcdCluster

    if not EtcdCluster.available():
        pytest.skip("etcd is not installed: apt-get install etcd-server")
    cluster = EtcdCluster(tmp_path_factory.mktemp("etcd"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
