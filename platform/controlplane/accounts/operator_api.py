"""The root of API views for the platform's operators."""

from typing import Any, ClassVar

from rest_framework.request import Request

from controlplane.accounts.actors import Actor
from controlplane.accounts.operators import operator_require
from controlplane.common.api import Api


class OperatorApi(Api):
    """A view that only operators see: everyone else who is logged in gets 404, before any handler runs."""

    is_hidden: ClassVar[bool] = True

    actor: Actor

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Authenticate and throttle, then require an operator."""
        super().initial(request, *args, **kwargs)
        if str(request.method) not in self.allowed_methods:
            self.http_method_not_allowed(request)
        actor: Any = request.user
        operator_require(actor)
        self.actor = actor
