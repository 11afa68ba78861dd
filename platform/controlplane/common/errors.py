"""One tree of errors that a user may see. Services raise them; the API and the console present them.

Anything else that escapes a service is our bug, and is answered with 500 without detail.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from controlplane.common.sentences import say


@dataclass(frozen=True, slots=True)
class FieldError:
    """What is wrong with one input. `field` is a dotted path in the request's body, empty for the whole."""

    field: str
    message: str
    code: str = "invalid"


class ApplicationError(Exception):
    """Root of the tree.

    `message` is a sentence for a person, `code` a stable word for programs, `status` the HTTP status, `hint` what
    to do next, `extra` more members of the problem object.
    """

    status: ClassVar[int] = 400
    code: str = "bad_request"
    title: ClassVar[str] = say("The request can't be carried out")

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        hint: str = "",
        errors: tuple[FieldError, ...] = (),
        extra: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code
        self.hint = hint
        self.errors = errors
        self.extra = extra or {}

    def __str__(self) -> str:
        return self.message


class InvalidInput(ApplicationError):
    """A value breaks a rule. `errors` names the fields."""

    code = "invalid_input"
    title: ClassVar[str] = say("Invalid input")

    @classmethod
    def for_field(cls, field: str, message: str, code: str = "invalid") -> "InvalidInput":
        """Return the error for one field."""
        return cls(message, errors=(FieldError(field, message, code),))


class NotAllowed(ApplicationError):
    """The actor may see the resource, but not do this to it."""

    status = 403
    code = "not_allowed"
    title: ClassVar[str] = say("Not allowed")


class FactorNeeded(NotAllowed):
    """A person may do this, and first has to give the second factor again."""

    code = "factor_needed"
    title: ClassVar[str] = say("Confirm with your second factor")


class NotFound(ApplicationError):
    """There is no such resource, or the actor may not know of it: both look alike."""

    status = 404
    code = "not_found"
    title: ClassVar[str] = say("Not found")


class LimitReached(ApplicationError):
    """The tenant or user has as much as it may have."""

    status = 409
    code = "over_limit"
    title: ClassVar[str] = say("Limit reached")


class Conflict(ApplicationError):
    """The resource's state does not admit this, or a name is taken."""

    status = 409
    code = "conflict"
    title: ClassVar[str] = say("Conflict")


class PreconditionFailed(ApplicationError):
    """The resource changed since the client read it (If-Match)."""

    status = 412
    code = "precondition_failed"
    title: ClassVar[str] = say("Precondition failed")


class Unprocessable(ApplicationError):
    """Understood, valid, and still not possible."""

    status = 422
    code = "unprocessable"
    title: ClassVar[str] = say("Unprocessable")


class TooOften(ApplicationError):
    """Asked for more often than is good for others; `retry_after_s` says when to ask again."""

    status = 429
    code = "too_often"
    title: ClassVar[str] = say("Too many requests")

    def __init__(self, message: str, *, retry_after_s: int, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s


class BrokerRefused(ApplicationError):
    """A broker or name server answered with an error."""

    status = 502
    code = "broker_refused"
    title: ClassVar[str] = say("The cluster refused the request")


class BrokerUnreachable(ApplicationError):
    """No answer from the cluster within the time limit; whether it acted is unknown."""

    status = 503
    code = "broker_unreachable"
    title: ClassVar[str] = say("The cluster does not answer")


class ClusterSlow(BrokerUnreachable):
    """The cluster's daemons took all the time that one request or task may wait for them. Whether the last one acted is unknown."""

    code = "cluster_slow"
    title: ClassVar[str] = say("The cluster answers too slowly")
