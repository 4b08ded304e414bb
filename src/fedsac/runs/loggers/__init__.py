"""Logs and trackers: what `--log` names, each a `Watcher` that is constructed without arguments."""

from fedsac.doors import LOGGERS
from fedsac.errors import FedsacError
from fedsac.runs.watcher import Watcher


def make(name: str) -> Watcher:
    """The log of this name: `csv`, `tensorboard`, `mlflow`, or one of your own as `module:Class`.

    >>> type(make("csv")).__name__
    'CsvLogger'
    """
    if LOGGERS.parse(name)[1] is not None:
        raise FedsacError(f"log {name!r}: a log takes no parameter; leave what stands behind the class out")
    kind = LOGGERS.resolve(name)
    if not isinstance(kind, type) or not issubclass(kind, Watcher):
        raise FedsacError(f"log {name!r} is no class derived from fedsac.Watcher; docs/logging.md shows one")
    try:
        return kind()
    except FedsacError:
        raise
    except Exception as error:  # a person's own class, or MLflow with its server out of reach
        raise FedsacError(f"log {name!r} cannot be begun: {type(error).__name__}: {error}") from error
