"""Damaged and hostile bytes for everything that reads what somebody else may have written: `python -m benchmarks.fuzz`.

`mutator.py` damages, `readers.py` lists who reads what, `trying.py` tries them in a process with little memory.
"""
