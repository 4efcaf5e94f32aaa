"""Judgement of what was measured: the cause, the slowest rank, fixes by their gains, and the words."""
