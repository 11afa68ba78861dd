"""The versions that clients and brokers say they have: ordinals of RocketMQ's MQVersion.

From 4.0.0 on each minor version has ten patches, and each of these a snapshot before it (399 is 4.9.3, 479 is 5.3.3).
"""

from __future__ import annotations

from typing import Final

_FIRST_ORDINAL: Final = 212  # V4_0_0_SNAPSHOT
_FIRST_MAJOR: Final = 4
_OF_A_MAJOR: Final = 200
_OF_A_MINOR: Final = 20


def version_name(ordinal: int) -> str:
    """The version as people write it, such as `5.3.3`; empty for one before 4.0.0."""
    if ordinal < _FIRST_ORDINAL:
        return ""
    major, rest = divmod(ordinal - _FIRST_ORDINAL, _OF_A_MAJOR)
    minor, rest = divmod(rest, _OF_A_MINOR)
    patch, is_release = divmod(rest, 2)
    return f"{_FIRST_MAJOR + major}.{minor}.{patch}{'' if is_release else '-SNAPSHOT'}"
