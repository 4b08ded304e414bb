"""Membership inference: whether a sample was among those that a client trained on, from what the client sends.

Of a pool of 200 samples each of 32 clients owns 100 at random, so that every sample is in about 16 of them. Each client
is attacked in turn; the other 31 are what the attacker trained itself ("shadow models"), on samples of the same kind,
among them the one in question.
  loss   the lower the loss, the more likely a member; of a round's update, by how much it fell in the round (Yeom et
         al. 2018): needs the model alone
  LiRA   the likelihood of the model's confidence among shadow models with and without the sample (Carlini et al. 2022,
         online, one variance for all samples)
  ART    a random forest on outputs, or on the loss, and labels (`MembershipInferenceBlackBox` of
         adversarial-robustness-toolbox), which knows half of the members and learns from them; where it is installed:
         pip install --no-deps --target .bench/art adversarial-robustness-toolbox==1.20.1 six
Against: the model trained alone (`alone`), and what a client returns after one round, from the public initial weights
(`first round`) or from a model that others have trained to the end (`late round`).
"""

import sys
from dataclasses import dataclass
from importlib import import_module, util
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsac.clients.training import Job, train
from fedsac.compute.evaluation import mean_losses
from fedsac.compute.modules.working import Working
from fedsac.config import Config
from fedsac.contributions.measurement import Measurement
from fedsac.contributions.standalone import trained_alone
from fedsac.core.module_layout import ModuleLayout
from fedsac.data.catalogue import load
from fedsac.data.split import Split, split
from fedsac.models.network import Network
from fedsac.runs.prepared import Prepared
from fedsac.runs.setup import prepare

MODELS, POOL, OWN, OTHERS = 32, 200, 100, 800
STEPS = 1000  # of training alone: 50 rounds of 20
FPR = 0.01  # at which true positives are counted
ART_FOLDER = Path(__file__).resolve().parents[2] / ".bench" / "art"
TARGETS = ("alone", "first round", "late round")
ART_MODELS = 8  # attacked by ART, which is slower


@dataclass(frozen=True)
class Victims:
    """Clients, who has which sample of the pool [models, pool], and models before and after, by what is attacked."""

    prepared: Prepared
    pool: np.ndarray
    members: np.ndarray
    before: dict[str, Tensor]
    after: dict[str, Tensor]

    def losses(self, models: Tensor) -> np.ndarray:
        """The loss of each model on each sample of the pool, [models, pool]."""
        own = [self.pool[k : k + 1] for k in range(len(self.pool))]
        clients = self.prepared.clients
        return np.stack([mean_losses(clients.layout, one[None], clients.pool, own).cpu().numpy() for one in models])


def measured(seed: int, **privacy: Any) -> list[dict[str, Any]]:
    """AUC and true positives at 1 % false ones, for each attack and target; `privacy` are settings of the run."""
    victims = _victims(seed, **privacy)
    found = []
    for target in TARGETS:
        before, after = (victims.losses(models[target]) for models in (victims.before, victims.after))
        scores = {"loss": -after if target == "alone" else before - after, "LiRA": lira(after, victims.members)}
        for attack, score in scores.items():
            found.append({"target": target, "attack": attack, **judged(score, victims.members)})
        for kind in ("prediction", "loss"):
            if (score := _art(victims, victims.after[target], kind, seed)) is not None:
                found.append({"target": target, "attack": f"ART, {kind}", **judged(*score)})
    return found


def judged(scores: np.ndarray, members: np.ndarray) -> dict[str, float]:
    """AUC and the true positive rate at `FPR`, over all models and samples."""
    true, false = scores[members], np.sort(scores[~members])
    below = np.searchsorted(false, true, "left") + np.searchsorted(false, true, "right")
    limit = false[int(np.ceil(len(false) * (1 - FPR))) - 1]
    return {"auc": float(below.mean() / 2 / len(false)), "tpr": float((true > limit).mean())}


