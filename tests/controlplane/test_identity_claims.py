"""Whose e-mail address a log-in has, and whether the provider confirmed it."""

from controlplane.accounts.identity_claims import with_user_info

TOKEN = {"sub": "1", "email_verified": True}


def test_an_address_of_user_info_is_not_confirmed_by_the_id_token() -> None:
    assert with_user_info(TOKEN, {"sub": "1", "email": "a@example.com"}) == {"sub": "1", "email": "a@example.com"}


def test_an_address_of_user_info_is_confirmed_by_user_info() -> None:
    info = {"sub": "1", "email": "a@example.com", "email_verified": True}
    assert with_user_info({"sub": "1", "email_verified": False}, info) == info


def test_without_an_address_user_info_confirms_nothing() -> None:
    token = {"sub": "1", "email": "a@example.com"}
    assert with_user_info(token, {"sub": "1", "email_verified": True}) == token
