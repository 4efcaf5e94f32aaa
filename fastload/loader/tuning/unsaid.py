"""Numbers that stand for a parameter that the user has not set."""

from __future__ import annotations

from typing import Any


class Unsaid(int):
    """A parameter's value for which the user has not asked: torch's default, or what was decided instead.

    It is that number in every other respect, so whoever reads a loader's attributes finds what it should.
    Frameworks make a loader anew from another's attributes (Lightning does); then it is still unsaid.
    """

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return Unsaid, (int(self),)


UNSAID: Any = Unsaid(0)


def said(**parameters: Any) -> dict[str, Any]:
    """Those of some parameters that the user has set; None stands for unsaid too.

    Args:
        parameters: Their values, by name.
    """
    return {
        name: value
        for name, value in parameters.items()
        if value is not None and not isinstance(value, Unsaid)
    }
