"""Hostile clients: each attack is a small class around honest training (`fedsac.attacks.base.Attack`), named in
`fedsac.doors.ATTACKS`. How to run them, and how to add one's own, is in docs/attacks.md."""

from fedsac.attacks.base import Attack, End, Holding, Sight, Standing, made

__all__ = ["Attack", "End", "Holding", "Sight", "Standing", "made"]
