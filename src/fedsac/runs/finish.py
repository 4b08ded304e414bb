"""The end of a run: its result, and the models that clients are paid with."""

from collections.abc import Callable, Sequence

from torch import Tensor

from fedsac.compute.confusion import confusions
from fedsac.core.module_layout import AnyLayout, ModuleLayout
from fedsac.models.files import AnyNetwork, serialised_bytes
from fedsac.models.module_network import ModuleNetwork, perceptron_of
from fedsac.models.network import Network
from fedsac.models.submodels import extract
from fedsac.runs import hostile
from fedsac.runs.labels import of_clients
from fedsac.runs.result import Counts, Result
from fedsac.runs.running import Running
from fedsac.runs.watcher import Watcher

MAX_CONFUSION_CLASSES = 100  # of which every client has a table: their squares are numbers in a file
RewardModels = Callable[[Sequence[Running]], list[Tensor]]


def finished(run: Running, reward_models: RewardModels, seconds: float, watcher: Watcher) -> Result:
    """The result of a run whose rounds are over; its folder is completed."""
    assert run.contributions is not None and run.members is not None
    layout, initial = run.prepared.layout, run.prepared.initial
    models: tuple[AnyNetwork, ...] = ()
    common = confusion = None
    if run.keep_models:
        given = reward_models([run])[0]
        confusion = _confusion(run, given)
        own = given.cpu()
        models = tuple(
            _submodel(layout, own[i if len(own) > 1 else 0], mask) for i, mask in enumerate(run.reward.neurons.cpu())
        )
        shared = run.method.common_model(run.state)
        common = None if shared is None else _submodel(layout, shared.cpu(), None)
    result = Result(
        config=run.prepared.config,
        clients=run.task.clients,
        samples=run.task.samples,
        contributions=run.contributions,
        # A federation that an earlier version began has records without clients' names: their number has to do.
        records=of_clients(
            [record for record in run.records if len(record["neurons"]) == len(run.task.clients)], run.task.clients
        ),
        reputations=run.assignment.reputations,
        layout=layout,
        global_model=common,
        reward_models=models,
        reward_bytes={
            "counted": initial.element_size() * sum(submodel.parameters for submodel in run.reward_submodels),
            "serialised": sum(serialised_bytes(submodel, initial.dtype) for submodel in run.reward_submodels),
        },
        seconds=seconds,
        folder=None if run.folder is None else run.folder.path,
        attack=hostile.outcome(run, reward_models([run])[0]) if run.prepared.attack is not None else None,
        reported_on="validation" if run.prepared.split.test_is_validation else "test",
        classes=run.prepared.split.data.classes,
        confusion=confusion,
    )
    if run.folder is not None:
        if run.committed < run.round:
            run.folder.log(run.records)
        run.folder.finish(result, run.prepared.split, keep_models=run.keep_models)
    watcher.end(run.info, result)
    return result


def _confusion(run: Running, models: Tensor) -> tuple[Counts, ...] | None:
    """Of each client's reward, which classes of the test set it takes for which; None where classes are too many."""
    if len(run.prepared.split.data.classes) > MAX_CONFUSION_CLASSES:
        return None
    counts = confusions(run.prepared.layout, models, run.reward.neurons, run.prepared.test)
    return tuple(tuple(map(tuple, own)) for own in counts.tolist())


def _submodel(layout: AnyLayout, params: Tensor, mask: Tensor | None) -> AnyNetwork:
    """The submodel with these neurons (None: all) of a model [parameters]."""
    if isinstance(layout, ModuleLayout):
        network = ModuleNetwork.of_vector(layout, params, mask)
        # A perceptron that was trained with momentum, say, is one all the same.
        return perceptron_of(network) or network
    whole = Network(layout, params)
    return whole if mask is None else extract(whole, mask)
