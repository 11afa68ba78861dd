"""WSGI entry point: `granian --interface wsgi controlplane.wsgi:application`."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings.local")

application = get_wsgi_application()
