"""Contributions from several checkpoints of one standalone training, and their standard errors."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import fedsac
from fedsac import Config, FedsacError
from fedsac.compute import evaluation
from fedsac.contributions.measurement import Measurement, checkpoint_steps
from fedsac.contributions.standalone import standalone, trained_alone, training_alone
from fedsac.core import metrics
from fedsac.federation.folder import Federation
from fedsac.federation.simulation import deal_out
from fedsac.report import page
from fedsac.runs.setup import prepare

SMALL = Config(rounds=3, clients=4, hidden=(16,), local_steps=8, standalone_steps=155)  # 20 parts, the last of 3 steps
AT = (144, 152, 155)  # 3 of the 4 ends in the last fifth


def measurement(config=SMALL, steps=None):
    (p,) = prepare([config])
    checkpoints = config.standalone_checkpoints
    return Measurement(p.clients, p.initial, steps or config.alone(), p.validation, p.test, p.metric, checkpoints)


def scores(run, models):
    both = (run.validation, run.test)
    return [evaluation.evaluate(run.clients.layout, models, None, on, metric=run.metric)[0] for on in both]


def test_which_steps():
    assert checkpoint_steps(155, 8, 1) == (155,)
    assert checkpoint_steps(155, 8, 3) == AT
    assert checkpoint_steps(155, 8, 4) == (136, 144, 152, 155)
    assert checkpoint_steps(7, 8, 1) == (7,)


def test_a_contribution_is_the_mean_score_of_models_trained_for_so_long():
    run = replace(measurement(), checkpoints=3)
    (found,) = standalone([run])
    # Trained anew for each number of steps: a shorter training is the beginning of the longer one.
    apart = [scores(run, trained_alone([replace(run, steps=steps)])[0]) for steps in AT]
    assert found.validation == pytest.approx(np.mean([on_v.numpy() for on_v, _ in apart], 0), abs=1e-15)
    assert found.test == pytest.approx(np.mean([on_test.numpy() for _, on_test in apart], 0), abs=1e-15)
    assert not np.allclose(found.validation, apart[-1][0])  # so that the mean differs from the last


def test_one_checkpoint_is_the_final_model_to_the_last_bit():
    run = measurement()
    on_v, on_test = scores(run, trained_alone([run])[0])
    (found,) = standalone([run])
    assert (list(found.validation), list(found.test)) == (on_v.tolist(), on_test.tolist())


def test_every_part_of_the_training_draws_new_batches():
    """With so low a learning rate that the same batches would give the same update again."""
    run = measurement(SMALL.replace(lr=1e-6, dtype="float64", local_steps=2, batch=8, standalone_steps=4))
    first, second = (part[0].models for part in training_alone([run]))
    updates = first - run.initial, second - first
    assert all((own.norm(dim=1) > 0).all() for own in updates)
    apart = (updates[1] - updates[0]).norm(dim=1) / updates[0].norm(dim=1)
    assert (apart > 0.05).all()


def test_runs_side_by_side_have_their_own_checkpoints():
    one, three = measurement(), replace(measurement(SMALL.replace(seed=1)), checkpoints=3, steps=125)
    together = standalone([one, three])
    assert together == [*standalone([one]), *standalone([three])]


def test_a_client_that_diverges_counts_as_0():
    run = replace(measurement(), checkpoints=3)
    x = run.clients.pool.x.double().clone()
    x[run.clients.rows[1]] = torch.inf
    pool = replace(run.clients.pool, x=x.to(run.initial.dtype))
    (found,) = standalone([replace(run, clients=replace(run.clients, pool=pool))])
    (sound,) = standalone([run])
    assert found.diverged == (run.clients.names[1],)
    assert found.validation[1] == found.test[1] == found.error[1] == 0
    assert found.validation[0] == sound.validation[0] > 0


def test_a_model_that_diverged_is_not_shown_to_the_metric():
    """A metric of one's own need not know what to do with NaN."""

    def of_numbers(labels, probabilities):
        assert np.isfinite(np.asarray(probabilities)).all()
        return metrics.accuracy(labels, probabilities)

    run = replace(measurement(), metric=of_numbers)
    x = run.clients.pool.x.float()
    x[run.clients.rows[1]] = torch.inf
    (found,) = standalone([replace(run, clients=replace(run.clients, pool=replace(run.clients.pool, x=x)))])
    assert found.diverged == (run.clients.names[1],) and found.validation[1] == found.error[1] == 0


