"""What a server does with data of its own besides measuring: SGD steps on a part of V."""

from torch import Tensor

from fedsac.errors import FedsacError
from fedsac.methods.base import Task
from fedsac.methods.shared.calibration import ValidationParts


def trained_by_server(task: Task, model: Tensor, steps: int, share: float, round: int) -> Tensor:
    """A model [parameters] after `steps` SGD steps on this `share` of V: always the same part, drawn once."""
    own = task.part(ValidationParts.draw(task, share).server_rows) if share < 1 else task.validation
    return task.steps(model, own, steps, round)


def check_server_data(steps: int, share: float) -> None:
    """Raise where these are no numbers for `trained_by_server`."""
    if steps < 1:
        raise FedsacError(f"option server_steps must be at least 1, not {steps:g}")
    if not 0 < share <= 1:
        raise FedsacError(f"option server_share must lie above 0 and at most at 1, not {share:g}")
