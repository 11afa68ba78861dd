from pathlib import Path

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import register

from controlplane.common.catalogues import compile_catalogues
from controlplane.common.logging import get_logger
from controlplane.settings.table import settings_check

_log = get_logger(__name__)


class CommonConfig(AppConfig):
    name = "controlplane.common"
    label = "common"

    def ready(self) -> None:
        """Register checks, and compile the translations. Where the disk refuses, the pages are in English: no reason not to
        start.
        """
        register(settings_check)
        try:
            compile_catalogues(settings.ROOT_DIR / "web" / "locale", Path(settings.LOCALE_PATHS[0]))
        except OSError as error:
            _log.warning("translations_not_compiled", error=str(error))
