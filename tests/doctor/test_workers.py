"""Source of the call that a frame runs."""

import json
import linecache
import sys
import time

import pytest

from fastload.doctor.watching.workers import StackSampler, frame_at


def running(frame):
    return frame_at(frame.f_code, frame.f_lasti)


class Chain:
    """Returns the frame that calls one of its methods."""

    def open(self, *_):
        return self

    def convert(self, *_):
        return running(sys._getframe(1))


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python tells which call it is from 3.11 on")
def test_a_call_is_described_without_its_arguments():
    chain = Chain()
    assert "a(b" in chain.open("a(b").convert(len([1])).called  # an unbalanced bracket
    frame = chain.open("path").convert(len([1]))
    assert frame.called == "chain.open.convert("
    assert frame.text == 'chain.open("path").convert(len([1]))'


def test_the_source_of_a_library_is_read_for_the_innermost_frame_only():
    code = json.dumps.__code__
    assert frame_at(code, 0).text
    assert frame_at(code, 0, is_innermost=False).text == ""


def test_time_without_a_free_cpu_is_left_out_of_samples():
    def starved():
        return 0.9 * time.perf_counter()

    weights = []
    began = time.perf_counter()
    with StackSampler(lambda stack, seconds: weights.append(seconds), starved):
        while len(weights) < 20:
            sum(range(1000))
    assert 0 < sum(weights) < 0.2 * (time.perf_counter() - began)


def test_a_source_dropped_by_another_thread_is_unknown(monkeypatch):
    def dropped(file, line):
        raise KeyError(file)

    monkeypatch.setattr(linecache, "getline", dropped)
    assert running((lambda: sys._getframe())()).text == ""
