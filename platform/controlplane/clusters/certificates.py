"""A cluster's own certificate authority, and the certificates that it signs. Pure: values in, PEM text out.

Keys are of the curve P-256: small, quick on the daemons' loops, and known to every client. An authority signs for one
cluster only, so that a client that trusts it trusts that cluster's daemons and nothing else.

An authority is succeeded by another one before it ends. What clients trust is a text of one certificate or two, of which
the first signs: `A`; then `A B`, so that B is known everywhere before it signs; then `B A`; and `B`, when no daemon has
shown what A signed for a month. Each step is an operation of its own (`provisioning/authority.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_LIFETIME = timedelta(days=3650)
CERTIFICATE_LIFETIME = timedelta(days=90)
# Two thirds of its life are over: then there is a month to notice that renewing fails.
RENEW_BEFORE = timedelta(days=30)
# Before an authority's end. Programs have half a year to get the file that has both; then there are two months until what A
# has signed would outlive it.
NEXT_TRUSTED_BEFORE = timedelta(days=365)
NEXT_SIGNS_BEFORE = timedelta(days=180)
FORMER_DROPPED_BEFORE = timedelta(days=150)
# What is left of that where a person began the succession.
FORMER_KEPT = NEXT_SIGNS_BEFORE - FORMER_DROPPED_BEFORE
# Clocks of clients may be late.
_BACKDATED = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class SignedKey:
    """A certificate and its private key, both as PEM text."""

    cert_pem: str
    key_pem: str = field(repr=False)


class Succession(StrEnum):
    """What is to be done next about an authority: make another one and trust both, let that one sign, trust it alone."""

    TRUST_NEXT = "trust_next"
    SIGN_BY_NEXT = "sign_by_next"
    DROP_FORMER = "drop_former"


def succession(trusted_pem: str, appointed: datetime | None = None) -> tuple[Succession, datetime]:
    """Return what is to be done next, and when, where `trusted_pem` is what clients trust.

    `appointed` is when, where that is sooner than the authority's end demands.
    """
    signing, *others = x509.load_pem_x509_certificates(trusted_pem.encode())
    if not others:
        step, due_at = Succession.TRUST_NEXT, signing.not_valid_after_utc - NEXT_TRUSTED_BEFORE
    elif signing.not_valid_after_utc <= others[0].not_valid_after_utc:
        step, due_at = Succession.SIGN_BY_NEXT, signing.not_valid_after_utc - NEXT_SIGNS_BEFORE
    else:
        step, due_at = Succession.DROP_FORMER, others[0].not_valid_after_utc - FORMER_DROPPED_BEFORE
    return step, due_at if appointed is None else min(due_at, appointed)


def authorities(trusted_pem: str) -> list[str]:
    """Return the certificates that clients trust, each as PEM text, the one that signs first."""
    return [_cert_pem(certificate) for certificate in x509.load_pem_x509_certificates(trusted_pem.encode())]


def authority_ends_at(trusted_pem: str) -> datetime:
    """Return when the authority that signs ends."""
    return x509.load_pem_x509_certificate(trusted_pem.encode()).not_valid_after_utc


def next_signs_at(trusted_pem: str, appointed: datetime | None = None) -> datetime | None:
    """Return when the next authority begins to sign, by when each client needs a text that has it; None: none is coming."""
    step, due_at = succession(trusted_pem, appointed)
    return due_at if step is Succession.SIGN_BY_NEXT else None


def authority_make(name: str, now: datetime) -> SignedKey:
    """Return a new certificate authority that signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    # Two of a cluster's are told apart by their names: clients look for a certificate's issuer by it.
    subject = _name(f"{name} CA {now:%Y-%m-%d %H:%M:%S}")
    certificate = (
        _builder(subject, subject, key.public_key(), now, AUTHORITY_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return SignedKey(_cert_pem(certificate), _key_pem(key))


def successor_make(trusted_pem: str, name: str, now: datetime) -> SignedKey:
    """Return an authority that outlives the one that signs: by its end the two are told apart."""
    return authority_make(name, max(now, authority_ends_at(trusted_pem) - AUTHORITY_LIFETIME + timedelta(seconds=1)))


def certificate_issue(authority: SignedKey, name: str, hosts: Sequence[str], now: datetime) -> SignedKey:
    """Return a certificate for a daemon at `hosts` (addresses or names), or for a client, with the authority's after it."""
    issuer_key = serialization.load_pem_private_key(authority.key_pem.encode(), None)
    if not isinstance(issuer_key, ec.EllipticCurvePrivateKey):
        raise ValueError("the authority's key is not of an elliptic curve")
    issuer = x509.load_pem_x509_certificate(authority.cert_pem.encode())
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        _builder(_name(name), issuer.subject, key.public_key(), now, CERTIFICATE_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        # Python's own default since 3.13 takes no certificate without it.
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        .add_extension(
            # Daemons are servers, and clients of each other.
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
            critical=False,
        )
    )
    if hosts:
        names = x509.SubjectAlternativeName([_alternative(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    certificate = builder.sign(issuer_key, hashes.SHA256())
    return SignedKey(_cert_pem(certificate) + authority.cert_pem, _key_pem(key))


def renews_at(cert_pem: str) -> datetime:
    """Return when the first certificate of this text is to be renewed."""
    return x509.load_pem_x509_certificate(cert_pem.encode()).not_valid_after_utc - RENEW_BEFORE


def issued_at(cert_der: bytes) -> datetime:
    """Return when `certificate_issue` made this certificate, in whole seconds."""
    return x509.load_der_x509_certificate(cert_der).not_valid_before_utc + _BACKDATED


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, lifetime: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + lifetime)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _cert_pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
