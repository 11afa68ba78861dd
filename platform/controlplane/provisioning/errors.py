"""How a step ends other than well."""


class StepNotReady(Exception):
    """What the step waits for has not happened yet: look again after `delay_s`. The message says what it waits for."""

    def __init__(self, message: str, *, delay_s: float = 0.5) -> None:
        super().__init__(message)
        self.message = message
        self.delay_s = delay_s


class StepCancelled(Exception):
    """Its operation was cancelled, and ends here: nothing of it is under way."""


class StepFailed(Exception):
    """The step can't be done. `cause` and `hint` are shown to the tenant as they are."""

    def __init__(self, cause: str, *, hint: str = "") -> None:
        super().__init__(cause)
        self.cause = cause
        self.hint = hint


class DriverError(Exception):
    """The machinery that runs daemons (supervisord, an API server) refused or does not answer."""
