"""Strata's own certificate authority: files in the state directory, readable by their owner only.

Issues the front door's server certificate and short-lived client certificates that carry a role and a scope. Does not
know who may ask for one, nor which were revoked: that is ``strata.fleet.access.credentials``.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from strata.core.errors import BadRequest, Corrupt
from strata.core.host.private_file import write_private
from strata.fleet.access.principal import Role

ROOT_YEARS = 10
SERVER_DAYS = 30
RENEW_SERVER_BEFORE = 10 * 86400
"""Seconds before its end at which the server's certificate is made anew."""
SKEW = 300
"""Seconds by which a certificate begins in the past: nodes' clocks differ."""

CONTROLLER_UNIT = "strata-controller"
"""What stands in place of a role in the certificate of a controller."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,62}\Z")
_GROUP = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}\Z")


class Issued(msgspec.Struct, frozen=True, kw_only=True):
    """A certificate that was just made. ``key`` is empty where the key is the caller's own."""

    serial: str
    certificate: bytes
    key: bytes
    expires: float

    def __repr__(self) -> str:
        return f"Issued({self.serial})"


class Authority:
    """The CA of one state directory. ``open`` makes it on first use."""

    def __init__(
        self,
        directory: Path,
        key: ec.EllipticCurvePrivateKey,
        certificate: x509.Certificate,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._directory = directory
        self._key = key
        self._certificate = certificate
        self._clock = clock

    @classmethod
    def open(cls, directory: Path, *, clock: Callable[[], float] = time.time) -> Authority:
        """Load the authority in ``directory``, or make a new one there."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        key_path, certificate_path = directory / "ca.key", directory / "ca.crt"
        if not key_path.exists() and not certificate_path.exists():
            key = ec.generate_private_key(ec.SECP256R1())
            certificate = _make_root(key, clock())
            write_private(key_path, _key_pem(key))
            write_private(certificate_path, certificate.public_bytes(serialization.Encoding.PEM), mode=0o644)
            return cls(directory, key, certificate, clock)
        try:
            loaded = serialization.load_pem_private_key(key_path.read_bytes(), password=None)
            certificate = x509.load_pem_x509_certificate(certificate_path.read_bytes())
        except (OSError, ValueError, UnsupportedAlgorithm) as error:
            raise Corrupt(
                f"the certificate authority cannot be read: {type(error).__name__}",
                where=str(directory),
                hint="restore ca.key and ca.crt from a backup, or remove both to begin anew (all certificates end)",
            ) from error
        if not isinstance(loaded, ec.EllipticCurvePrivateKey) or loaded.public_key() != certificate.public_key():
            raise Corrupt("ca.key and ca.crt do not belong together", where=str(directory), hint="restore both")
        return cls(directory, loaded, certificate, clock)

    @property
    def pem(self) -> bytes:
        """The root certificate, for clients and nginx."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def fingerprint(self) -> str:
        """Of the root certificate: SHA-256, in hexadecimal."""
        return self._certificate.fingerprint(hashes.SHA256()).hex()

    @property
    def certificate_path(self) -> Path:
        """Where the root certificate lies."""
        return self._directory / "ca.crt"

    @property
    def server_paths(self) -> tuple[Path, Path]:
        """Where the server's certificate and key lie."""
        return self._directory / "server.crt", self._directory / "server.key"

    def renew_server(self, names: Sequence[str], *, force: bool = False) -> bool:
        """See that there is a server certificate for ``names`` (DNS names, addresses) that is good for a while yet.
        True if a new one was made: nginx must be told."""
        certificate_path, key_path = self.server_paths
        wanted = [_general_name(name) for name in names]
        if not force and self._server_is_good(wanted):
            return False
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, str(names[0])[:64])]),
            key.public_key(),
            SERVER_DAYS * 86400,
            ExtendedKeyUsageOID.SERVER_AUTH,
        ).add_extension(x509.SubjectAlternativeName(wanted), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        # Both are replaced whole; nginx reads them together, on a reload that follows.
        write_private(key_path, _key_pem(key))
        write_private(certificate_path, certificate.public_bytes(serialization.Encoding.PEM), mode=0o644)
        return True

    def issue(self, name: str, role: Role, scope: Sequence[str], ttl: float) -> Issued:
        """A client certificate with a key made here."""
        key = ec.generate_private_key(ec.SECP256R1())
        return self._issue(name, role, scope, ttl, key.public_key(), _key_pem(key))

    def sign_csr(self, csr: bytes, name: str, role: Role, scope: Sequence[str], ttl: float) -> Issued:
        """A client certificate for the key in ``csr`` (PEM). Whatever else the request asks for is ignored."""
        try:
            request = x509.load_pem_x509_csr(csr)
            key = request.public_key()
            sound = request.is_signature_valid
        except (ValueError, UnsupportedAlgorithm, InvalidSignature) as error:
            raise BadRequest("not a certificate signing request in PEM form", where="csr") from error
        strong = isinstance(key, ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey) or (
            isinstance(key, rsa.RSAPublicKey) and key.key_size >= 2048
        )
        if not sound or not strong:
            raise BadRequest(
                "the key is too weak or its signature is wrong",
                where="csr",
                hint="use EC P-256, Ed25519, or RSA of 2048 bits or more",
            )
        return self._issue(name, role, scope, ttl, key, b"")

    def issue_controller(self, name: str, ttl: float) -> Issued:
        """A client certificate for a controller, by which others of the same authority know it. There is no other way
        to one: whatever is issued for people, services and nodes carries a role, and nothing of it is taken from a
        signing request."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _subject(name, CONTROLLER_UNIT)
        certificate = self._builder(subject, key.public_key(), ttl, ExtendedKeyUsageOID.CLIENT_AUTH).sign(
            self._key, hashes.SHA256()
        )
        return _issued(certificate, _key_pem(key))

    def _issue(
        self,
        name: str,
        role: Role,
        scope: Sequence[str],
        ttl: float,
        key: CertificatePublicKeyTypes,
        private: bytes,
    ) -> Issued:
        for group in scope:
            if not _GROUP.match(group):
                raise BadRequest("a group's name is 1 to 63 letters, digits and '_.-'", where=repr(group)[:80])
        subject = _subject(name, f"role:{role}", *(f"scope:{group}" for group in scope))
        address = f"strata://role/{role}" + (f"?scope={','.join(scope)}" if scope else "")
        certificate = (
            self._builder(subject, key, ttl, ExtendedKeyUsageOID.CLIENT_AUTH)
            .add_extension(x509.SubjectAlternativeName([x509.UniformResourceIdentifier(address)]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return _issued(certificate, private)

    def _builder(
        self,
        subject: x509.Name,
        key: CertificatePublicKeyTypes,
        ttl: float,
        usage: x509.ObjectIdentifier,
    ) -> x509.CertificateBuilder:
        now = self._clock()
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._certificate.subject)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(_utc(now - SKEW))
            .not_valid_after(min(_utc(now + ttl), self._certificate.not_valid_after_utc))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )

    def _server_is_good(self, wanted: list[x509.GeneralName]) -> bool:
        certificate_path, key_path = self.server_paths
        try:
            certificate = x509.load_pem_x509_certificate(certificate_path.read_bytes())
            key = serialization.load_pem_private_key(key_path.read_bytes(), password=None)
            names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            certificate.verify_directly_issued_by(self._certificate)
        except (OSError, ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
            return False
        lasts = certificate.not_valid_after_utc.timestamp() - self._clock() > RENEW_SERVER_BEFORE
        return lasts and list(names) == wanted and key.public_key() == certificate.public_key()


def _subject(name: str, *units: str) -> x509.Name:
    """Whom a client certificate is for. Every part is ours: a unit decides what its holder may do."""
    if not _NAME.match(name):
        raise BadRequest("a name is 1 to 63 letters, digits and '_.@-'", where=repr(name)[:80])
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Strata"),
            x509.NameAttribute(NameOID.COMMON_NAME, name),
            *(x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, unit) for unit in units),
        ]
    )


def _issued(certificate: x509.Certificate, key: bytes) -> Issued:
    return Issued(
        serial=f"{certificate.serial_number:X}",
        certificate=certificate.public_bytes(serialization.Encoding.PEM),
        key=key,
        expires=certificate.not_valid_after_utc.timestamp(),
    )


def _make_root(key: ec.EllipticCurvePrivateKey, now: float) -> x509.Certificate:
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Strata"),
            x509.NameAttribute(NameOID.COMMON_NAME, "Strata cluster CA"),
        ]
    )
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_utc(now - SKEW))
        .not_valid_after(_utc(now + ROOT_YEARS * 365 * 86400))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _utc(seconds: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(int(seconds), tz=dt.UTC)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
