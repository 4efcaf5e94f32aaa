"""Unfinished datasets: where they are, who holds them, what is finished, and how they are published."""
