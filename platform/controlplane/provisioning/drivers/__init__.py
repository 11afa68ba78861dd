"""Drivers start and stop daemons. The workflow is the same for all of them."""

from functools import lru_cache
from importlib import import_module

from django.conf import settings

from controlplane.provisioning.drivers.base import Driver


def get_driver() -> Driver:
    """Return the driver that HIGHWATER_DRIVER names."""
    return _driver(settings.HIGHWATER_DRIVER)


@lru_cache(maxsize=4)
def _driver(dotted_path: str) -> Driver:
    module, _, name = dotted_path.rpartition(".")
    driver: Driver = getattr(import_module(module), name)()
    return driver
