"""Diagnosis of slow trainings: watch a script, measure its loader and its step, judge, and try fixes."""
