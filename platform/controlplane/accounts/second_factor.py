"""The second factor: what django-allauth's parts do otherwise here, and its removal by an operator of the platform."""

from typing import Any, ClassVar

from allauth.account.models import EmailAddress
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.mfa.models import Authenticator
from allauth.mfa.signals import authenticator_added, authenticator_removed, authenticator_reset
from cryptography.fernet import Fernet, MultiFernet
from django.conf import settings
from django.db import transaction
from django.dispatch import receiver
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from controlplane.accounts.account_events import account_event_record
from controlplane.accounts.models import User
from controlplane.accounts.notices import factor_notice, notice_write
from controlplane.accounts.passkeys import passkey_place
from controlplane.common.encryption import derive_key


class SecondFactorAdapter(DefaultMFAAdapter):  # type: ignore[misc]  # untyped upstream
    """Keeps the secrets of apps and recovery codes encrypted: a copy of the database makes no codes."""

    error_messages: ClassVar = {
        **DefaultMFAAdapter.error_messages,
        "incorrect_code": gettext_lazy("That code or passkey does not work."),
        "unverified_email": gettext_lazy("First confirm your address, at E-mail addresses in the account menu."),
    }

    def get_totp_issuer(self) -> str:
        return "Highwater"

    def encrypt(self, text: str) -> str:
        return _cipher().encrypt(text.encode()).decode()

    def decrypt(self, encrypted_text: str) -> str:
        return _cipher().decrypt(encrypted_text.encode()).decode()

    def get_public_key_credential_rp_entity(self) -> dict[str, str]:
        """Return whose passkeys they are: of the public address, whatever Host a request names."""
        return {"id": passkey_place(settings.HIGHWATER_PUBLIC_URL).host, "name": "Highwater"}

    def generate_authenticator_name(self, user: User, type: str) -> str:  # upstream's name
        number = Authenticator.objects.filter(user=user, type=type).count() + 1
        return _("Passkey %(number)s") % {"number": number}


def address_is_unconfirmed(user: User) -> bool:
    """Return whether the account must confirm an address before it gets a second factor."""
    found: bool = EmailAddress.objects.filter(user_id=user.pk, verified=False).exists()
    return found


def second_factor_remove(*, actor: object, user: User) -> bool:
    """Take app, passkeys and recovery codes off an account; return whether there were any. The password stays."""
    with transaction.atomic():
        removed, _ = Authenticator.objects.filter(user=user).delete()
        if removed:
            account_event_record(actor=actor, action="second_factor.remove", user=user)
            notice_write("factors_removed", user)
    return bool(removed)


@receiver(authenticator_added, dispatch_uid="second_factor.add")
def _record_added(user: User, authenticator: Authenticator, **others: Any) -> None:
    _record("second_factor.add", user, authenticator)
    factor_notice("factor_added", user, str(authenticator.type))


@receiver(authenticator_removed, dispatch_uid="second_factor.remove")
def _record_removed(user: User, authenticator: Authenticator, **others: Any) -> None:
    _record("second_factor.remove", user, authenticator)
    factor_notice("factor_removed", user, str(authenticator.type))


@receiver(authenticator_reset, dispatch_uid="second_factor.reset")
def _record_reset(user: User, authenticator: Authenticator, **others: Any) -> None:
    _record("second_factor.reset", user, authenticator)
    factor_notice("factor_added", user, str(authenticator.type))


def _record(action: str, user: User, authenticator: Authenticator) -> None:
    account_event_record(actor=user, action=action, user=user, details={"kind": str(authenticator.type)})


def _cipher() -> MultiFernet:
    keys = (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)
    return MultiFernet([Fernet(derive_key(key, b"second factor")) for key in keys])
