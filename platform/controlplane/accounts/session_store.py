"""Where sessions are kept (SESSION_ENGINE): Django's table, and whether a request's cookie named one of it."""

from typing import Any

from django.contrib.sessions.backends import db


class SessionStore(db.SessionStore):
    """`is_unknown`: the key that the browser sent names no session: it has ended, or its key was changed meanwhile."""

    is_unknown = False

    def load(self) -> dict[str, Any]:
        """Return the session's data; nothing where there is no such session."""
        data: dict[str, Any] = super().load()
        self.is_unknown = self.session_key is None
        return data
