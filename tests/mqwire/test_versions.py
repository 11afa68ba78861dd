"""RocketMQ's ordinals of versions as people write them."""

from __future__ import annotations

import pytest

from mqwire.versions import version_name


@pytest.mark.parametrize(
    ("ordinal", "name"),
    [(399, "4.9.3"), (479, "5.3.3"), (317, "4.5.2"), (412, "5.0.0-SNAPSHOT"), (513, "5.5.0"), (212, "4.0.0-SNAPSHOT")],
)
def test_an_ordinal_has_a_name(ordinal: int, name: str) -> None:
    assert version_name(ordinal) == name


@pytest.mark.parametrize("ordinal", [0, 211, -1])
def test_a_version_before_4_has_none(ordinal: int) -> None:
    assert version_name(ordinal) == ""
