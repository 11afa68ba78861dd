"""Which alerts are silenced: one rule, for what is shown and for what is sent."""

from collections.abc import Iterable

from controlplane.alerts.models import Alert, AlertSilence


class Silences:
    """Silences that are not over, of one tenant or of several; an alert is among eight keys, however many silences there are."""

    def __init__(self, silences: Iterable[AlertSilence]) -> None:
        self._keys = {(one.tenant_id, one.cluster_id, one.kind, one.subject) for one in silences}

    def __bool__(self) -> bool:
        return bool(self._keys)

    def fit(self, alert: Alert) -> bool:
        """Whether one of them names the alert: its tenant, and its cluster, kind and subject where the silence names them."""
        if not self._keys:
            return False
        tenant_id = alert.cluster.tenant_id
        return any(
            (tenant_id, cluster, kind, subject) in self._keys
            for cluster in (None, alert.cluster_id)
            for kind in ("", alert.kind)
            for subject in ("", alert.subject)
        )
