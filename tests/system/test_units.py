"""Figures in messages have about three digits, separated thousands and no exponent."""

import pytest

from fastload.system.units import milliseconds, size, times


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (size(999), "999 B"),
        (size(12_000), "12.0 KB"),
        (size(999_960), "1.0 MB"),
        (size(2e15), "2,000.0 TB"),
        (milliseconds(0.0000304), "30 µs"),
        (milliseconds(0.307), "307 ms"),
        (milliseconds(0.9996), "1 s"),
        (milliseconds(1.25), "1.2 s"),
        (milliseconds(9.97), "10 s"),
        (milliseconds(4321), "4,321 s"),
        (times(0.314), "0.31 times"),
        (times(12.99), "13.0 times"),
        (times(1234), "1,234 times"),
    ],
)
def test_figures_are_formatted_for_people(text, expected):
    assert text == expected
