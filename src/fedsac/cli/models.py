"""`fedsac predict` and `fedsac export`: use a model from a run's folder."""

import argparse
import csv
import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsac.errors import FedsacError

if TYPE_CHECKING:
    import numpy as np

    from fedsac.models.table import TableSchema


def add(commands: Any) -> None:
    predict = commands.add_parser("predict", help="classify data with a model of a run", allow_abbrev=False)
    predict.add_argument("model", type=Path, metavar="MODEL", help="a .safetensors file of a run")
    predict.add_argument(
        "data", metavar="DATA", help=".npz, .csv or .parquet; or a data set's name: its test set, or all of it"
    )
    predict.add_argument("--out", type=Path, metavar="FILE.csv", help="where the predictions go [standard output]")
    predict.add_argument("--label", default="label", help="label column, if there is one: accuracy is then reported")
    predict.add_argument("--data-dir", type=Path, metavar="FOLDER")
    predict.add_argument(
        "--silo", metavar="NAME", help="correct columns, units and labels as the model's schema does for this silo"
    )
    _add_network(predict)
    predict.set_defaults(do=do_predict)
    export = commands.add_parser("export", help="write a model of a run as ONNX", allow_abbrev=False)
    export.add_argument("model", type=Path, metavar="MODEL", help="a .safetensors file of a run")
    export.add_argument("--out", type=Path, metavar="FILE.onnx", help="[beside the model]")
    _add_network(export)
    export.set_defaults(do=do_export)


def _add_network(command: Any) -> None:
    command.add_argument(
        "--network", metavar="module:factory", help="of a model whose network is your own code: the same as in the run"
    )


def do_predict(chosen: argparse.Namespace) -> None:
    from fedsac.models.files import ModelFile

    model = ModelFile.load(chosen.model, chosen.network)
    if chosen.out is not None:
        _not_over(chosen.out, chosen.model, Path(chosen.data))
    x, labels = _inputs(model, chosen)
    probabilities = model.probabilities(x)
    best = probabilities.argmax(1)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["row", "class", "probability", *(f"probability of {name}" for name in model.classes)])
    for i, k in enumerate(best.tolist()):
        every = [f"{p:.6f}" for p in probabilities[i].tolist()]
        writer.writerow([i, model.classes[k], every[k], *every])
    if chosen.out is None:
        sys.stdout.write(text.getvalue())
    else:
        _write(chosen.out, text.getvalue().encode())
        print(f"{len(best)} predictions are in {chosen.out}", file=sys.stderr)
    if labels is not None:
        _report_scores(probabilities, labels, model.classes, chosen)


def _report_scores(
    probabilities: "np.ndarray", labels: list[str], classes: tuple[str, ...], chosen: argparse.Namespace
) -> None:
    """Say how good the predictions are; raise where a label is none of the model's classes, for then nothing can be
    said: other names for the same classes look like nothing but mistakes."""
    import numpy as np

    from fedsac.core.metrics import accuracy
    from fedsac.data.messages import shown, some

    foreign = [i for i, label in enumerate(labels) if label not in classes]
    if foreign:
        raise FedsacError(
            f"{chosen.data}: label {shown(labels[foreign[0]])} (row {foreign[0]}, counting from 0; {len(foreign)} of "
            f"{len(labels)} such) is none of the model's classes, {some(classes)}; the predictions stand, but to be "
            "scored the labels must have the model's names"
        )
    y = np.array([classes.index(label) for label in labels])
    p = probabilities[np.arange(len(y)), y]
    with np.errstate(divide="ignore"):
        loss = -np.log(p).mean()
    print(f"accuracy {accuracy(y, probabilities):.4f}, log-loss {loss:.4f} on {len(y)} samples", file=sys.stderr)


def do_export(chosen: argparse.Namespace) -> None:
    from fedsac.models.files import ModelFile
    from fedsac.models.onnx import pack, takes

    out = chosen.out or chosen.model.with_suffix(".onnx")
    _not_over(out, chosen.model)
    model = ModelFile.load(chosen.model, chosen.network)
    _write(out, pack(model))
    print(f"{out}: takes {takes(model)}; gives probabilities [n, {len(model.classes)}] of the classes")


def _inputs(model: Any, chosen: argparse.Namespace) -> "tuple[np.ndarray, list[str] | None]":
    """Features in the model's order, and labels if there are any, from a file or from a named data set's test set."""
    path = Path(chosen.data)
    if model.table is not None:
        return _raw_inputs(model.table, path, chosen.silo)
    if chosen.silo is not None:
        raise FedsacError("the model has no schema, so there is nothing to correct; leave --silo out")
    if path.is_file():
        from fedsac.data.files.reading import read_table

        table = read_table(path, chosen.label, require_label=False)
        x = table.x
        if model.features and table.features and table.features != model.features:
            missing = [name for name in model.features if name not in table.features]
            if missing:
                raise FedsacError(f"{path} has no column {missing[0]!r}, which the model was trained with")
            # Columns the model does not know, an identifier for example, are left out.
            x = x[:, [table.features.index(name) for name in model.features]]
        return x, table.labels
    from fedsac.data.catalogue import load

    data = load(chosen.data, chosen.data_dir, label=chosen.label)
    x, y = (data.x, data.y) if data.x_test is None or data.y_test is None else (data.x_test, data.y_test)
    return x, [data.classes[k] for k in y]


def _raw_inputs(table: "TableSchema", path: Path, silo: str | None) -> "tuple[np.ndarray, list[str] | None]":
    """Features and labels of rows as they stand in a file, by the model's own schema."""
    from fedsac.data.schema.fitting import fit, in_other_units, known_names
    from fedsac.data.schema.problems import ProblemsError
    from fedsac.data.schema.raw import read_raw

    if silo is not None and silo not in table.silos:
        known = ", ".join(table.silos) or "nobody"
        raise FedsacError(f"the model's schema corrects nothing for {silo!r}, but for {known}; leave --silo out")
    if not path.is_file():
        raise FedsacError(f"{path}: there is no such file; the model takes rows of a .csv or .parquet table")
    fitted, problems = fit(read_raw(path, known_names(table)), table, silo, new_rows=True)
    if fitted is None:
        raise ProblemsError(problems)
    for told in in_other_units(fitted, table):
        own = f"; --silo corrects what the schema does for {', '.join(table.silos)}" if table.silos and not silo else ""
        print(f"fedsac: warning: {path}: {told} The predictions are then worth nothing{own}", file=sys.stderr)
    return fitted.x, fitted.labels


def _not_over(out: Path, *inputs: Path) -> None:
    for path in inputs:
        if out.exists() and path.exists() and out.samefile(path):
            raise FedsacError(f"{out} is what is read; name another file for --out")


def _write(path: Path, content: bytes) -> None:
    from fedsac.atomic import write_atomic

    if path.exists() and not (path.is_file() and not path.is_symlink()):
        raise FedsacError(f"{path} is not a plain file; name another")
    try:
        write_atomic(path, content)
    except OSError as error:
        raise FedsacError(f"{path}: cannot be written ({error.strerror})") from None
