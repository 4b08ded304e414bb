"""Keys and certificates of a federation: one EC key per site, a certificate authority, the server's certificate.

A site signs every reply with its key, so that its identity does not depend on the transport alone; the coordinator
signs receipts with a key of its own. Needs the package `cryptography` (`pip install fedsac[flower]`).
"""

import base64
import hashlib
import ipaddress
from datetime import UTC, datetime, timedelta
from typing import Any

from fedsac.errors import FedsacError

CERTIFICATE_LIFETIME = timedelta(days=365 * 5)


def _require_cryptography() -> Any:
    try:
        import cryptography
    except ImportError:
        raise FedsacError("a federation needs the package cryptography; install fedsac[flower]") from None
    return cryptography


def new_key() -> tuple[bytes, bytes]:
    """A new private key and its public key, both in OpenSSH's format, which Flower's nodes read."""
    _require_cryptography()
    from cryptography.hazmat.primitives import serialization as s
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(s.Encoding.PEM, s.PrivateFormat.OpenSSH, s.NoEncryption())
    return private, key.public_key().public_bytes(s.Encoding.OpenSSH, s.PublicFormat.OpenSSH)


def public_key(private: bytes) -> bytes:
    """The public key of a private one, both in OpenSSH's format."""
    from cryptography.hazmat.primitives import serialization as s

    key: Any = s.load_ssh_private_key(private, None)
    return bytes(key.public_key().public_bytes(s.Encoding.OpenSSH, s.PublicFormat.OpenSSH))


class NoPublicKeyError(FedsacError):
    """What should be a public key is none."""


def fingerprint(public: bytes) -> str:
    """A public key's fingerprint, as `ssh-keygen -l` prints it: short enough to be compared by telephone."""
    try:
        blob = base64.b64decode(public.split()[1], validate=True)
    except (IndexError, ValueError):
        raise NoPublicKeyError("it is no public key in OpenSSH's format") from None
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def sign(private: bytes, digest: bytes) -> str:
    """The signature over a digest, base64."""
    _require_cryptography()
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key

    key = load_ssh_private_key(private, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return base64.b64encode(key.sign(digest, ec.ECDSA(hashes.SHA256()))).decode()


def signed(public: bytes, digest: bytes, signature: str) -> bool:
    """Whether the signature over the digest was made with this public key's private key."""
    _require_cryptography()
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_ssh_public_key

    try:
        key = load_ssh_public_key(public)
    except (ValueError, NotImplementedError, UnsupportedAlgorithm):
        return False
    if not isinstance(key, ec.EllipticCurvePublicKey):
        return False
    try:
        key.verify(base64.b64decode(signature, validate=True), digest, ec.ECDSA(hashes.SHA256()))
    except (InvalidSignature, ValueError):
        return False
    return True


def authority() -> tuple[bytes, bytes]:
    """A new certificate authority for one federation: its private key and its certificate, PEM."""
    _require_cryptography()
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP384R1())
    name = _name("fedsac federation")
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    subject_id = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = _certificate(name, name, key.public_key())
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(usage, critical=True).add_extension(subject_id, critical=False)
    return _pem(key), _signed_certificate(builder, key)


def server_certificate(ca_key: bytes, ca: bytes, names: list[str]) -> tuple[bytes, bytes]:
    """A new private key and a certificate for these host names and IP addresses, PEM."""
    _require_cryptography()
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from cryptography.x509.oid import ExtendedKeyUsageOID

    issuer = x509.load_pem_x509_certificate(ca)
    issuing_key = load_pem_private_key(ca_key, None)
    key = ec.generate_private_key(ec.SECP384R1())
    builder = _certificate(_name(names[0]), issuer.subject, key.public_key())
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(x509.SubjectAlternativeName([_alternative(name) for name in names]), critical=False)
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    builder = builder.add_extension(usage, critical=False)
    issuer_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.public_key())  # type: ignore[arg-type]
    builder = builder.add_extension(issuer_id, critical=False)
    return _pem(key), _signed_certificate(builder, issuing_key)


def is_authority(ca_key: bytes, ca: bytes) -> bool:
    """Whether it is the private key of the authority with this certificate."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key: Any = load_pem_private_key(ca_key, None)
    except (ValueError, TypeError):
        return False
    return bool(key.public_key() == x509.load_pem_x509_certificate(ca).public_key())


def require_certificate(pem: bytes) -> None:
    """Raise ValueError unless it is a certificate."""
    _require_cryptography()
    from cryptography import x509

    x509.load_pem_x509_certificate(pem)


def expiry(pem: bytes) -> datetime:
    """When a certificate ends."""
    _require_cryptography()
    from cryptography import x509

    return x509.load_pem_x509_certificate(pem).not_valid_after_utc


def _name(text: str) -> Any:
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text[:64])])


def _alternative(name: str) -> Any:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _certificate(subject: Any, issuer: Any, key: Any) -> Any:
    from cryptography import x509

    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))  # clocks differ a little
        .not_valid_after(now + CERTIFICATE_LIFETIME)
    )


def _signed_certificate(builder: Any, key: Any) -> bytes:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.serialization import Encoding

    return bytes(builder.sign(key, hashes.SHA384()).public_bytes(Encoding.PEM))


def _pem(key: Any) -> bytes:
    from cryptography.hazmat.primitives import serialization as s

    return bytes(key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption()))
