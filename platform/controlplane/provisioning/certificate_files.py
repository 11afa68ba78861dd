"""Makes a cluster's authority and its successors, and gives daemons certificates: at their birth, and again in time.

Daemons read their files again by themselves, so that no one restarts. A certificate is not kept anywhere but in its
daemon's folder: a daemon that needs one again gets a fresh one.
"""

from datetime import datetime, timedelta

from celery.exceptions import SoftTimeLimitExceeded
from django.db import connection, transaction

from controlplane.clusters.certificates import (
    FORMER_KEPT,
    SignedKey,
    Succession,
    authorities,
    authority_make,
    certificate_issue,
    renews_at,
    succession,
    successor_make,
)
from controlplane.clusters.models import Cluster, ClusterState
from controlplane.clusters.secrets import secret_decrypt, secret_encrypt
from controlplane.common.logging import get_logger
from controlplane.provisioning.authority import authorities_go_on
from controlplane.provisioning.drivers.base import Driver
from controlplane.provisioning.processes import CA_FILE, CERT_FILE, KEY_FILE, cluster_daemons

_log = get_logger("controlplane.certificates")


def authority_ensure(cluster: Cluster, now: datetime) -> None:
    """Give the cluster its authority if it has none; two workers agree on one. The row is read again."""
    if not cluster.tls_ca:
        made = authority_make(cluster.slug, now)
        Cluster.objects.filter(pk=cluster.pk, tls_ca="").update(
            tls_ca=made.cert_pem, tls_ca_key_encrypted=secret_encrypt(made.key_pem), updated_at=now
        )
        cluster.refresh_from_db()


def authority_step(cluster: Cluster, step: Succession, overlap: timedelta | None, now: datetime) -> None:
    """Take this step of the authority's succession, unless it is taken already. Two workers take it once. The row is read again;
    the daemons learn of it by `certificates_write`.

    `overlap` is how long both are trusted before the next one signs; None: until the present one's end demands it.
    """
    if cluster.tls_ca_key_encrypted is None or succession(cluster.tls_ca)[0] is not step:
        return
    known = authorities(cluster.tls_ca)
    changes: dict[str, object]
    if step is Succession.TRUST_NEXT:
        made = successor_make(cluster.tls_ca, cluster.slug, now)
        changes = {
            "tls_ca": known[0] + made.cert_pem,
            "tls_next_key_encrypted": secret_encrypt(made.key_pem),
            "tls_ca_step_at": None if overlap is None else now + overlap,
        }
    elif step is Succession.SIGN_BY_NEXT:
        changes = {
            "tls_ca": known[1] + known[0],
            "tls_ca_key_encrypted": cluster.tls_next_key_encrypted,
            "tls_next_key_encrypted": None,
            "tls_ca_step_at": now + FORMER_KEPT,
        }
    else:
        changes = {"tls_ca": known[0], "tls_ca_step_at": None}
    # Due until the files are written, so that a failure there is made up for.
    mine = Cluster.objects.filter(pk=cluster.pk, tls_ca=cluster.tls_ca)
    mine.update(**changes, tls_renew_at=now, updated_at=now)
    cluster.refresh_from_db()
    _log.info("the authority's succession goes on", cluster=str(cluster), step=step.value)


def certificates_write(cluster: Cluster, driver: Driver, now: datetime) -> None:
    """Give each daemon a fresh certificate; does nothing for a cluster without an authority.

    The row is read again, and two workers write one after the other: neither takes the succession back in the daemons' files, nor
    leaves one's key beside the other's certificate.
    """
    with transaction.atomic():
        certificates_lock(cluster)
        cluster.refresh_from_db()
        if not cluster.tls_ca or cluster.tls_ca_key_encrypted is None:
            return
        authority = SignedKey(authorities(cluster.tls_ca)[0], secret_decrypt(cluster.tls_ca_key_encrypted))
        renew_at = None
        for daemon in cluster_daemons(cluster, driver):
            issued = certificate_issue(authority, daemon.process.name, [daemon.row.host], now)
            folder = next(iter(daemon.files)).rpartition("/")[0]
            driver.files_write(
                cluster.pk,
                {
                    # A daemon that shows the certificate has read the others, which come first. One that reads between the key and
                    # the certificate keeps its former pair, and looks again.
                    f"{folder}/{CA_FILE}": cluster.tls_ca,
                    f"{folder}/{KEY_FILE}": issued.key_pem,
                    f"{folder}/{CERT_FILE}": issued.cert_pem,
                },
            )
            renew_at = min(renews_at(issued.cert_pem), succession(cluster.tls_ca, cluster.tls_ca_step_at)[1])
        Cluster.objects.filter(pk=cluster.pk).update(tls_renew_at=renew_at)


def certificates_renew(driver: Driver, now: datetime) -> int:
    """Renew certificates of every running cluster whose time has come, and have its authority succeeded; returns how many clusters
    got their certificates.
    """
    due = Cluster.objects.filter(state=ClusterState.RUNNING, tls_renew_at__lte=now)
    # In any order: one that takes this task's time in vain does not keep the same ones waiting each hour.
    renewed = sum(_renew(cluster, driver, now) for cluster in due.order_by("?"))
    authorities_go_on(now)
    return renewed


def _renew(cluster: Cluster, driver: Driver, now: datetime) -> bool:
    """Return whether the cluster got its certificates. One that doesn't leaves the others theirs."""
    try:
        certificates_write(cluster, driver, now)
    except SoftTimeLimitExceeded:
        raise
    except Exception:
        # A key that can't be read, a host that is away: there is a month left, and the next hour's look tries again.
        _log.exception("certificates not renewed", cluster=str(cluster))
        return False
    return True


def certificates_lock(cluster: Cluster) -> None:
    """No one else writes certificates of this cluster until the transaction's end.

    A lock of its own, not the cluster's row: health and steps write that one meanwhile.
    """
    with connection.cursor() as cursor:
        cursor.execute("select pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"certificates of {cluster.pk}"])
