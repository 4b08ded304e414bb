"""What a site answers at most: its own floors and ceilings in site.toml, checked again at every order.

The coordinator proposes batch size, steps and learning rate when the site joins. Batches of one sample and rounds of
one step would hand it the samples themselves: the change of a unit's weights, divided by that of its bias, is the
sample. `docs/deployment.md` has what is left.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from fedsac.core.units import Layout
from fedsac.federation.declining import VERSION, DeclinedError
from fedsac.federation.folder import SiteSettings
from fedsac.federation.wire import WIRE_FORMAT, Order
from fedsac.version import __version__

SETTINGS = ("seed", "lr", "batch", "local_steps", "dtype")  # what a coordinator decides of how a site trains
MODULE_SETTINGS = ("momentum", "weight_decay", "clip", "augment", "batch_norm", "hidden")  # of any network, and these
SCHEDULE_SETTINGS = ("lr_schedule", "rounds")  # where the learning rate is not constant
CLASS_WEIGHTS = "class_weights"  # where classes are weighted, by each site's own counts


def check_settings(site: SiteSettings, asked: Mapping[str, Any], samples: int) -> None:
    """Raise unless the site trains by these settings on so many samples."""
    known = {*SETTINGS, *MODULE_SETTINGS, *SCHEDULE_SETTINGS, CLASS_WEIGHTS}
    if not set(SETTINGS) <= set(asked) <= known:
        # Others name functions that the site would import and call, as `network` does.
        raise DeclinedError("settings", f"{', '.join(map(str, asked))} are decided on, and not {', '.join(SETTINGS)}")
    if samples < site.least_samples:
        raise DeclinedError("samples", f"{samples} samples, and least_samples is {site.least_samples}")
    batch = min(int(asked["batch"]), samples)
    if batch < site.least_batch:
        raise DeclinedError("batch", f"batches of {batch} samples are asked for, and least_batch is {site.least_batch}")
    check_steps(site, int(asked["local_steps"]))
    if site.private and asked.get(CLASS_WEIGHTS, "none") != "none":
        # The weights are class counts, which the noise does not cover.
        raise DeclinedError("private", "class weights are asked for, and this site trains with differential privacy")
    if not 0 < float(asked["lr"]) <= site.highest_lr:
        raise DeclinedError("lr", f"a learning rate of {asked['lr']} is asked for; highest_lr is {site.highest_lr}")


def check_wire(order: Order) -> None:
    """Raise unless the order is in the wire format that this site reads and writes."""
    if order.wire != WIRE_FORMAT:
        raise DeclinedError(
            VERSION,
            f"the coordinator runs fedsac {order.fedsac} (wire format {order.wire}), this site {__version__} "
            f"({WIRE_FORMAT}); install fedsac {order.fedsac} here and start the site again",
        )


def check_steps(site: SiteSettings, steps: int) -> None:
    if steps < site.least_steps:
        raise DeclinedError("steps", f"{steps} steps are asked for, and least_steps is {site.least_steps}")


def check_count(site: SiteSettings, trained: int) -> None:
    """Raise if the site was asked to train more than `most_rounds` times."""
    if trained > site.most_rounds:
        raise DeclinedError("rounds", f"asked to train for the {trained}th time; most_rounds is {site.most_rounds}")


def check_model(layout: Layout, agreed: Sequence[int]) -> None:
    """Raise unless a model is a part of the one that was agreed on: as many layers, none of them wider."""
    sizes = layout.sizes
    fits = len(sizes) == len(agreed) and all(own <= most for own, most in zip(sizes, agreed, strict=True))
    if not fits or (sizes[0], sizes[-1]) != (agreed[0], agreed[-1]):
        raise DeclinedError("model", f"a model of sizes {list(sizes)} came, and {list(agreed)} was agreed on")
