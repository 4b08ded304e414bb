"""Labels that are quantities are refused, by what makes them look so; scores that fit rare classes."""

import json
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


def rare(rng, samples: int, ill: int, noise: float = 0.0) -> tuple[np.ndarray, list[str]]:
    """Patients of whom few are ill, and told apart by a line; of `noise` of them the label is turned."""
    x = np.concatenate([rng.normal(0, 1, (samples - ill, 4)), rng.normal(1.2, 1, (ill, 4))])
    is_ill = np.arange(samples) >= samples - ill
    turned = is_ill ^ (rng.random(samples) < noise)
    return x, ["ill" if each else "well" for each in turned]


@pytest.fixture(scope="module")
def one_in_twenty(tmp_path_factory) -> Path:
    """Silos of unequal size and quality in which one of 21 is ill."""
    folder, rng = tmp_path_factory.mktemp("rare") / "silos", np.random.default_rng(4)
    folder.mkdir()
    sizes = {"a": (42, 2), "b": (105, 5), "c": (210, 10), "d": (630, 30), "validation": (630, 30), "test": (1260, 60)}
    for name, (samples, ill) in sizes.items():
        write(folder / f"{name}.csv", *rare(rng, samples, ill, 0.2 if name == "a" else 0.0))
    return folder


def run_by(metric: str, silos: Path, *more: str) -> dict:
    quick = ["--rounds", "8", "--hidden", "12", "--standalone-steps", "160", "--dtype", "float64", "--lr", "0.1"]
    out = f"by-{metric}{''.join(more)}"
    assert main(["run", "--data", str(silos), "--metric", metric, *quick, *more, "--out", out]) == 0
    return json.loads((Path(out) / "summary.json").read_text())


@pytest.mark.parametrize("metric", ["auc", "macro-f1", "balanced-accuracy"])
def test_where_one_in_twenty_is_ill_scores_that_fit_tell_clients_apart(metric, one_in_twenty):
    """By accuracy everyone who says "well" has 20/21, and rewards hardly differ; by these, gamma exists and rewards
    follow contributions."""
    found = run_by(metric, one_in_twenty)
    contributions, rewards = found["contributions_test"], found["rewards"]
    assert found["results"]["last"]["gamma"] > 70
    assert int(np.argmax(contributions)) == 3 == int(np.argmax(rewards))  # the largest silo
    assert max(contributions) - min(contributions) > 0.1


def test_class_weights_find_the_rare_class(one_in_twenty):
    """By recall of the classes, what is trained with balanced weights is better for most, and the best of all."""
    plain = run_by("balanced-accuracy", one_in_twenty)
    weighted = run_by("balanced-accuracy", one_in_twenty, "--class-weights", "balanced")
    gains = np.array(weighted["rewards"]) - plain["rewards"]
    assert max(weighted["rewards"]) > max(plain["rewards"]) + 0.02 and (gains > 0).sum() >= 3
