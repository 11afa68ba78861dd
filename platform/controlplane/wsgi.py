"""WSGI entry point: `granian --interface wsgi controlplane.wsgi:application`."""

import os

from django.core.wsgi import get_wsgi_application

from controlplane.common.unread_bodies import reads_what_is_left

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings.local")

application = reads_what_is_left(get_wsgi_application())
