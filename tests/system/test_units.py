"""Figures in messages have about three digits, separated thousands and no exponent."""

import pytest

from fastload.system.units import format_duration, format_figure, format_ratio, format_size


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (format_size(999), "999 B"),
        (format_size(12_000), "12.0 KB"),
        (format_size(999_960), "1.0 MB"),
        (format_size(2e15), "2,000.0 TB"),
        (format_duration(0.0000304), "30 µs"),
        (format_duration(0.307), "307 ms"),
        (format_duration(0.9996), "1 s"),
        (format_duration(1.25), "1.2 s"),
        (format_duration(9.97), "10 s"),
        (format_duration(4321), "4,321 s"),
        (format_ratio(0.314), "0.31 times"),
        (format_ratio(12.99), "13.0 times"),
        (format_ratio(1234), "1,234 times"),
        (format_figure(0.12345), "0.123"),
        (format_figure(12.34), "12.3"),
        (format_figure(1234.0), "1,230"),
        (format_figure(123456.0), "123,000"),
    ],
)
def test_figures_are_formatted_for_people(text, expected):
    assert text == expected
