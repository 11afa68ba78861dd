"""Runs one step: claim it, do it, write how it ended. Called by the Celery task; tests call it directly."""

import uuid
from enum import StrEnum

from celery.exceptions import SoftTimeLimitExceeded
from django.db import InterfaceError, OperationalError, close_old_connections
from django.utils import timezone

from controlplane.clusters.models import OperationStep
from controlplane.clusters.operations import (
    StepClaim,
    step_cancel,
    step_claim,
    step_complete,
    step_fail,
    step_is_overdue,
    step_wait,
)
from controlplane.clusters.waiting import waits_unbounded
from controlplane.clusters.workflows import step_title
from controlplane.common.logging import get_logger
from controlplane.common.sentences import say
from controlplane.provisioning.drivers.base import Driver
from controlplane.provisioning.errors import DriverError, StepCancelled, StepFailed, StepNotReady
from controlplane.provisioning.lease import claim_kept
from controlplane.provisioning.steps import STEPS, StepContext

_log = get_logger("controlplane.provisioning")

# PostgreSQL was restarted, or cut off. Nothing is wrong with the step.
_DATABASE_AWAY = (OperationalError, InterfaceError)


class Outcome(StrEnum):
    """How a run ended. NOT_CLAIMED: another worker has the step, or it isn't its turn. LOST: another took over
    meanwhile, or will, because the database was away.
    """

    NOT_CLAIMED = "not_claimed"
    COMPLETED = "completed"
    WAITING = "waiting"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"


def operation_step_run(step_id: uuid.UUID, driver: Driver) -> Outcome:
    """Run the step if it can be claimed. Never raises for what the step itself does: the row says it."""
    claim = step_claim(step_id)
    if claim is None:
        return Outcome.NOT_CLAIMED
    try:
        with claim_kept(claim), waits_unbounded():
            return _run_claimed(claim, driver)
    except _DATABASE_AWAY as error:
        # Whatever was written or not: the claim ends by itself, and the step is run again.
        _log.warning("the database is away", step=str(step_id), error=str(error))
        close_old_connections()
        return Outcome.LOST


def _run_claimed(claim: StepClaim, driver: Driver) -> Outcome:
    step = OperationStep.objects.select_related("operation").get(pk=claim.step_id)
    log = _log.bind(step=step.name, operation=str(step.operation_id), attempt=step.attempts)
    try:
        context = StepContext.of(step, driver)
        STEPS[step.name](context)
    except StepCancelled:
        return _if_written(step_cancel(claim), Outcome.CANCELLED)
    except StepFailed as failure:
        return _if_written(step_fail(claim, cause=failure.cause, hint=failure.hint), Outcome.FAILED)
    except (StepNotReady, DriverError, SoftTimeLimitExceeded, *_DATABASE_AWAY) as reason:
        if isinstance(reason, _DATABASE_AWAY):
            log.warning("the database went away", error=str(reason))
            close_old_connections()  # the next query opens a new one
        why = reason.message if isinstance(reason, StepNotReady) else str(reason)
        message = why or say("It ran out of time.")
        if step_is_overdue(step, timezone.now()):
            title = step_title(step.operation, step.name)
            cause = say("“%(title)s” took too long. %(message)s", title=title, message=message)
            return _if_written(step_fail(claim, cause=cause, hint=say("Retry the operation.")), Outcome.FAILED)
        delay_s = reason.delay_s if isinstance(reason, StepNotReady) else 2.0
        return _if_written(step_wait(claim, delay_s=delay_s, message=message), Outcome.WAITING)
    except Exception as error:
        log.exception("step broke")
        cause = say("An unexpected error: %(error)s", error=f"{type(error).__name__}: {error}")
        return _if_written(step_fail(claim, cause=cause, hint=say("Retry the operation.")), Outcome.FAILED)
    log.info("step completed")
    return _if_written(step_complete(claim), Outcome.COMPLETED)


def _if_written(written: bool, outcome: Outcome) -> Outcome:
    return outcome if written else Outcome.LOST