def lira(losses: np.ndarray, members: np.ndarray) -> np.ndarray:
    """The log likelihood ratio of each model's confidence on each sample, from those of the other models."""
    losses = np.clip(losses, 1e-9, 50)
    confidence = -losses - np.log(-np.expm1(-losses))
    scores: np.ndarray = np.empty_like(confidence)
    for model in range(len(losses)):
        others = np.arange(len(losses)) != model
        own, inside = confidence[others], members[others]
        means, deviations = [], []
        for chosen in (inside, ~inside):
            mean = (own * chosen).sum(0) / np.maximum(1, chosen.sum(0))
            means.append(mean)
            deviations.append(np.sqrt((((own - mean) ** 2) * chosen).sum() / chosen.sum()) + 1e-9)
        apart = [(confidence[model] - m) / d for m, d in zip(means, deviations, strict=True)]
        scores[model] = (apart[1] ** 2 - apart[0] ** 2) / 2 + np.log(deviations[1] / deviations[0])
    return scores


def _victims(seed: int, **privacy: Any) -> Victims:
    config = Config(hidden=(64, 64), seed=seed, rounds=STEPS // 20, **privacy)
    dealt = split(load("digits", None, label="label", quiet=True), "iid", 2, None, seed)
    rng = np.random.default_rng([16, seed])
    mixed = rng.permutation(np.concatenate(dealt.rows))
    pool, others = mixed[:POOL], mixed[POOL : POOL + OTHERS]
    chosen = [np.sort(rng.choice(POOL, OWN, replace=False)) for _ in range(MODELS)]
    members = np.zeros((MODELS, POOL), bool)
    for model, own in enumerate(chosen):
        members[model, own] = True
    ready, common = (
        prepared_clients(config, dealt, rows) for rows in ([pool[own] for own in chosen], [others, others])
    )
    initial = ready.initial.expand(MODELS, -1)
    late = _alone(common)[:1].expand(MODELS, -1)
    before = {"alone": initial, "first round": initial, "late round": late}
    after = {"alone": _alone(ready)}
    for number, name in enumerate(("first round", "late round")):
        steps = (config.local_steps,) * MODELS
        after[name] = train([Job(ready.clients, before[name], None, steps, "batches", number)])[0].models
    return Victims(ready, pool, members, before, after)


def prepared_clients(config: Config, dealt: Split, rows: list[np.ndarray]) -> Prepared:
    names = tuple(f"client-{i:02d}" for i in range(1, len(rows) + 1))
    own = Split(**{**vars(dealt), "clients": names, "rows": tuple(rows)})
    return prepare([config], [own])[0]


def _alone(ready: Prepared) -> Tensor:
    run = Measurement(ready.clients, ready.initial, STEPS, ready.validation, ready.test, ready.metric)
    return trained_alone([run])[0]


def _art(victims: Victims, models: Tensor, kind: str, seed: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Scores of ART's attack and who is a member, [models, half of the pool]; None where ART is not installed."""
    if not ART_FOLDER.exists():
        return None
    if util.find_spec("art") is None:
        sys.path.append(str(ART_FOLDER))
    attacks: Any = import_module("art.attacks.inference.membership_inference")
    classifiers: Any = import_module("art.estimators.classification")
    samples, rng = victims.prepared.clients.pool, np.random.default_rng([17, seed])
    rows = torch.from_numpy(victims.pool)
    x = (samples.x[rows] * samples.scale + samples.shift).float().numpy()
    y, scores, members = samples.y[rows].numpy(), [], []
    for number, model in enumerate(models[:ART_MODELS]):
        module = module_of(victims.prepared, model)
        named = classifiers.PyTorchClassifier(
            module, torch.nn.CrossEntropyLoss(), input_shape=x.shape[1:], nb_classes=10, device_type="cpu"
        )
        order, inside = rng.permutation(POOL), victims.members[number]
        known, asked = order[: POOL // 2], order[POOL // 2 :]
        attack = attacks.MembershipInferenceBlackBox(named, kind, attack_model_type="rf")
        there, absent = known[inside[known]], known[~inside[known]]
        attack.fit(x[there], y[there], x[absent], y[absent])
        scores.append(attack.infer(x[asked], y[asked], probabilities=True).reshape(len(asked), -1)[:, -1])
        members.append(inside[asked])
    return np.stack(scores), np.stack(members)


def module_of(ready: Prepared, model: Tensor) -> torch.nn.Module:
    layout = ready.layout
    if isinstance(layout, ModuleLayout):
        working = Working(layout, model)
        working.load(model)
        return working.module.eval()
    return Network(layout, model).module()
