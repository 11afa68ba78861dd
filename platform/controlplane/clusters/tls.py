"""TLS of the control plane's own connections to a cluster's daemons."""

import ssl
import time
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from controlplane.clusters.certificates import SignedKey, authorities, certificate_issue
from controlplane.clusters.models import Cluster
from controlplane.clusters.secrets import secret_decrypt
from mqwire.tls import TlsFiles, client_context

# Far below a certificate's lifetime: no process ever shows one that is over.
_RENEWED_EVERY_S = 24 * 3600


def cluster_tls(cluster: Cluster) -> ssl.SSLContext | None:
    """Return a context that trusts this cluster's daemons alone and shows a certificate of its CA; None: it has no TLS."""
    if not cluster.tls_ca or cluster.tls_ca_key_encrypted is None:
        return None
    day = int(time.monotonic() // _RENEWED_EVERY_S)
    return _context(cluster.tls_ca, authorities(cluster.tls_ca)[0], bytes(cluster.tls_ca_key_encrypted), day)


def authority_proofs(cluster: Cluster) -> list[ssl.SSLContext]:
    """Return contexts for handshakes that only a daemon gets through that shows what the present CA signed, and trusts both.

    Each trusts the CA that signs alone, and shows a certificate of one whose key is known. They stop at TLS 1.2, in which a
    handshake ends only after the daemon has taken that certificate.
    """
    signing, *others = authorities(cluster.tls_ca)
    signers = [(signing, cluster.tls_ca_key_encrypted), *((other, cluster.tls_next_key_encrypted) for other in others)]
    contexts = []
    for cert_pem, key_encrypted in signers:
        if key_encrypted is not None:
            context = _made(signing, cert_pem, bytes(key_encrypted))
            context.maximum_version = ssl.TLSVersion.TLSv1_2
            contexts.append(context)
    return contexts


@lru_cache(maxsize=1024)
def _context(ca_pem: str, signer_pem: str, key_encrypted: bytes, day: int) -> ssl.SSLContext:
    return _made(ca_pem, signer_pem, key_encrypted)


def _made(ca_pem: str, signer_pem: str, key_encrypted: bytes) -> ssl.SSLContext:
    authority = SignedKey(signer_pem, secret_decrypt(key_encrypted))
    issued = certificate_issue(authority, "control-plane", [], datetime.now(UTC))
    with TemporaryDirectory(prefix="highwater-tls-") as folder:  # mode 0700; OpenSSL reads keys from files only
        cert, key, ca = (Path(folder, name) for name in ("tls.pem", "tls.key", "ca.pem"))
        cert.write_text(issued.cert_pem)
        key.write_text(issued.key_pem)
        ca.write_text(ca_pem)
        return client_context(TlsFiles(str(cert), str(key), str(ca)))
