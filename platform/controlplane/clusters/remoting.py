"""The one place where the control plane opens connections to a cluster's daemons, with its own credential.

It connects to addresses of the cluster's own rows only, whatever a name server says. Every request has a time limit
(HIGHWATER_REMOTING_TIMEOUT_MS), all that one Admin waits for daemons that do not answer another (HIGHWATER_REMOTING_PATIENCE_MS),
all that one web request or task waits for a cluster a third (waiting.py), and every error of the SDK becomes one of ours.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings

from controlplane.clusters.models import Cluster, ClusterState, Credential
from controlplane.clusters.own_addresses import broker_addresses
from controlplane.clusters.remarks import error_words
from controlplane.clusters.secrets import secret_decrypt
from controlplane.clusters.states import state_word
from controlplane.clusters.tls import cluster_tls
from controlplane.clusters.waiting import wait_budget
from controlplane.common.errors import BrokerRefused, BrokerUnreachable, ClusterSlow, Conflict, InvalidInput
from controlplane.common.logging import get_logger
from controlplane.common.places import Places
from controlplane.common.sentences import say
from highwater import Admin, Credentials, Producer, WaitBudget
from highwater.errors import BrokerError, HighwaterError, MessageIllegalError

GATEWAY_GROUP = "HIGHWATER_CONSOLE"
_log = get_logger("controlplane.clusters")
_places = Places(settings.HIGHWATER_WEB_THREADS)


def control_credentials(cluster: Cluster) -> Credentials:
    """Return the control plane's own credential of this cluster."""
    return credentials_of(cluster.credentials.get(is_control=True))


def credentials_of(row: Credential) -> Credentials:
    """Return a credential with its secret."""
    return Credentials(row.access_key, secret_decrypt(row.secret_encrypted))


@contextmanager
def cluster_admin(cluster: Cluster, *, timeout_ms: int | None = None) -> Iterator[Admin]:
    """Yield an Admin of a running cluster. A daemon that left one of its requests unanswered is not asked again by it.

    Raises Conflict when the cluster isn't running, BrokerRefused when a daemon answers with an error,
    BrokerUnreachable when none answers, or when too many requests wait for the tenant's clusters, ClusterSlow when this web
    request or task has waited for the cluster as long as it may.
    """
    require_running(cluster)
    with (
        cluster_place(cluster),
        remoting_errors(cluster),
        Admin(
            cluster.name_server_addresses,
            credentials=control_credentials(cluster),
            timeout_ms=timeout_ms or settings.HIGHWATER_REMOTING_TIMEOUT_MS,
            use_tls=cluster_tls(cluster) or False,
            only_addresses=broker_addresses(cluster),
            patience_ms=settings.HIGHWATER_REMOTING_PATIENCE_MS,
            wait_budget=wait_budget(cluster.pk),
        ) as admin,
    ):
        yield admin


@contextmanager
def cluster_producer(cluster: Cluster, *, retries: int = 2) -> Iterator[Producer]:
    """Yield a Producer of a running cluster; raises as `cluster_admin`. Without `retries` it sends nothing twice."""
    require_running(cluster)
    with (
        cluster_place(cluster),
        remoting_errors(cluster),
        Producer(
            namesrv=cluster.name_server_addresses,
            group=GATEWAY_GROUP,
            retry_times_when_send_failed=retries,
            credentials=control_credentials(cluster),
            timeout_ms=settings.HIGHWATER_REMOTING_TIMEOUT_MS,
            use_tls=cluster_tls(cluster) or False,
            only_addresses=broker_addresses(cluster),
            wait_budget=wait_budget(cluster.pk),
        ) as producer,
    ):
        yield producer


@contextmanager
def cluster_place(cluster: Cluster) -> Iterator[None]:
    """Keep one of the process' places for who waits for clusters; raises BrokerUnreachable when there is none."""
    with _places.place(cluster.tenant_id, cluster.pk) as had:
        if not had:
            raise BrokerUnreachable(
                say("Other requests are waiting for clusters that answer slowly. Nothing was sent."),
                code="cluster_busy",
                hint=say("Try again in a few seconds. If this goes on, look at the health of the tenant's clusters."),
            )
        yield


@contextmanager
def slow_cluster_logged() -> Iterator[None]:
    """Log that a look at a cluster ended early because its daemons answer too slowly: the next look comes by itself."""
    try:
        yield
    except ClusterSlow as error:
        _log.warning("look ended early", cluster=error.extra["cluster"], error=error.message)


def require_running(cluster: Cluster) -> None:
    """Raise Conflict unless the cluster is running."""
    if cluster.state == ClusterState.SUSPENDED and cluster.stopped_at is not None:
        raise Conflict(
            say(
                "The cluster is suspended: %(who)s stopped it at %(time)s UTC.",
                who=cluster.stopped_by,
                time=f"{cluster.stopped_at:%Y-%m-%d %H:%M}",
            ),
            code="cluster_not_running",
            hint=say("Resume it first: POST …/resume/."),
        )
    if cluster.state == ClusterState.DELETION_PENDING and cluster.delete_at is not None:
        raise Conflict(
            say("The cluster will be deleted at %(time)s UTC.", time=f"{cluster.delete_at:%Y-%m-%d %H:%M}"),
            code="cluster_not_running",
            hint=say("Take the deletion back first: POST …/restore/."),
        )
    if cluster.state != ClusterState.RUNNING:
        raise Conflict(
            say("The cluster is %(state)s, not running.", state=state_word(cluster.state)),
            code="cluster_not_running",
            hint=say("Wait until its operation has finished."),
        )


def cluster_slow(cluster: Cluster, budget: WaitBudget) -> ClusterSlow:
    """Return the error that says that `budget` is spent."""
    return ClusterSlow(
        say(
            "The cluster %(cluster)s answers too slowly: its brokers and name servers took all of the %(seconds)s s that"
            " may be waited for them here.",
            cluster=cluster.slug,
            seconds=f"{budget.total_ms / 1000:g}",
        ),
        hint=say("Look at the cluster's health, and try again."),
        extra={"cluster": cluster.slug},
    )


@contextmanager
def remoting_errors(cluster: Cluster | None = None) -> Iterator[None]:
    """Translate the SDK's errors where they arise. Of a `cluster` for which all time for waiting is spent, it says that."""
    try:
        yield
    except BrokerError as error:
        raise BrokerRefused(
            say("The cluster refused: %(answer)s", answer=error_words(error)),
            extra={"response_code": int(error.response_code), "response_name": error.code},
        ) from error
    except MessageIllegalError as error:  # refused here: it never left
        raise InvalidInput(say("This message can't be sent: %(error)s.", error=error_words(error))) from error
    except HighwaterError as error:
        budget = None if cluster is None else wait_budget(cluster.pk)
        if cluster is not None and budget is not None and budget.is_spent:
            raise cluster_slow(cluster, budget) from error
        raise BrokerUnreachable(
            say("The cluster does not answer: %(error)s", error=error_words(error)),
            hint=say("Look at the cluster's health, and try again."),
        ) from error
