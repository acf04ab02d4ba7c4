"""The certificate authority: files, subjects, lifetimes, rotation."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID
from route_table import Clock

from strata.core.errors import BadRequest, Corrupt
from strata.fleet.access.authority import RENEW_SERVER_BEFORE, SERVER_DAYS, Authority
from strata.fleet.access.credentials import Authenticator
from strata.store.audit import Ledger
from strata.store.memory import MemoryStore


def csr(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey, name: str = "CN=root,O=Evil") -> bytes:
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name.from_rfc4514_string(name))
    return request.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def test_keys_are_their_owners_alone(tmp_path: Path) -> None:
    authority = Authority.open(tmp_path / "ca")
    authority.renew_server(["localhost"])
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "ca").iterdir()}
    assert modes == {"ca.key": 0o600, "server.key": 0o600, "ca.crt": 0o644, "server.crt": 0o644}
    assert (tmp_path / "ca").stat().st_mode & 0o777 == 0o700


def test_opened_again_it_is_the_same_authority(tmp_path: Path) -> None:
    assert Authority.open(tmp_path).pem == Authority.open(tmp_path).pem


@pytest.mark.parametrize("damage", ["cut", "other key", "missing"])
def test_a_damaged_authority_is_refused_and_not_replaced(tmp_path: Path, damage: str) -> None:
    Authority.open(tmp_path / "a")
    Authority.open(tmp_path / "b")
    key = tmp_path / "a" / "ca.key"
    if damage == "cut":
        key.write_bytes(key.read_bytes()[:40])
    elif damage == "other key":
        key.write_bytes((tmp_path / "b" / "ca.key").read_bytes())
    else:
        key.unlink()
    with pytest.raises(Corrupt, match="restore"):
        Authority.open(tmp_path / "a")


def test_a_client_certificate_carries_role_and_scope_as_the_authenticator_reads_them(tmp_path: Path) -> None:
    issued = Authority.open(tmp_path).issue("alice@site", "operator", ["gpu", "cpu"], 3600)
    certificate = x509.load_pem_x509_certificate(issued.certificate)
    address = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert address.get_values_for_type(x509.UniformResourceIdentifier) == ["strata://role/operator?scope=gpu,cpu"]
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    store = MemoryStore(clock=lambda: 0.0)
    who = Authenticator(store, Ledger(store)).certificate(
        "SUCCESS", issued.serial, certificate.subject.rfc4514_string()
    )
    assert (who.name, who.role, who.scope) == ("alice@site", "operator", ("gpu", "cpu"))


def test_it_lives_as_long_as_asked_and_never_longer_than_its_authority(tmp_path: Path) -> None:
    clock = Clock()
    authority = Authority.open(tmp_path, clock=clock)
    assert authority.issue("a", "viewer", [], 60).expires == clock.now + 60
    root = x509.load_pem_x509_certificate(authority.pem).not_valid_after_utc.timestamp()
    assert authority.issue("a", "viewer", [], 100 * 365 * 86400).expires == root


def test_a_signing_request_gives_its_key_and_nothing_else(tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    issued = Authority.open(tmp_path).sign_csr(csr(key), "bob", "viewer", [], 60)
    certificate = x509.load_pem_x509_certificate(issued.certificate)
    assert certificate.public_key() == key.public_key()
    assert "Evil" not in certificate.subject.rfc4514_string()
    assert issued.key == b""


@pytest.mark.slow
def test_a_weak_or_forged_signing_request_is_refused(tmp_path: Path) -> None:
    authority = Authority.open(tmp_path)
    weak = csr(rsa.generate_private_key(65537, 1024))
    good = csr(ec.generate_private_key(ec.SECP256R1())).replace(b"\n", b"", 0)
    forged = bytearray(good)
    forged[-60] = ord("A") if forged[-60] != ord("A") else ord("B")
    for text in (weak, bytes(forged), b"", b"-----BEGIN CERTIFICATE REQUEST-----\n", b"\x00\xff"):
        with pytest.raises(BadRequest):
            authority.sign_csr(text, "bob", "viewer", [], 60)


@pytest.mark.parametrize("name", ["", "a,O=x", "a\n", "a+b", "-a", "x" * 64])
def test_a_name_that_could_change_the_subject_is_refused(tmp_path: Path, name: str) -> None:
    authority = Authority.open(tmp_path)
    with pytest.raises(BadRequest):
        authority.issue(name, "viewer", [], 60)
    with pytest.raises(BadRequest):
        authority.issue("a", "viewer", [name], 60)


def test_the_server_certificate_is_made_anew_in_time_or_for_other_names(tmp_path: Path) -> None:
    clock = Clock()
    authority = Authority.open(tmp_path, clock=clock)
    assert authority.renew_server(["localhost", "127.0.0.1"])
    assert not authority.renew_server(["localhost", "127.0.0.1"])
    assert authority.renew_server(["strata.site"])
    clock.now += SERVER_DAYS * 86400 - RENEW_SERVER_BEFORE + 1
    assert authority.renew_server(["strata.site"])
    authority.server_paths[1].write_bytes(b"")
    assert authority.renew_server(["strata.site"])
