"""Reading what a frame runs from its source."""

import sys

import pytest

from fastload.doctor._profile import described


class Chain:
    """Returns the frame that calls one of its methods."""

    def open(self, *_):
        return self

    def convert(self, *_):
        return described(sys._getframe(1))


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python tells which call it is from 3.11 on")
def test_a_call_is_told_without_its_arguments():
    chain = Chain()
    assert chain.open("a(b").convert(len([1])).called == ""  # Half a pair of brackets.
    frame = chain.open("path").convert(len([1]))
    assert frame.called == frame.call == "chain.open.convert("
    assert frame.text == 'chain.open("path").convert(len([1]))'


def test_where_python_tells_no_call_the_line_is_asked():
    frame = described(sys._getframe())._replace(called="")
    assert frame.call == frame.text
