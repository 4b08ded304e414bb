"""IAFL against numbers of its authors' code (tests/golden/published/iafl.json)."""

from dataclasses import dataclass, field
from math import ceil

import numpy as np
import pytest
import torch

import fedsac
from fedsac import Config
from fedsac.methods.base import Task
from fedsac.methods.iafl import IAFL
from tests.golden import published

NUMBERS = published.numbers("iafl")
CASES = NUMBERS["cases"]


class Draw:
    """A random stream that draws what the published code drew."""

    def __init__(self, others: list[int], picked: list[int], reset: bool) -> None:
        self.others, self.picked, self.reset = others, picked, reset

    def permutation(self, n: int) -> np.ndarray:
        """The positions, among the other clients that answered, of those that were picked; then the rest."""
        assert n == len(self.others)
        first = [self.others.index(j) for j in self.picked]
        return np.array(first + [p for p in range(n) if p not in first], dtype=int)

    def random(self) -> float:
        return 0.0 if self.reset else 1.0


@dataclass(frozen=True)
class Drawn(Task):
    case: dict = field(default_factory=dict)

    def stream(self, *names):
        _, round, name = names
        i, joined, resets = self.clients.index(name), self.case["joined"][round], self.case["reset"]
        others = [j for j, there in enumerate(joined) if there and j != i]
        # The published code draws resets at the beginning of a round, ours at the end of the one before.
        reset = round + 1 < len(resets) and resets[round + 1][i]
        return Draw(others, self.case["picked"][round][i], reset)


def played(case, **options):
    """What clients are paid with and the reference model, after each round."""
    given = published.task(NUMBERS, Drawn, case=case)
    method = IAFL(kappa=case["kappa"], q=case["q"], **options)
    state = method.start(given)
    for round, steps in enumerate(NUMBERS["steps"]):
        who = [i for i, there in enumerate(case["joined"][round]) if there]
        state = published.answer(method, given, state, round, steps, who)
        yield method.assign(given, state).reward().models, method.common_model(state)


def apart(ours, theirs):
    return float((ours - torch.tensor(theirs, dtype=torch.float64)).abs().max())


@pytest.mark.parametrize("name", CASES)
def test_the_published_code(name):
    case = CASES[name]
    for round, (models, reference) in enumerate(played(case)):
        assert apart(models, case["models"][round]) < 1e-12
        assert apart(reference, case["reference"][round]) < 1e-12


def test_what_is_tried_has_resets_absent_clients_and_an_absent_best():
    absent = CASES["some are absent"]["joined"]
    assert not all(map(all, absent)) and not all(joined[-1] for joined in absent)
    assert all(any(map(any, case["reset"][1:])) for case in CASES.values())
    sizes = [[len(own) for own in CASES[name]["picked"][0]] for name in ("everybody answers", "half shared")]
    assert sizes == [[1, 2, 3, 4, 4], [2, 3, 3, 4, 4]]


def test_the_paper_s_reading_pays_with_the_reference_model():
    """Where the published code resets clients before the second round, that reading has paid them with it already."""
    case = CASES["everybody answers"]
    models, reference = next(iter(played(case, reading="paper")))
    reset = case["reset"][1]
    assert any(reset) and not all(reset)
    for i, own in enumerate(models):
        assert torch.equal(own, reference) if reset[i] else apart(own, case["models"][0][i]) < 1e-12
    assert apart(models[reset.index(True)], case["models"][0][reset.index(True)]) > 0.01


def test_in_a_run_clients_keep_what_they_have_before_the_next_reset():
    """q = 1: everyone trains the reference model, and only those who have earned all updates keep it."""
    config = Config(method="iafl", rounds=2, clients=4, hidden=(16,), local_steps=3, standalone_steps=10)
    paid = {}
    for reading in ("code", "paper"):
        result = fedsac.run(config.replace(options={"q": 1.0, "kappa": 0.0, "reading": reading}))
        assert result.global_model is not None
        paid[reading] = [torch.allclose(m.params, result.global_model.params, atol=1e-6) for m in result.reward_models]
        scores = result.records[-1]["rewards"], [result.records[-1]["global_accuracy"]] * 4
        assert (scores[0] == scores[1]) == (reading == "paper")
    c = result.contributions.validation
    assert paid == {"code": [ceil(3 * own / max(c)) == 3 for own in c], "paper": [True] * 4}
    assert not all(paid["code"])
