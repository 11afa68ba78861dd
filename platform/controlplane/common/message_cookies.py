"""What a page tells once, as after a form: kept in a cookie whose name is a setting."""

from django.conf import settings
from django.contrib.messages.storage.cookie import CookieStorage
from django.contrib.messages.storage.fallback import FallbackStorage
from django.contrib.messages.storage.session import SessionStorage


class MessageCookieStorage(CookieStorage):
    """Django's, under another name."""

    cookie_name = settings.HIGHWATER_MESSAGES_COOKIE_NAME


class MessageStorage(FallbackStorage):
    """The cookie, and the session for what is too long for one."""

    storage_classes = (MessageCookieStorage, SessionStorage)
