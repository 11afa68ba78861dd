#!/usr/bin/env python
"""Django's command line. Puts the two import roots on sys.path, so that it runs from any directory."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent


def main() -> None:
    """Run one management command; exit status is Django's. A setting that is wrong is one sentence, not a traceback."""
    for root in (ROOT, ROOT / "platform"):
        if str(root) not in sys.path:
            sys.path.insert(0, str(root))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings.local")
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import execute_from_command_line

    try:
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
