"""The API's own description, an OpenAPI document."""

import functools
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

_making = threading.Lock()  # the generator keeps state of its own
# By media type.
_made: dict[str, bytes] = {}


def api_description() -> dict[str, Any]:
    """Return the whole description, made once in a process: to be read, not changed."""
    with _making:
        return _described()


@functools.cache
def _described() -> dict[str, Any]:
    with translation.override("en"):
        made: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]  # has no types
    return made


class DescriptionApi(SpectacularAPIView):
    """Made once, and written once in each form, YAML or JSON: that takes seconds of the processor, and strangers may ask for it."""

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
    rendered = renderer.render(_described(), renderer_context={})
    return rendered if isinstance(rendered, bytes) else rendered.encode()
