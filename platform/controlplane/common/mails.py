"""Mail to several people, each in their own language."""

from collections import defaultdict
from collections.abc import Callable, Mapping

from django.conf import settings
from django.core.mail import EmailMessage, get_connection
from django.utils import translation


def mail_each(receivers: Mapping[str, str], words: Callable[[], tuple[str, str]]) -> None:
    """Mail all addresses, one message for each language among them. Raises OSError where no mail server takes them.

    `receivers` has each address's language; empty or one that the console is not in: English. `words` returns subject and text
    in the language that is active when it is called.
    """
    addresses: dict[str, list[str]] = defaultdict(list)
    for address, language in receivers.items():
        addresses[language if language in dict(settings.LANGUAGES) else settings.LANGUAGE_CODE].append(address)
    mails = []
    for language, to in sorted(addresses.items()):
        with translation.override(language):
            mails.append(EmailMessage(*words(), None, sorted(to)))
    get_connection().send_messages(mails)
