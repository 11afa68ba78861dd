"""The API's own description, an OpenAPI document."""

import threading
from typing import Any

from django.http import HttpResponse
from django.utils import translation
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.settings import spectacular_settings
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request

_making = threading.Lock()
# By media type.
_made: dict[str, bytes] = {}


class DescriptionApi(SpectacularAPIView):
    """Made once for each form, YAML or JSON: it takes seconds of the processor, and strangers may ask for it."""

    @extend_schema(exclude=True)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> HttpResponse:
        renderer = request.accepted_renderer
        with _making:  # one thread makes it, and leaves the processor to the others
            if renderer.media_type not in _made:
                _made[renderer.media_type] = _rendered(renderer)
        charset = f"; charset={renderer.charset}" if renderer.charset else ""
        return HttpResponse(
            _made[renderer.media_type],
            content_type=f"{renderer.media_type}{charset}",
            headers={"Content-Disposition": f'inline; filename="{spectacular_settings.TITLE}.{renderer.format}"'},
        )


def _rendered(renderer: BaseRenderer) -> bytes:
    with translation.override("en"):
        schema = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]  # has no types
    rendered = renderer.render(schema, renderer_context={})
    return rendered if isinstance(rendered, bytes) else rendered.encode()
