"""A cluster's own authority, and the certificates of its daemons: from birth, for them alone, renewed in time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature

from controlplane.clusters.certificates import (
    AUTHORITY_LIFETIME,
    CERTIFICATE_LIFETIME,
    SignedKey,
    Succession,
    authorities,
    authority_make,
    certificate_issue,
    next_signs_at,
    renews_at,
    succession,
)

NOW = datetime(2026, 11, 22, 16, 0, tzinfo=UTC)


@pytest.fixture(scope="module")
def authority() -> SignedKey:
    return authority_make("orders", NOW)


def first(pem: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem.encode())


def test_a_certificate_is_signed_by_its_clusters_authority_and_by_no_other(authority: SignedKey) -> None:
    issued = first(certificate_issue(authority, "broker-a-0", ["127.0.0.1"], NOW).cert_pem)
    issued.verify_directly_issued_by(first(authority.cert_pem))
    with pytest.raises(InvalidSignature):
        issued.verify_directly_issued_by(first(authority_make("orders", NOW).cert_pem))


def test_a_certificate_names_its_address_and_signs_nothing(authority: SignedKey) -> None:
    issued = first(certificate_issue(authority, "broker-a-0", ["127.0.0.1", "broker.example"], NOW).cert_pem)
    names = issued.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name.value) for name in names] == ["127.0.0.1", "broker.example"]
    assert not issued.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_a_certificate_is_renewed_a_month_before_it_ends(authority: SignedKey) -> None:
    issued = certificate_issue(authority, "broker-a-0", ["127.0.0.1"], NOW)
    assert renews_at(issued.cert_pem) == NOW + CERTIFICATE_LIFETIME - timedelta(days=30)


def test_no_representation_shows_a_key(authority: SignedKey) -> None:
    assert "PRIVATE" not in repr(authority)


def test_an_authority_is_succeeded_in_three_steps_long_before_it_ends(authority: SignedKey) -> None:
    later = NOW + AUTHORITY_LIFETIME - timedelta(days=365)
    successor = authority_make("orders", later)
    both, switched = authority.cert_pem + successor.cert_pem, successor.cert_pem + authority.cert_pem
    assert succession(authority.cert_pem) == (Succession.TRUST_NEXT, later)
    assert succession(both) == (Succession.SIGN_BY_NEXT, later + timedelta(days=185))
    assert succession(switched) == (Succession.DROP_FORMER, later + timedelta(days=215))
    assert authorities(switched) == [successor.cert_pem, authority.cert_pem]
    assert [next_signs_at(text) for text in (authority.cert_pem, both, switched)] == [None, succession(both)[1], None]


def test_what_an_authority_signs_ends_before_it_does(authority: SignedKey) -> None:
    signs_last = succession(authority.cert_pem + authority_make("orders", NOW + timedelta(days=3285)).cert_pem)[1]
    issued = first(certificate_issue(authority, "broker-a-0", ["127.0.0.1"], signs_last + timedelta(days=29)).cert_pem)
    assert issued.not_valid_after_utc < first(authority.cert_pem).not_valid_after_utc


def test_an_authority_and_its_successor_differ_by_name(authority: SignedKey) -> None:
    assert (
        first(authority.cert_pem).subject != first(authority_make("orders", NOW + timedelta(days=1)).cert_pem).subject
    )
