"""Labels that are quantities are refused, by what makes them look so; scores that fit rare classes."""

from pathlib import Path

import numpy as np
import pytest

import fedsac
from fedsac import Config, FedsacError
from fedsac.cli import main
from fedsac.data.files.labels import class_names, label_texts


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write(path: Path, x: np.ndarray, labels) -> None:
    heads = [f"f{k}" for k in range(x.shape[1])]
    rows = [",".join([*map(str, row), str(label)]) for row, label in zip(x.tolist(), labels, strict=True)]
    path.write_text("\n".join([",".join([*heads, "label"]), *rows]) + "\n")


@pytest.mark.parametrize("whole", [True, False], ids=["whole numbers", "fractions"])
def test_a_regression_target_is_refused_in_one_line(whole, capsys):
    """scikit-learn's diabetes table: 214 different numbers in 442 samples. It said "391 classes", and scored 0.000."""
    from sklearn.datasets import load_diabetes

    x, y = load_diabetes(return_X_y=True)
    write(Path("disease.csv"), x, y.astype(int) if whole else y + 0.5)
    assert main(["run", "--data", "disease.csv", "--scene", "iid", "--clients", "3", "--out", "run"]) == 2
    said = capsys.readouterr().err.strip()
    assert "disease.csv: the label has 214 different numbers in 442 samples" in said and len(said.splitlines()) == 1
    assert ("as 151.5" in said) == (not whole)
    assert "regression" in said and not Path("run").exists()
    assert main(["data", "check", "disease.csv"]) == 2
    with pytest.raises(FedsacError, match="214 different numbers in 442 samples"):
        fedsac.run(Config(rounds=1, clients=3), data=(x, y if whole else y + 0.5))


def test_what_is_refused_and_what_is_not():
    recurring = [str(k) for k in range(30)] * 5
    assert len(class_names(recurring, "x")) == 30  # thirty classes of five
    assert len(class_names([str(k) for k in range(20)], "x")) == 20  # few, and whole
    assert len(class_names([f"c{k}" for k in range(300)], "x")) == 300  # names, not numbers
    assert len(class_names([f"{k}.5" for k in range(20)], "x")) == 20  # few, as half stars are
    for labels in (recurring[:-1], [f"{k}e-1" for k in range(11, 41)] * 50, [f"{k}.5" for k in range(21)] * 50):
        with pytest.raises(FedsacError, match="regression"):
            class_names(labels, "x")
    with pytest.raises(FedsacError, match="not a whole number"):
        label_texts(np.array([0.5, 1.0, 0.5]), "x")
    with pytest.raises(FedsacError, match="not a whole number"):  # a missing label is not a quantity
        label_texts(np.append(np.arange(30), np.nan), "x")


def rare(rng, samples: int, ill: int, noise: float) -> tuple[np.ndarray, list[str]]:
    """Patients of whom few are ill; three of six values tell, under this much noise."""
    is_ill = np.arange(samples) >= samples - ill
    x = rng.normal(0, 1, (samples, 6))
    x[:, :3] += 1.1 * is_ill[:, None]
    return x + noise * rng.normal(0, 1, x.shape), ["ill" if each else "well" for each in is_ill]


def three_draws(folder: Path) -> list[Path]:
    """Three times four silos of unequal size and quality, in which one patient of 21 is ill."""
    folders = []
    for seed in (4, 5, 6):
        silos, rng = folder / f"silos{seed}", np.random.default_rng(seed)
        silos.mkdir()
        sizes = {"a": (105, 5, 6), "b": (210, 10, 3), "c": (420, 20, 1.5), "d": (840, 40, 0)}
        for name, size in {**sizes, "validation": (630, 30, 0), "test": (1260, 60, 0)}.items():
            write(silos / f"{name}.csv", *rare(rng, *size))
        folders.append(silos)
    return folders


@pytest.fixture(scope="module")
def one_in_twenty(tmp_path_factory) -> list[Path]:
    return three_draws(tmp_path_factory.mktemp("rare"))


def run_by(metric: str, silos: list[Path], **more: str) -> list[fedsac.Result]:
    config = Config(metric=metric, rounds=20, hidden=(32, 16), threads=1, **more)
    return [fedsac.run(config.replace(data=str(folder))) for folder in silos]


def test_by_accuracy_nothing_is_to_be_seen_where_one_in_twenty_is_ill(one_in_twenty):
    """Everyone says "well", and is right in 20 of 21 cases; that the models order patients well, AUC tells."""
    for result in run_by("accuracy", one_in_twenty):
        assert result.last["gamma"] is None and result.rewards == pytest.approx([20 / 21] * 4)


@pytest.mark.parametrize(
    ("metric", "more"),
    [
        ("auc", {}),
        ("macro-f1", {"class_weights": "balanced"}),
        ("balanced-accuracy", {"class_weights": "balanced", "method": "fedsac-plus"}),
    ],
)
def test_scores_that_fit_tell_the_silos_apart(metric, more, one_in_twenty):
    """gamma is defined, and rewards follow contributions. What needs a predicted class needs class weights, too: nobody
    is called ill without them."""
    found = run_by(metric, one_in_twenty, **more)
    gammas = [result.last["gamma"] for result in found]
    assert None not in gammas and np.mean(gammas) > 60
    for result in found:
        assert int(np.argmax(result.contributions.validation)) in (2, 3) and max(result.rewards) > 0.6


@pytest.mark.parametrize("metric", ["macro-f1", "balanced-accuracy"])
def test_class_weights_find_the_rare_class(metric, one_in_twenty):
    """In the last rounds' confusion tables: who is called ill, without weights nobody."""
    for weights, finds in (("none", False), ("balanced", True)):
        for result in run_by(metric, one_in_twenty, class_weights=weights):
            assert result.classes == ("ill", "well") and result.confusion is not None
            assert any(counts[0][0] > 10 for counts in result.confusion) == finds
