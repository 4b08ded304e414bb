"""Results made up for the tests of tables and claims: every number is chosen, none is measured."""

from fedsac.paper.results import ChosenRound, Results, Run
from fedsac.paper.settings import preset

GAMMA, ACCURACY = 90.0, 0.5


def run(method="fedsac", data="cifar10", scene="pow", clients=10, *, seed=0, beta=None, best=None, last=None, **other):
    """A run; `best` and `last` are (gamma, best reward, accuracy of the common model), as many as are given."""
    settings = preset("paper", data, scene)
    labels = {"best": _chosen_round(best, clients), "last": _chosen_round(best if last is None else last, clients)}
    given = {
        "rounds": 40,
        "contributions": tuple(0.25 * i / clients for i in range(1, clients + 1)),
        "peak": (
            max(p.max for p in labels.values()),
            max((p.common for p in labels.values() if p.common), default=None),
        ),
        "fair": None,
        "megabytes": 24.0,
        "serialised": 24.5,
        "counted": 23.0,
        "plateau": (0.4, 0.4, 0.4),
    }
    return Run(
        data=data,
        scene=scene,
        clients=clients,
        method=method,
        beta=settings["beta"] if beta is None else beta,
        seed=seed,
        lr=settings["lr"],
        local_steps=settings["local_steps"],
        batch=settings["batch"],
        labels=labels | {"selected": labels["best"]},
        **(given | other),
    )


def _chosen_round(numbers, clients):
    gamma, top, common = (*(numbers or ()), *(GAMMA, ACCURACY, None)[len(numbers or ()) :])
    return ChosenRound(7, gamma, 99.0, 0.5, 0.5, top, top * 0.9, top * 0.8, common, (top,) * clients)


def results(*runs, quick=False):
    return Results({"fedsac": "0.1.0", "commit": "abc", "device": "cpu", "seconds": 1.5, "quick": quick}, runs)


BASELINES = ("fedavg", "qffl", "cffl", "cgsv", "fedave")


def column(scene="pow", data="cifar10", clients=10, **numbers):
    """One seed of every method of Tables 1 and 2 in a column: for each its (gamma, accuracy), or gamma 50 and .3."""
    names = (*BASELINES, "fedsac")
    return [run(name, data, scene, clients, best=numbers.get(name, (50.0, 0.3))) for name in names]
