"""Mail to several people, each in their own language."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from datetime import timedelta
from smtplib import SMTPException

from django.conf import settings
from django.core.mail import EmailMessage, get_connection
from django.utils import timezone, translation

from controlplane.common.models import MailTaken

# No one tries a mail again for so long.
_KEPT_FOR = timedelta(days=7)


def mail_each(mail: str, receivers: Mapping[str, str], words: Callable[[], tuple[str, str]]) -> None:
    """Mail all addresses, one message for each language among them.

    `mail` names the mail in at most 64 characters: who tries it again by this name mails only those whose message no mail server
    took. `receivers` has each address's language; empty or one that the console is not in: English. `words` returns subject and
    text in the language that is active when it is called.

    Raises OSError where a message was not taken; the others were sent nevertheless.
    """
    addresses: dict[str, list[str]] = defaultdict(list)
    for address, language in receivers.items():
        addresses[language if language in dict(settings.LANGUAGES) else settings.LANGUAGE_CODE].append(address)
    before = MailTaken.objects.filter(mail=mail)
    taken: list[str] = []
    refused: OSError | None = None
    for language in sorted(addresses.keys() - set(before.values_list("language", flat=True))):
        with translation.override(language):
            message = EmailMessage(*words(), None, sorted(addresses[language]))
        try:
            # A connection for each: one that refused a message may take no other.
            get_connection().send_messages([message])
            taken.append(language)
        except OSError as error:
            refused = error
            if not isinstance(error, SMTPException):  # there is no mail server now
                break
    if refused is None:
        before.delete()
        return
    MailTaken.objects.filter(taken_at__lt=timezone.now() - _KEPT_FOR).delete()
    MailTaken.objects.bulk_create(
        [MailTaken(mail=mail, language=language) for language in taken], ignore_conflicts=True
    )
    raise refused
