"""`fedsac` with networks that are no perceptrons: predict, export, compare, pages; and what is refused."""

import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import fedsac
from fedsac.cli import main
from fedsac.config import Config
from fedsac.errors import FedsacError
from fedsac.models.files import ModelFile
from fedsac.runs.setup import prepare

ROOT = Path(__file__).resolve().parents[1]
FLAGS = ["--clients", "3", "--rounds", "2", "--local-steps", "3", "--scene", "iid", "--threads", "1"]
FLAGS += ["--samples-per-client", "60"]


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Colour images of 8 x 8, once with their channels first and once last."""
    folder = tmp_path_factory.mktemp("images")
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 400)
    x = rng.integers(0, 60, (400, 3, 8, 8)).astype(np.uint8)
    x[np.arange(400), y] += 90  # the class is the colour
    np.savez(folder / "first.npz", x=x, y=y)
    np.savez(folder / "last.npz", x=x.transpose(0, 2, 3, 1), y=y)
    return folder


@pytest.fixture(scope="module")
def finished(images, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    command = ["run", "--data", str(images / "last.npz"), "--network", "tests.networks:tiny", *FLAGS]
    assert main([*command, "--out", str(folder)]) == 0
    return folder


def test_channels_may_be_stored_first_or_last(images):
    """Both are the same images to a network that takes [channels, height, width]."""
    common = Config(network="tests.networks:tiny", clients=3, rounds=2, local_steps=3, scene="iid", dtype="float64")
    first, last = (fedsac.run(common.replace(data=str(images / f"{name}.npz"))) for name in ("first", "last"))
    assert first.layout.input.shape == last.layout.input.shape == (3, 8, 8)
    assert first.records[-1]["losses"] == pytest.approx(last.records[-1]["losses"], abs=1e-9)
    assert first.rewards == pytest.approx(last.rewards)


def test_predict_and_export_give_the_same_probabilities(finished, images, tmp_path, capsys):
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    reward = finished / "rewards" / "client-02.safetensors"
    own = ["--network", "tests.networks:tiny"]
    command = ["predict", str(reward), str(images / "last.npz"), "--out", str(tmp_path / "out.csv")]
    assert main(command) == 2
    assert "if you trust that code, name it with --network tests.networks:tiny" in capsys.readouterr().err
    assert main([*command, *own]) == 0
    assert "accuracy" in capsys.readouterr().err
    rows = list(csv.DictReader((tmp_path / "out.csv").read_text().splitlines()))
    assert main(["export", str(reward), "--out", str(tmp_path / "out.onnx"), *own]) == 0
    said = "x [n, 192] float32: images [n, 8, 8, 3], channels last, each flattened to a row, as they stand in the data"
    said += " (values up to 255); the file normalises them itself"
    assert f"out.onnx: takes {said}; gives probabilities [n, 3]" in capsys.readouterr().out
    model = ModelFile.load(reward, "tests.networks:tiny")
    x = np.load(images / "last.npz")["x"].reshape(400, -1)
    expected = model.probabilities(x)
    session = runtime.InferenceSession(str(tmp_path / "out.onnx"), providers=["CPUExecutionProvider"])
    assert session.get_modelmeta().custom_metadata_map["takes"] == said
    (got,) = session.run(None, {"x": x.astype(np.float32)})
    assert np.abs(got - expected).max() < 1e-5
    assert [row["class"] for row in rows] == [model.classes[k] for k in expected.argmax(1)]


def test_a_reward_needs_nothing_of_this_package(finished):
    """Its own class, with the sizes of its own tensors, in a process that cannot import fedsac."""
    script = """
import sys
sys.modules["fedsac"] = None
import torch
from safetensors.torch import load_file
from torch import nn
state = load_file(sys.argv[1])
width, inner, neurons = (len(state[name]) for name in ("0.bias", "3.first.weight", "5.bias"))
class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(width, inner, 3, 1, 1, bias=False), nn.BatchNorm2d(inner)
        self.second = nn.Conv2d(inner, width, 3, 1, 1)
    def forward(self, x):
        return x + self.second(torch.relu(self.norm(self.first(x))))
model = nn.Sequential(nn.Conv2d(3, width, 3, 2, 1), nn.BatchNorm2d(width), nn.ReLU(), Residual(), nn.Flatten(),
                      nn.Linear(16 * width, neurons), nn.Sigmoid(), nn.Linear(neurons, 3))
