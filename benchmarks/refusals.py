"""Whom does `refuse = harmful` refuse? `python -m benchmarks.refusals`: digits, ten clients, honest and hostile ones.

One line per scene, method and behaviour: of all replies of honest clients, how many were refused; of all replies of the
two hostile ones, how many were; the accuracy of the common model at the end, with the rule and without it.
"""

import argparse
from typing import Any

import fedsac
from fedsac import Config

HOSTILE = ("client-01", "client-07")
SCENES = ("iid", "pow", "cla", "dir:0.1", "dir:1", "dir:3")
ATTACKS = ("honest", "flipped", "opposite", "reversed_step")


def honest(round: int, client: str, update: Any) -> Any:
    return update.trained


def flipped(round: int, client: str, update: Any) -> Any:
    """Minus five times the model."""
    return -5 * update.trained if client in HOSTILE else update.trained


def opposite(round: int, client: str, update: Any) -> Any:
    """Minus the model."""
    return -update.trained if client in HOSTILE else update.trained


def reversed_step(round: int, client: str, update: Any) -> Any:
    """Five times the step, backwards."""
    return update.received - 5 * (update.trained - update.received) if client in HOSTILE else update.trained


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=30)
    chosen = parser.parse_args()
    head = ("scene", "method", "behaviour", "honest refused", "hostile refused", "with", "without")
    print("{:8} {:8} {:14} {:>16} {:>16} {:>6} {:>8}".format(*head))
    for scene in SCENES:
        for method in ("fedsac", "fedavg"):
            for attack in ATTACKS:
                print(line(scene, method, attack, chosen.seeds, chosen.rounds), flush=True)


def line(scene: str, method: str, attack: str, seeds: int, rounds: int) -> str:
    """One line of the table."""
    refused, sent, scores = {True: 0, False: 0}, {True: 0, False: 0}, {"with": 0.0, "without": 0.0}
    for seed in range(seeds):
        behaviour = None if attack == "honest" else f"benchmarks.refusals:{attack}"
        config = Config(scene=scene, method=method, rounds=rounds, hidden=(64, 64), seed=seed, behaviour=behaviour)
        config = config.replace(standalone_steps=200, eval_every=rounds)
        for rule, refuse in (("with", "harmful"), ("without", None)):
            try:
                run = fedsac.run(config.replace(refuse=refuse))
            except fedsac.FedsacError:  # the model has overflowed: nothing is left of it
                continue
            scores[rule] += (run.records[-1]["global_accuracy"] or 0.0) / seeds
            for record in run.records if refuse else ():
                for name in run.clients:
                    hostile = attack != "honest" and name in HOSTILE
                    sent[hostile] += 1
                    refused[hostile] += name in record.get("refused", {})
    counts = [f"{refused[hostile]} of {sent[hostile]}" for hostile in (False, True)]
    accuracies = f"{scores['with']:6.3f} {scores['without']:8.3f}"
    return f"{scene:8} {method:8} {attack:14} {counts[0]:>16} {counts[1]:>16} {accuracies}"


if __name__ == "__main__":
    main()
