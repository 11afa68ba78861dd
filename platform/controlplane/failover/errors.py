"""What can be wrong with a promotion that is asked for."""

from typing import ClassVar

from controlplane.common.errors import ApplicationError, Unprocessable
from controlplane.common.sentences import say


class NotPromotable(Unprocessable):
    """The group or the candidate does not admit it now; the message says why."""

    code = "not_promotable"
    title: ClassVar[str] = say("Not promotable")


class NotPossible(Unprocessable):
    """A group that elects its leader does not admit the change now; the message says why."""

    code = "not_possible"
    title: ClassVar[str] = say("Not possible now")


class ConfirmationNeeded(ApplicationError):
    """The promotion may lose messages: `confirm` must be the group's name."""

    status = 409
    code = "confirmation_needed"
    title: ClassVar[str] = say("Confirmation needed")
