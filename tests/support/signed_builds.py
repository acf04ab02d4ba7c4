"""Builds of the minimal OS without the work of making one: signed, and nothing that a machine could run."""

from __future__ import annotations

import hashlib
from pathlib import Path

from strata.fleet.alarm import AlarmSink
from strata.provisioning.boot.builds import Builds
from strata.provisioning.minos.artefacts import Artefacts, Manifest, Part, encode
from strata.provisioning.minos.soundness import Soundness
from strata.provisioning.signing import Signer


def a_manifest(kernel: bytes = b"x", initrd: bytes = b"x", arch: str = "x86_64") -> Manifest:
    return Manifest(
        arch=arch,
        kernel="6.1",
        inputs=(),
        agent="",
        files="",
        modules=(),
        unpacked=1,
        vmlinuz=Part(size=len(kernel), sha256=hashlib.sha256(kernel).hexdigest()),
        initrd=Part(size=len(initrd), sha256=hashlib.sha256(initrd).hexdigest()),
    )


def digest_of(manifest: Manifest) -> str:
    return hashlib.sha256(encode(manifest)).hexdigest()[:12]


def put_build(minos: Path, signing: Path, kernel: bytes = b"x", initrd: bytes = b"x", *, arch: str = "x86_64") -> str:
    """Leave a build in ``minos`` as ``strata minos build`` does, the latest of its architecture; its digest."""
    return Artefacts(minos).add(a_manifest(kernel, initrd, arch), kernel, initrd, Signer.open(signing)).digest


def open_builds(minos: Path, signing: Path, alarm: AlarmSink = lambda _: None) -> Builds:
    return Builds(minos, Soundness(minos, Signer.open(signing).public_pem, alarm))
