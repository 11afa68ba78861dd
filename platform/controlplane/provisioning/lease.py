"""Keeps a claim alive while its step is worked on, so that leases are short: a killed worker is found out within seconds."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings
from django.db import Error, connection

from controlplane.clusters.operations import StepClaim, claim_renew
from controlplane.common.logging import get_logger

_log = get_logger("controlplane.provisioning")
_JOIN_S = 10.0


@contextmanager
def claim_kept(claim: StepClaim) -> Iterator[None]:
    """Renew the claim from a thread of its own until the block ends; it goes with the process, however that ends.

    The first renewal comes after a quarter of the lease: most steps are over by then, and cost no second connection.
    """
    over = threading.Event()
    thread = threading.Thread(target=_renew_until, args=(claim, over), daemon=True, name="claim")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(_JOIN_S)


def _renew_until(claim: StepClaim, over: threading.Event) -> None:
    try:
        while not over.wait(settings.HIGHWATER_STEP_LEASE_S / 4):
            try:
                if not claim_renew(claim):
                    _log.info("the claim was taken over", step=str(claim.step_id))
                    return
            except Error as error:
                _log.warning("the claim could not be renewed", step=str(claim.step_id), error=str(error))
                connection.close()
    finally:
        connection.close()
