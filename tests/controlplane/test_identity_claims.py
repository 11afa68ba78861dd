"""Whose e-mail address a log-in has, whether the provider confirmed it, and which keys may sign."""

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from controlplane.accounts.identity_claims import IdentityRefused, id_token_claims, with_user_info
from controlplane.accounts.identity_settings import IdentityProvider
from tests.support.identity_provider import Provider

TOKEN = {"sub": "1", "email_verified": True}


def test_an_address_of_user_info_is_not_confirmed_by_the_id_token() -> None:
    assert with_user_info(TOKEN, {"sub": "1", "email": "a@example.com"}) == {"sub": "1", "email": "a@example.com"}


def test_an_address_of_user_info_is_confirmed_by_user_info() -> None:
    info = {"sub": "1", "email": "a@example.com", "email_verified": True}
    assert with_user_info({"sub": "1", "email_verified": False}, info) == info


def test_without_an_address_user_info_confirms_nothing() -> None:
    token = {"sub": "1", "email": "a@example.com"}
    assert with_user_info(token, {"sub": "1", "email_verified": True}) == token


@pytest.mark.filterwarnings("ignore:The RSA key is 1024 bits")  # that is what is tested
@pytest.mark.parametrize("bits", [1024, 2048])
def test_a_token_is_signed_by_a_key_of_2048_bits_or_more(bits: int) -> None:
    provider = Provider("https://id.example", key=rsa.generate_private_key(65537, bits))
    given = (provider.id_token("n"), provider.keys(), IdentityProvider(**provider.setting()), "n")
    if bits >= 2048:
        assert id_token_claims(*given)["sub"] == provider.subject
    else:
        with pytest.raises(IdentityRefused, match="1024 bits"):
            id_token_claims(*given)
