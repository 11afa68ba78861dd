"""TLS with a cluster, as the SDK takes it."""

from __future__ import annotations

import ssl

from spark_etl.errors import OptionError


def tls_of(use_tls: bool, tls_ca: str, name: str) -> bool | ssl.SSLContext:
    """False for plain text, True for the machine's own authorities, or a context that trusts `tls_ca` alone: PEM text, or a file.

    Made where it is used: it can't be sent to another process. Raises OptionError that says what is wrong with `name`.
    """
    if not tls_ca:
        return use_tls
    is_text = tls_ca.startswith("-----BEGIN")
    try:
        if is_text:
            return ssl.create_default_context(cadata=tls_ca)
        return ssl.create_default_context(cafile=tls_ca)
    except (OSError, ValueError) as error:  # an unusable PEM is an SSLError, which is an OSError
        what = "its text" if is_text else f"the file {tls_ca}"
        raise OptionError(
            f"{name} can't be used: {what} is no certificate that can be read ({error}).",
            "give the cluster's tls_ca from the API, as text or as a file that every executor has.",
        ) from error
