"""However many lines strangers cause: what else the log says stays readable, and what was left out is counted."""

from __future__ import annotations

import logging

import pytest

from mqwire.strangers_log import StrangersLog


class Written:
    """What such a log wrote, at a time that the test sets."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog
        self.now_ms = 0
        self.log = StrangersLog(logging.getLogger("tests.strangers"), lambda: self.now_ms)

    def refuse(self, where: str, times: int) -> None:
        for number in range(times):
            self.log.info(where, "request %d of %s is refused", number, where)

    @property
    def lines(self) -> list[str]:
        return [record.getMessage() for record in self._caplog.records]


@pytest.fixture
def written(caplog: pytest.LogCaptureFixture) -> Written:
    caplog.set_level(logging.INFO)
    return Written(caplog)


def test_an_address_gets_one_line_in_a_second(written: Written) -> None:
    written.refuse("192.0.2.1", 1000)
    assert written.lines == ["request 0 of 192.0.2.1 is refused"]


def test_another_address_gets_its_own_line(written: Written) -> None:
    written.refuse("192.0.2.1", 1000)
    written.refuse("192.0.2.2", 1)
    assert written.lines[1:] == ["request 0 of 192.0.2.2 is refused"]


def test_after_a_second_it_says_how_many_lines_were_left_out_and_goes_on(written: Written) -> None:
    written.refuse("192.0.2.1", 1000)
    written.now_ms = 1000
    written.refuse("192.0.2.1", 1)
    assert written.lines[1:] == [
        "999 more such lines about 192.0.2.1 in that second are left out",
        "request 0 of 192.0.2.1 is refused",
    ]


def test_thousands_of_addresses_get_a_bounded_number_of_lines(written: Written) -> None:
    for number in range(5000):
        written.refuse(f"192.0.{number // 256}.{number % 256}", 1)
    written.now_ms = 1000
    written.log.sum_up()
    assert len(written.lines) == 18
    assert written.lines[-1] == "4983 more such lines about other addresses in that second are left out"
