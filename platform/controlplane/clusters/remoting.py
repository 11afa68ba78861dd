"""The one place where the control plane opens connections to a cluster's daemons, with its own credential.

It connects to addresses of the cluster's own rows only, whatever a name server says. Every request has a time limit
(HIGHWATER_REMOTING_TIMEOUT_MS), all that one Admin waits for daemons that do not answer another (HIGHWATER_REMOTING_PATIENCE_MS),
and every error of the SDK becomes one of ours.
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
from controlplane.common.errors import BrokerRefused, BrokerUnreachable, Conflict, InvalidInput
from controlplane.common.places import Places
from controlplane.common.sentences import say
from highwater import Admin, Credentials, Producer
from highwater.errors import BrokerError, HighwaterError, MessageIllegalError

GATEWAY_GROUP = "HIGHWATER_CONSOLE"
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
    BrokerUnreachable when none answers, or when too many requests wait for the tenant's clusters.
    """
    require_running(cluster)
    with (
        cluster_place(cluster),
        remoting_errors(),
        Admin(
            cluster.name_server_addresses,
            credentials=control_credentials(cluster),
            timeout_ms=timeout_ms or settings.HIGHWATER_REMOTING_TIMEOUT_MS,
            use_tls=cluster_tls(cluster) or False,
            only_addresses=broker_addresses(cluster),
            patience_ms=settings.HIGHWATER_REMOTING_PATIENCE_MS,
        ) as admin,
    ):
        yield admin


@contextmanager
def cluster_producer(cluster: Cluster, *, retries: int = 2) -> Iterator[Producer]:
    """Yield a Producer of a running cluster; raises as `cluster_admin`. Without `retries` it sends nothing twice."""
    require_running(cluster)
    with (
        cluster_place(cluster),
        remoting_errors(),
        Producer(
            namesrv=cluster.name_server_addresses,
            group=GATEWAY_GROUP,
            retry_times_when_send_failed=retries,
            credentials=control_credentials(cluster),
            timeout_ms=settings.HIGHWATER_REMOTING_TIMEOUT_MS,
            use_tls=cluster_tls(cluster) or False,
            only_addresses=broker_addresses(cluster),
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


@contextmanager
def remoting_errors() -> Iterator[None]:
    """Translate the SDK's errors where they arise."""
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
        raise BrokerUnreachable(
            say("The cluster does not answer: %(error)s", error=error_words(error)),
            hint=say("Look at the cluster's health, and try again."),
        ) from error
