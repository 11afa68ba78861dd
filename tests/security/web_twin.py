"""What the web's processes run, without a database: its bodies, its middleware, and two views. For a granian of its own."""

from __future__ import annotations

import os
import time

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse
from django.urls import path

from controlplane.common.unread_bodies import reads_what_is_left

WORK_S = 0.05


def work(request: HttpRequest) -> HttpResponse:
    time.sleep(WORK_S)
    return HttpResponse("done")


def read(request: HttpRequest) -> HttpResponse:
    return HttpResponse(str(len(request.body)))


urlpatterns = [path("api/work/", work), path("api/read/", read)]

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings.test")
settings.ROOT_URLCONF = __name__
settings.ALLOWED_HOSTS = ["*"]
django.setup()
settings.MIDDLEWARE = [
    "controlplane.common.middleware.RequestContextMiddleware",
    "controlplane.common.in_flight.InFlightMiddleware",
]

application = reads_what_is_left(get_wsgi_application())
