"""Which runs each table and figure of the paper needs, as configs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fedsac.config import Config
from fedsac.doors import SCENES
from fedsac.errors import FedsacError
from fedsac.paper.printed import TABLES, Column
from fedsac.paper.settings import preset

BASELINES = ("fedavg", "qffl", "cffl", "cgsv", "fedave")
OTHER_READING = "fedsac-over-n"  # of Eq. 9: updates divided by the number of clients, not of holders
ABLATIONS = ("fedsac-no-allocation", "fedsac-no-aggregation")
BETAS = (2.0, 5.0, 10.0, 20.0)  # Table 7
FIGURE_SCENES = {  # data sets and scenes in the figures
    "figure4": [(data, "dir:1.0") for data in ("cifar10", "svhn")],
    "figure5": [(data, scene) for data in ("cifar10", "svhn") for scene in ("pow", "cla")],
    "figure6": [(data, scene) for data in ("cifar10", "svhn") for scene in ("pow", "cla", "dir:2.0")],
}
TARGETS = (*TABLES, "figure1", "figure3", *FIGURE_SCENES, "theorems")
WITHOUT_RUNS = ("table9", "figure1", "theorems")


@dataclass(frozen=True)
class Scale:
    """How large the experiments are. The paper names neither the rounds nor how often it evaluates; docs/decisions.md
    gives the reasons for these."""

    seeds: int = 5
    rounds: int = 300
    eval_every: int = 10
    share: float = 1.0  # of each data set
    samples: int | None = None  # per client, in POW and CLA; None: the paper's 2000

    def settings(self, scene: str) -> dict[str, Any]:
        chosen: dict[str, Any] = {"rounds": self.rounds, "eval_every": self.eval_every, "share": self.share}
        return chosen | ({"samples_per_client": self.samples} if self.samples and scene in ("pow", "cla") else {})


FULL = Scale()
QUICK = Scale(seeds=1, rounds=12, eval_every=6, share=0.2, samples=400)


def parse_targets(targets: Sequence[str]) -> list[str]:
    """The targets named on the command line, in the paper's order; `all` stands for all of them."""
    for target in targets:
        if target not in (*TARGETS, "all"):
            raise FedsacError(f"the paper has no {target!r} here; name some of {', '.join(TARGETS)}, or all")
    return [target for target in TARGETS if target in targets or "all" in targets]


def only(configs: Sequence[Config], data: str | None, scene: str | None) -> list[Config]:
    """Those of the runs that are on this data set and scene, where one is named; an error where none is."""
    scene = None if scene is None else SCENES.spelled(scene)
    kept = [c for c in configs if data in (None, c.data) and scene in (None, c.scene)]
    if configs and not kept:
        there = dict.fromkeys(f"{c.data} {c.scene}" for c in configs)
        wanted = " ".join(named for named in (data, scene) if named is not None)
        raise FedsacError(f"these targets have no runs on {wanted}; they have {', '.join(there)}")
    return kept


def runs(targets: Iterable[str], scale: Scale, *, both_readings: bool = False, **common: Any) -> list[Config]:
    """The configs of all runs that these targets need, each once; `common` settings (device, ...) go into every one.
    With `both_readings`, FedSAC in the tables also as `OTHER_READING`."""
    configs: dict[tuple[object, ...], Config] = {}
    for target in targets:
        for column, method, beta in _needed(target) + (_other_reading(target) if both_readings else []):
            settings = preset("paper", column.data, column.scene) | scale.settings(column.scene) | common
            settings["beta"] = beta
            for seed in range(scale.seeds):
                config = Config(
                    data=column.data, scene=column.scene, clients=column.clients, method=method, seed=seed, **settings
                )
                configs.setdefault((column, method, beta, seed), config)
    return list(configs.values())


def _needed(target: str) -> list[tuple[Column, str, float]]:
    """Column, method and beta of every run that a target needs."""
    if target in WITHOUT_RUNS:
        return []
    if target in FIGURE_SCENES:
        columns = [Column(data, 10, scene) for data, scene in FIGURE_SCENES[target]]
        methods = ("fedsac",) if target == "figure5" else (*BASELINES, "fedsac")
        return [(column, method, _betas(column)[0]) for column in columns for method in methods]
    columns = list(TABLES["table1" if target == "figure3" else target])
    if target == "table7":
        return [(column, "fedsac", beta) for column in columns for beta in BETAS]
    ours = ("fedsac",) if target not in ("table3", "table4") else (*ABLATIONS, "fedsac")
    needed = [(column, method, beta) for column in columns for method in ours for beta in _betas(column)]
    if target not in ("table3", "table4", "table8"):  # in Table 8 the others send whole models
        needed += [(column, method, _betas(column)[0]) for column in columns for method in BASELINES]
    return needed


def _other_reading(target: str) -> list[tuple[Column, str, float]]:
    """The runs of FedSAC's other reading beside those of the first."""
    if target in ("table7", *WITHOUT_RUNS, *FIGURE_SCENES):
        return []
    return [(column, OTHER_READING, beta) for column, method, beta in _needed(target) if method == "fedsac"]


def _betas(column: Column) -> list[float]:
    """Table 9's beta, and the one of Tables 2 and 7 if it differs."""
    both = [preset(name, column.data, column.scene)["beta"] for name in ("paper", "paper-tables")]
    return list(dict.fromkeys(both))
