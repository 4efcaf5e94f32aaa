"""Values of parameters that the user has not set, and attributes that show the decided values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastload.loader._strategy import EpochStrategy


class Unset(int):
    """A number in place of a parameter that the user has not set: torch's default, or the decided value.

    A loader that is made from another one's attributes, as Lightning does, still has the parameter unset.
    """

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return Unset, (int(self),)


UNSET: Any = Unset(0)


def is_explicit(value: Any) -> bool:
    return value is not None and not isinstance(value, Unset)


class DecidedAttribute:
    """An attribute of a loader: the user's value or, if that is unset, the decided one.

    The user's value is in the instance's `__dict__`, from which Lightning makes a loader anew.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        try:
            value = vars(instance)[self._name]
        except KeyError:
            raise AttributeError(self._name) from None
        if is_explicit(value):
            return value
        strategy: EpochStrategy | None = instance._strategy
        decided = value if strategy is None else getattr(strategy.options, self._name)
        return None if decided is None else Unset(decided)

    def __set__(self, instance: Any, value: Any) -> None:
        vars(instance)[self._name] = value
