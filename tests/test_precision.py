"""The precision of a GPU's products: what can be said of it without one."""

from dataclasses import replace

import pytest
import torch

from fedsac import Config, FedsacError, run
from fedsac.compute.cuda import precision
from fedsac.runs import loop
from fedsac.runs.local import LocalEngine
from fedsac.runs.running import Running
from fedsac.runs.setup import prepare
from fedsac.runs.start import nobody_absent
from fedsac.runs.watcher import Watcher

QUICK = {"rounds": 1, "clients": 3, "hidden": (4,), "standalone_steps": 1}


@pytest.mark.parametrize(
    "settings, said",
    [
        ({"precision": "tf32"}, "precision tf32 is a GPU's; leave it out, or use --device cuda"),
        ({"precision": "half"}, "precision must be float32 or tf32 or bf16, not 'half'"),
    ],
)
def test_what_cannot_be_is_refused(settings, said):
    with pytest.raises(FedsacError, match=said):
        run(Config(**QUICK, **settings))


def test_float32_is_what_one_gets_anyway():
    named, plain = (prepare([Config(**QUICK, precision=name)])[0] for name in ("float32", None))
    assert named.config == plain.config and named.fingerprint == plain.fingerprint


def test_runs_side_by_side_share_one(monkeypatch):
    runs = [Running(prepare([Config(**QUICK)])[0]) for _ in range(2)]
    odd = runs[1].prepared.config.replace(precision="tf32")
    monkeypatch.setattr(runs[1], "prepared", replace(runs[1].prepared, config=odd))
    with pytest.raises(FedsacError, match="share one precision"):
        loop.play(runs, LocalEngine(Watcher(), nobody_absent), Watcher())


def test_a_run_on_a_cpu_leaves_torchs_own_switches_alone():
    def switches():
        return [
            getattr(backend.matmul, "fp32_precision", None) for backend in (torch.backends.cuda, torch.backends.mkldnn)
        ]

    before = switches()
    run(Config(**QUICK))
    assert switches() == before


def test_where_there_is_a_gpu_it_is_set_and_put_back():
    before = precision._torch_precision()
    with precision.using("bf16", torch.device("cuda")):
        assert (precision.current(), precision._torch_precision()) == ("bf16", ("tf32", "tf32"))
        with precision.using("float32", torch.device("cuda")):
            assert (precision.current(), precision._torch_precision()) == ("float32", ("ieee", "ieee"))
    assert (precision.current(), precision._torch_precision()) == ("float32", before)