def test_where_everybody_diverges_there_are_no_contributions():
    run = measurement()
    pool = replace(run.clients.pool, x=torch.full_like(run.initial[:1], torch.inf).expand(run.clients.pool.x.shape))
    with pytest.raises(FedsacError, match=r"every client's standalone training diverged at lr 0\.05; lower --lr"):
        standalone([replace(run, clients=replace(run.clients, pool=pool))])


def test_a_run_with_checkpoints_resumes_to_the_same_bytes(tmp_path):
    config = SMALL.replace(standalone_checkpoints=3)
    whole = fedsac.run(config, tmp_path / "whole")
    assert whole.contributions == standalone([measurement(config)])[0]

    class Stop(fedsac.Watcher):
        def round(self, run, record):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fedsac.run(config, tmp_path / "parts", watcher=Stop())
    resumed = fedsac.resume(tmp_path / "parts")
    assert resumed.contributions == whole.contributions
    for name in ("rounds.jsonl", "summary.json", "config.toml"):
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_runs_of_earlier_versions_can_still_be_resumed():
    """They had no such setting: at 1, a run is recognised by the fingerprint that they gave it."""
    one, three = (prepare([SMALL.replace(standalone_checkpoints=k)])[0].fingerprint for k in (1, 3))
    assert one.startswith("64bbdce10febe548") and not three.startswith("64bbdce10febe548")


@pytest.mark.parametrize("count", [0, 2.0, 5])  # four fit
def test_a_number_that_cannot_be_is_refused(count):
    with pytest.raises(FedsacError, match="standalone_checkpoints must be"):
        prepare([SMALL.replace(standalone_checkpoints=count)])


def test_a_federation_refuses_checkpoints(tmp_path):
    (tmp_path / "federation.toml").write_text("[run]\nstandalone_checkpoints = 3\n")
    with pytest.raises(
        FedsacError, match="standalone_checkpoints is not a setting of a federation's run; a site sends"
    ):
        Federation.load(tmp_path)
    with pytest.raises(FedsacError, match="no standalone_checkpoints; leave --standalone-checkpoints out"):
        deal_out(SMALL.replace(standalone_checkpoints=3), tmp_path / "simulated")


def test_standard_errors_are_in_the_summary_and_on_the_page(tmp_path):
    result = fedsac.run(SMALL, tmp_path / "run")
    c = np.array(result.contributions.validation)
    n = len(prepare([SMALL])[0].validation.y)
    assert result.contributions.error == pytest.approx(np.sqrt(c * (1 - c) / n))
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["contributions_error"] == list(result.contributions.error)
    written = page.write([tmp_path / "run"])[0].read_text()
    assert "± on V" in written
    assert all(f">{100 * error:.1f}<" in written for error in result.contributions.error)


def test_standard_errors_of_another_metric_are_the_jackknifes():
    run = replace(measurement(), metric=metrics.balanced_accuracy)
    (found,) = standalone([run])
    (by_accuracy,) = standalone([measurement()])
    assert list(found.validation) == scores(run, trained_alone([run])[0])[0].tolist() != list(by_accuracy.validation)
    # About those of accuracy, as the digits' classes are nearly equal in number; not the same numbers.
    assert found.error == pytest.approx(by_accuracy.error, rel=0.6)
    assert found.error != by_accuracy.error


def test_a_metric_that_is_not_defined_on_parts_of_v_has_no_error():
    n = len(measurement().validation.y)

    def of_all_samples(labels, probabilities):
        return float("nan") if len(labels) < n else metrics.accuracy(labels, probabilities)

    run = replace(measurement(), metric=of_all_samples)
    (found,) = standalone([replace(run, test=run.validation)])
    assert found.error is None and found.validation == found.test


def test_the_table_of_noise_is_that_of_its_raw_files():
    docs = Path(__file__).parents[1] / "docs"
    section = (docs / "decisions.md").read_text().partition("## Less noise in contributions")[2].partition("\n## ")[0]
    lines = section.splitlines()
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    table = table[2:]
    for data, scene, *shown in table:
        raw = json.loads((docs / "results" / "contribution-noise" / f"{data}.json").read_text())
        cells = [cell for name, cell in raw.items() if name.split()[0] == scene]
        columns = [("seeds", way) for way in ("final", "mean 2", "mean 5", "mean 10", "weights", "sizes")]
        columns += [(key, way) for key in ("V, test", "others", "attainable") for way in ("final", "mean 10")]
        assert shown == [f"{np.mean([cell[way][key] for cell in cells]):.1f}" for key, way in columns]
    assert len(table) == 8
