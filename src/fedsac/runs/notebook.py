"""Progress of runs in a notebook, where nobody has asked for another watcher."""

import sys
from collections.abc import Sequence
from typing import Any

from fedsac.runs.watcher import RunInfo, Watcher


def progress() -> Watcher:
    """Bars in a notebook; elsewhere nothing is shown: a script or a test has not asked for it."""
    return Bars() if in_notebook() else Watcher()


def in_notebook() -> bool:
    """Whether this is the kernel of a notebook. IPython is not loaded to know."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and hasattr(shell, "kernel")


class Bars(Watcher):
    """A bar for standing alone, then one for the rounds of all runs together, with the last numbers behind it."""

    def __init__(self) -> None:
        self._bars: dict[str, Any] = {}
        self._runs = self._done = self._total = 0

    def alone(self, step: int, steps: int) -> None:
        self._show("standing alone", step, steps)

    def begin(self, run: RunInfo, records: Sequence[dict[str, Any]]) -> None:
        self._runs, self._total = self._runs + 1, self._total + run.config.rounds - len(records)

    def round(self, run: RunInfo, record: dict[str, Any]) -> None:
        self._done += 1
        tail = ""
        if record["rewards"] is not None and self._runs == 1:
            gamma = "-" if record["gamma"] is None else f"{record['gamma']:.2f}"
            tail = f"gamma {gamma}, best reward {record['accuracy']['max']:.3f}"
        self._show("rounds", self._done, self._total, tail)

    def note(self, text: str) -> None:
        from tqdm import tqdm

        tqdm.write(f"fedsac: {text}", file=sys.stderr)

    def _show(self, what: str, done: int, total: int, tail: str = "") -> None:
        from tqdm import tqdm

        if what not in self._bars:
            self._bars[what] = tqdm(total=total, desc=what, file=sys.stderr)
        bar = self._bars[what]
        if tail:
            bar.set_postfix_str(tail, refresh=False)
        bar.update(done - bar.n)
        if done == total:
            bar.close()
