"""Sequences of requests along the description's links: what was made is read, changed, acted on and deleted, in any order.

Each sequence begins with the same rows. Long work is done between the requests, by the workers' own code, on a driver and
brokers in memory. HIGHWATER_API_SEQUENCES=200 for a long search.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import schemathesis
from django.core.cache import cache
from django.core.signals import request_finished, request_started
from django.db import close_old_connections, transaction
from hypothesis import HealthCheck, Phase, reject, settings
from hypothesis.strategies import SearchStrategy, one_of, sampled_from
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.generation.stateful.state_machine import StepInput, StepOutput
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    ensure_resource_availability,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    use_after_free,
)

from controlplane.accounts.operators import OPERATE_SCOPE
from controlplane.billing.closing import issue_time
from controlplane.billing.invoices import invoices_issue
from controlplane.billing.periods import Month
from controlplane.clusters.models import OperationState, OperationStep
from controlplane.insight.models import Job, JobRunState
from controlplane.provisioning.runner import operation_step_run
from controlplane.tenants.token_services import ALL_SCOPES, api_token_issue
from controlplane.wsgi import application
from tests.controlplane.billing_world import make_plan, make_run, subscribe, use
from tests.controlplane.brokers_twin import brokers_that_answer
from tests.controlplane.driver_twin import DriverTwin
from tests.controlplane.world import SYSTEM, World, make_world

SEQUENCES = int(os.environ.get("HIGHWATER_API_SEQUENCES", "8"))
STEPS = 30
SETTINGS = settings(
    max_examples=2,
    stateful_step_count=STEPS,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
KNOWN = {"tenant": "acme", "cluster": "orders", "group": "broker-a"}

schema = schemathesis.openapi.from_wsgi("/api/v1/schema/?format=json", application)
schema.config.generation.update(modes=[GenerationMode.POSITIVE])  # what breaks the schema is the other file's business


@schema.hook
def map_path_parameters(context: Any, path_parameters: dict[str, Any] | None) -> dict[str, Any] | None:
    """Begin at something that exists; links go on from there."""
    return path_parameters and {name: KNOWN.get(name, value) for name, value in path_parameters.items()}


@schema.hook
def before_generate_body(context: Any, strategy: SearchStrategy[Any]) -> SearchStrategy[Any]:
    """Take the description's example as often as something made up, so that there is something to go on from."""
    content = context.operation.definition.raw["requestBody"]["content"].get("application/json", {})
    name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
    examples = schema.raw_schema["components"]["schemas"].get(name, {}).get("examples", [])
    return one_of(sampled_from(examples), strategy) if examples else strategy


Machine: Any = schema.as_state_machine()


class Sequence(Machine):  # type: ignore[misc]  # made at run time, of the description
    """One sequence. Whatever it did to the rows is undone at its end."""

    driver: Callable[[], DriverTwin]
    followed: ClassVar[set[str]] = set()  # which operations were done to something that another answer had named
    is_simplest: ClassVar[bool]

    def setup(self) -> None:
        self.rows: transaction.Atomic | None = None
        self.headers: dict[str, str] = {}

    def before_call(self, case: Any) -> None:
        """Make the rows at the first step: machines are made that take none.

        Hypothesis's first proposal, the simplest, would be one operation 30 times, and half of all requests: it ends here.
        """
        if Sequence.is_simplest:
            Sequence.is_simplest = False
            reject()
        cache.clear()  # the rate limit is another test's business
        if not self.headers:
            self.headers = self._rows_made()

    def _rows_made(self) -> dict[str, str]:
        self.rows = transaction.atomic()
        self.rows.__enter__()
        world = make_world()
        world.alice.is_staff = True
        world.alice.save()
        make_invoice_and_runs(world)
        scopes = (*ALL_SCOPES, OPERATE_SCOPE)
        issued = api_token_issue(
            actor=SYSTEM, tenant=world.acme, name="sequence", role="owner", scopes=scopes, user=world.alice
        )
        self.workers_driver = type(self).driver()
        return {"Authorization": f"Bearer {issued.text}"}

    def teardown(self) -> None:
        if self.rows is not None:
            transaction.set_rollback(True)
            self.rows.__exit__(None, None, None)

    def step(self, input: StepInput) -> StepOutput | None:
        """Take the step, unless the answer that it follows has no name for it: of an empty list, nothing is read."""
        parameters = [] if input.transition is None else list(input.transition.parameters.values())
        if len(input.applied_parameters) < sum(map(len, parameters)):
            return None
        output: StepOutput = super().step(input)
        if input.transition is not None and output.response.status_code < 300:
            self.followed.add(input.case.operation.label)
        return output

    def get_call_kwargs(self, case: Any) -> dict[str, Any]:
        return {"headers": self.headers}

    def after_call(self, response: Any, case: Any) -> None:
        super().after_call(response, case)
        for step in OperationStep.objects.filter(operation__state=OperationState.IN_PROGRESS).order_by("position"):
            operation_step_run(step.pk, self.workers_driver)

    def validate_response(self, response: Any, case: Any, **options: Any) -> None:
        case.validate_response(
            response,
            checks=[
                _no_error_of_ours,
                content_type_conformance,
                response_headers_conformance,
                response_schema_conformance,
                status_code_conformance,
                _what_is_deleted_is_gone,
                ensure_resource_availability,
            ],
            recorder=self.recorder,
        )


def make_invoice_and_runs(world: World) -> None:
    """What Spark's jobs leave: a run that completed, one that failed, and October's invoice."""
    plan = make_plan()
    subscribe(world.acme, plan)
    use(world.cluster, Month(2026, 10).start, "1.5", price=plan.prices.get())
    due = issue_time(Month(2026, 10))
    make_run(until=due)
    make_run(JobRunState.FAILED, Job.LAG_ANALYTICS)
    assert invoices_issue(due)


def _no_error_of_ours(context: Any, response: Any, case: Any) -> bool | None:
    """503 is the cluster that does not answer: the brokers in memory know few requests."""
    return True if response.status_code == 503 else not_a_server_error(context, response, case)


def _what_is_deleted_is_gone(context: Any, response: Any, case: Any) -> bool | None:
    """A window of maintenance is cancelled by DELETE, and stays to be read as cancelled."""
    kept = case.operation.definition.raw["operationId"] == "maintenance_get"
    return None if kept and response.json().get("state") == "cancelled" else use_after_free(context, response, case)


def test_no_sequence_of_requests_breaks_anything(db: None, tmp_path: Path) -> None:
    Sequence.driver = lambda: DriverTwin(tmp_path)
    for signal in (
        request_started,
        request_finished,
    ):  # as Django's own test client: requests end inside the test's transaction
        signal.disconnect(close_old_connections)
    try:
        with brokers_that_answer():
            for Sequence.rule_order_seed in range(SEQUENCES):
                Sequence.is_simplest = True
                Sequence.run(settings=SETTINGS)
        # Eight sequences follow about 30 operations, which ones is by chance; without links it would be none.
        assert len(Sequence.followed) > SEQUENCES, sorted(Sequence.followed)
    finally:
        for signal in (request_started, request_finished):
            signal.connect(close_old_connections)
