"""The result of a run: everything that is printed, written and returned."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsac.config import FORMAT_VERSION, Config
from fedsac.contributions.base import Contributions
from fedsac.core.accountant import spent
from fedsac.core.fairness import bcf
from fedsac.core.module_layout import AnyLayout
from fedsac.models.files import AnyNetwork
from fedsac.runs.labels import chosen, reported
from fedsac.runs.places import DTYPE_BYTES
from fedsac.runs.showing import frame, html, one_line

Counts = tuple[tuple[int, ...], ...]
"""Of a model: how many samples of each class (rows) it takes for which (columns)."""


@dataclass(frozen=True, repr=False)
class Result:
    """A finished run. `records` has one entry per round; models are the final ones. In a notebook it is shown as a
    table; `to_frame` has every number, `fedsac.figures` the figures of its page."""

    config: Config
    clients: tuple[str, ...]
    samples: tuple[int, ...]
    contributions: Contributions
    records: tuple[dict[str, Any], ...]
    reputations: tuple[float, ...] | None
    layout: AnyLayout
    global_model: AnyNetwork | None  # None where each client has a model of its own
    reward_models: tuple[AnyNetwork, ...]  # none where models are not kept
    reward_bytes: dict[str, int]  # of all rewards of the last round: `counted` by parameters, `serialised` as files
    seconds: float
    folder: Path | None = None
    attack: dict[str, Any] | None = None  # who was hostile, and what came of it (docs/attacks.md)
    reported_on: str = "test"  # or "validation", where own silos bring no test file
    classes: tuple[str, ...] = ()
    confusion: tuple[Counts, ...] | None = None  # of each client's reward; None where models are not kept

    def __repr__(self) -> str:
        return one_line(self)

    def _repr_html_(self) -> str:
        return html(self)

    def to_frame(self, per: str = "client") -> Any:
        """The rounds as a pandas DataFrame, tidy: a row for each round and client, or per="round" for each round.
        Frames of several runs can be put below each other: method, seed and metric are columns."""
        return frame(self, per)

    @property
    def last(self) -> dict[str, Any]:
        return self.records[-1]

    @property
    def rewards(self) -> tuple[float, ...]:
        return tuple(self.last["rewards"])

    @property
    def inside_bcf(self) -> tuple[bool, ...]:
        return tuple(bcf(self.contributions.test, self.rewards).tolist())

    @property
    def full_bytes(self) -> int:
        """Bytes of a whole model."""
        return self.layout.parameters * DTYPE_BYTES[self.config.dtype]

    @property
    def privacy(self) -> dict[str, Any] | None:
        """What each client has spent of its privacy, at `delta`: epsilon of training alone, and of that and all rounds;
        None without differential privacy. A client that is away spends no more."""
        c = self.config
        if c.noise is None:
            return None

        def epsilons(steps: int) -> list[float]:
            return [spent(n, c.batch, steps, c.noise or 0.0, c.delta) for n in self.samples]

        every = epsilons(c.alone() + c.rounds * c.local_steps)
        return {"delta": c.delta, "epsilon_alone": epsilons(c.alone()), "epsilon": every}

    @property
    def results(self) -> dict[str, dict[str, Any]]:
        """`last`, `selected` and `best`: each the numbers of one round, chosen as its label says."""
        return {label: reported(record) for label, record in chosen(self.records, self.contributions).items()}

    def confusions(self) -> dict[str, Any]:
        """What confusion.json contains."""
        counts = dict(zip(self.clients, self.confusion or (), strict=True))
        return {
            "format_version": FORMAT_VERSION,
            "reported_on": self.reported_on,
            "classes": self.classes,
            "clients": counts,
        }

    def summary(self) -> dict[str, Any]:
        """What `--json` prints and summary.json contains, without the time it took."""
        c, deciding, error = self.config, self.contributions.deciding, self.contributions.error
        return {
            "format_version": FORMAT_VERSION,
            "data": c.data,
            "scene": c.scene,
            "method": c.method,
            "clients": len(self.clients),
            "client_names": list(self.clients),
            "rounds": c.rounds,
            "seed": c.seed,
            "split_seed": c.split_seed,
            "reported_on": self.reported_on,
            "metric": c.metric,
            "samples": list(self.samples),
            "contribution": c.contribution if c.contributions is None else "given",
            "contributions": list(self.contributions.validation),
            "contributions_error": None if error is None else list(error),
            "contributions_test": list(self.contributions.test),
            "contributions_deciding": None if deciding is None else list(deciding),
            "diverged_alone": list(self.contributions.diverged),
            "reputations": None if self.reputations is None else list(self.reputations),
            "rewards": list(self.rewards),
            "log_losses": self.last.get("log_losses"),  # not in rounds of an earlier version
            "neurons": self.last["neurons"],
            "parameters": self.last["parameters"],
            "inside_bcf": list(self.inside_bcf),
            "bytes_per_round": {
                way: sum(record["bytes"][way] for record in self.records) / len(self.records) for way in ("down", "up")
            },
            "reward_bytes": self.reward_bytes,
            "results": self.results,
            **({} if self.privacy is None else {"privacy": self.privacy}),
            **({} if self.attack is None else {"attack": self.attack}),
        }
