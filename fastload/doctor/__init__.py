"""Diagnosis of slow training runs: watch a script, measure its loader and its step, judge, and try fixes."""
