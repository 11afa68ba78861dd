"""What a cluster that is started again needs of this app: that its leaders are known before anyone looks for lost ones."""

from controlplane.common.sentences import say
from controlplane.failover.sampling import cluster_sample
from controlplane.provisioning.errors import StepNotReady
from controlplane.provisioning.steps import Step, StepContext


def note_leaders(context: StepContext) -> None:
    """Write down who leads each group. What was sampled before the stop would be taken for a loss, and an epoch that began with
    the start for an election that cut clients off.
    """
    for view in cluster_sample(context.cluster, context.driver):
        if len(view.replicas) > 1 and view.master is None:
            raise StepNotReady(say("The group %(group)s has no master yet.", group=view.name))


STEPS: dict[str, Step] = {note_leaders.__name__: note_leaders}
