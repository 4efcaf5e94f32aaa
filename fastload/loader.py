"""DataLoader: torch's, under the same name and with the same behaviour."""

from __future__ import annotations

from typing import TypeVar

import torch.utils.data

_T_co = TypeVar("_T_co", covariant=True)


class DataLoader(torch.utils.data.DataLoader[_T_co]):
    """`torch.utils.data.DataLoader`, parameter for parameter and batch for batch.

    Import it in place of torch's. It exists so that code written against it today gains, without a
    change, what later releases do beneath the same interface.
    """