model.load_state_dict(state)
print(model.eval()(torch.ones(1, 3, 8, 8)).tolist()[0])
"""
    reward = finished / "rewards" / "client-01.safetensors"
    done = subprocess.run([sys.executable, "-c", script, str(reward)], check=True, capture_output=True, text=True)
    expected = ModelFile.load(reward, "tests.networks:tiny").network.logits(torch.ones(1, 192))[0]
    assert json.loads(done.stdout) == pytest.approx(expected.tolist(), abs=1e-5)


def test_a_file_does_not_decide_what_code_runs(finished, tmp_path, monkeypatch):
    (tmp_path / "other_networks.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    content = (finished / "rewards" / "client-01.safetensors").read_bytes()
    (tmp_path / "other.safetensors").write_bytes(content.replace(b"tests.networks:tiny", b"other_networks:tiny"))
    for trusted in (None, "tests.networks:tiny"):
        with pytest.raises(FedsacError, match="if you trust that code"):
            ModelFile.load(tmp_path / "other.safetensors", trusted)


def test_a_changed_network_does_not_take_the_file(finished, tmp_path, monkeypatch):
    (tmp_path / "other_networks.py").write_text(
        "from torch import nn\n\ndef tiny(shape, classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(192, 9), nn.Tanh(), nn.Linear(9, classes))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    content = (finished / "rewards" / "client-01.safetensors").read_bytes()
    changed = content.replace(b"tests.networks:tiny", b"other_networks:tiny")
    (tmp_path / "other.safetensors").write_bytes(changed)
    with pytest.raises(FedsacError, match="other_networks:tiny is not what it was when the model was made"):
        ModelFile.load(tmp_path / "other.safetensors", "other_networks:tiny")


def test_compare_and_the_page(images, tmp_path):
    command = ["compare", "--data", str(images / "first.npz"), "--network", "tests.networks:tiny", *FLAGS]
    assert main([*command, "--methods", "fedsac,fedavg", "--seeds", "2", "--out", str(tmp_path / "both")]) == 0
    assert main(["run", *command[1:], "--out", str(tmp_path / "one")]) == 0
    page = (tmp_path / "one" / "report.html").read_text()
    assert "network tests.networks:tiny with 19 units in 3 groups" in page


def test_a_run_that_was_begun_with_another_network_is_not_taken_up(tmp_path, monkeypatch):
    config = Config(network="tests.networks:dropping", clients=3, rounds=3, local_steps=2, scene="iid")
    with pytest.raises(KeyboardInterrupt):
        fedsac.run(config, tmp_path / "run", watcher=Interrupt())
    text = (tmp_path / "run" / "config.toml").read_text()
    (tmp_path / "run" / "config.toml").write_text(text.replace("tests.networks:dropping", "tests.networks:tiny"))
    with pytest.raises(FedsacError):
        fedsac.resume(tmp_path / "run")


class Interrupt(fedsac.Watcher):
    def round(self, run, record):
        raise KeyboardInterrupt


@pytest.mark.parametrize("command", [["run", "--network"], ["inspect", "--input", "1,8,8"]])
def test_a_network_that_cannot_be_traced(command, tmp_path):
    """One line that names the line of the network's own code; torch would print its graph, and log. In a process of
    its own: torch's handlers keep the stderr that they found."""
    (tmp_path / "branching.py").write_text(
        "import math\nimport torch\nfrom torch import nn\n\nclass Branching(nn.Module):\n"
        "    def __init__(self, features, classes):\n        super().__init__()\n"
        "        self.first, self.last = nn.Linear(features, 8), nn.Linear(8, classes)\n\n"
        "    def forward(self, x):\n        h = torch.relu(self.first(x.flatten(1)))\n"
        "        return self.last(h) if h.sum() > 0 else self.last(2 * h)\n\n"
        "def network(shape, classes):\n    return Branching(math.prod(shape), classes)\n"
    )
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    whole = [sys.executable, "-m", "fedsac", *command, "branching:network"]
    done = subprocess.run(whole, capture_output=True, text=True, env=env, cwd=tmp_path)
    said = done.stderr.splitlines()
    assert done.returncode == 2 and len(said) == 1 and len(said[0]) < 500
    assert said[0].startswith(
        f"fedsac: Branching cannot be traced at {tmp_path / 'branching.py'}, line 12 (return self"
    )
    assert "depends on the numbers in its input" in said[0] and "torch.where" in said[0] and "units_by_hand" in said[0]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"data": "tests.networks:fractions", "network": "tests.networks:small_text"}, "takes tokens: whole numbers"),
        ({"data": "tests.networks:sentences", "network": "text:5"}, r"knows tokens 0 to 4; .* has 19"),
        ({"data": "tests.networks:sentences", "network": "cnn"}, "is for images"),
    ],
)
def test_data_that_a_network_does_not_take(changes, says):
    with pytest.raises(FedsacError, match=says):
        prepare([Config(clients=2, scene="iid", **changes)])


@pytest.mark.slow
def test_killed_and_resumed(images, tmp_path):
    """kill -9 in the middle of rounds; resumed, the folder ends with the bytes of a run that nobody disturbed."""
    command = [sys.executable, "-m", "fedsac", "run", "--data", str(images / "first.npz"), *FLAGS]
    command += ["--network", "tests.networks:tiny", "--rounds", "12", "--momentum", "0.5", "--augment", "flip+crop"]
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    subprocess.run([*command, "--out", str(tmp_path / "whole")], check=True, capture_output=True, env=env)
    process = subprocess.Popen(
        [*command, "--out", str(tmp_path / "cut")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env
    )
    while not list((tmp_path / "cut").glob("checkpoints/round-00000[3-9]*")) and process.poll() is None:
        pass
    process.send_signal(signal.SIGKILL)
    process.wait()
    again = [sys.executable, "-m", "fedsac", "run", "--resume", str(tmp_path / "cut")]
    subprocess.run(again, check=True, capture_output=True, env=env)
    for path in (tmp_path / "whole").rglob("*"):
        if path.is_file() and path.name not in ("timing.json", "report.html", "README.md", "config.toml"):
            assert path.read_bytes() == (tmp_path / "cut" / path.relative_to(tmp_path / "whole")).read_bytes(), path
