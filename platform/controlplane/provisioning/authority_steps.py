"""The steps of an authority's renewal. The next one signs nothing, and the former one is not dropped, before every daemon has
shown in a handshake that it uses the files of the step before. Each may run twice.
"""

from datetime import datetime, timedelta

from controlplane.clusters.certificates import Succession
from controlplane.clusters.tls import authority_proofs
from controlplane.common.sentences import say
from controlplane.provisioning.authority import STEP, overlap_of
from controlplane.provisioning.certificate_files import authority_step, certificates_write
from controlplane.provisioning.errors import StepNotReady
from controlplane.provisioning.probe import handshake_problem
from controlplane.provisioning.processes import cluster_daemons
from controlplane.provisioning.steps import Step, StepContext, daemon_noun

# Daemons look at their files once a second.
_LOOK_AGAIN_S = 1.0


def ca_refresh(context: StepContext) -> None:
    """Write what holds now: the daemons have the files of the step before."""
    certificates_write(context.cluster, context.driver, context.now)


def ca_look(context: StepContext) -> None:
    """Wait until every daemon shows a certificate of the authority that signs, and takes one of each that is to be trusted."""
    _look(context)


def _look(context: StepContext, issued_from: datetime | None = None) -> None:
    proofs = authority_proofs(context.cluster)
    for daemon in cluster_daemons(context.cluster, context.driver):
        if daemon.row.port is None:
            continue
        problem = handshake_problem(daemon.row.host, daemon.row.port, proofs, issued_from)
        if problem:
            raise StepNotReady(
                say(
                    "%(daemon)s does not use its certificate yet: %(problem)s Nothing more is changed before it does.",
                    daemon=daemon_noun(daemon),
                    problem=problem,
                ),
                delay_s=_LOOK_AGAIN_S,
            )


def ca_make(context: StepContext) -> None:
    """Make the next authority, which is trusted from now on and signs nothing yet."""
    _take(context, Succession.TRUST_NEXT)


def ca_sign(context: StepContext) -> None:
    """Let the next authority sign."""
    _take(context, Succession.SIGN_BY_NEXT)


def ca_drop(context: StepContext) -> None:
    """Trust the former authority no more."""
    _take(context, Succession.DROP_FORMER)


def ca_write(context: StepContext) -> None:
    """Write what holds from now on."""
    # A certificate tells whole seconds: these are later than all before them.
    certificates_write(context.cluster, context.driver, _rounded_up(context.now))


def ca_verify(context: StepContext) -> None:
    """Wait until every daemon uses what was written: whom it trusts no more is shown by no handshake, but it reads all at once."""
    began_at = context.operation.steps.get(name=ca_write.__name__).started_at
    _look(context, None if began_at is None else _rounded_up(began_at))


def _rounded_up(moment: datetime) -> datetime:
    return moment.replace(microsecond=0) + timedelta(seconds=1)


def _take(context: StepContext, step: Succession) -> None:
    # A retry of an operation whose step was taken goes on after it.
    if context.operation.metadata[STEP] == step:
        authority_step(context.cluster, step, overlap_of(context.operation), context.now)


STEPS: dict[str, Step] = {
    step.__name__: step for step in (ca_refresh, ca_look, ca_make, ca_sign, ca_drop, ca_write, ca_verify)
}
