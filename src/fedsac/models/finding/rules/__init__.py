"""What each operation of a traced network does to slots (see `labels`). Importing the modules registers their rules."""

from fedsac.models.finding.rules import (  # noqa: F401
    arrangement,
    convolutions,
    parts,
    products,
    recurrent,
    reductions,
)
from fedsac.models.finding.rules.registry import KERNEL, apply, unlabelled

__all__ = ["KERNEL", "apply", "unlabelled"]
