"""Objects that stand for others."""

from __future__ import annotations

from typing import Any


class StandIn:
    """Object that stands for another one, `theirs`, in a user's code: `isinstance` answers as for that."""

    theirs: Any

    @property
    def is_idle(self) -> bool:
        """True if it makes nothing faster."""
        return False

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self.theirs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "theirs":
            raise AttributeError(name)
        return getattr(self.theirs, name)

    def __eq__(self, other: object) -> bool:
        is_other = issubclass(type(other), StandIn)  # `isinstance` answers for what it stands for
        return bool(self.theirs == (vars(other)["theirs"] if is_other else other))

    def __hash__(self) -> int:
        return hash(self.theirs)

    def __repr__(self) -> str:
        return repr(self.theirs)
