"""gamma attainable: by hand, its properties, and in a run and everything a run leaves."""

import csv
import json

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import fedsac
from fedsac import Config
from fedsac.contributions.base import Contributions
from fedsac.core.fairness import fairest_rewards
from fedsac.report import page
from fedsac.report.reading import read_run
from fedsac.runs.comparison import rows
from fedsac.runs.labels import judged, judged_again
from fedsac.runs.loggers.csvfile import CsvLogger

TINY = Config(rounds=4, clients=4, hidden=(16,), local_steps=8, standalone_steps=24)


def test_by_hand():
    # The second client stands close to the best one, .48 to .5: BCF keeps its reward below (.48 + .6) / 2 = .54, and
    # the first client's at .3 or more. The line through .3 and .6 would give it .57: the bounds bind, (.3, .54, .6).
    known = [0.3, 0.48, 0.5]
    assert fairest_rewards(known, 0.6) == pytest.approx([0.3, 0.54, 0.6])
    # On the test set the second is the better one. Centred: (-19, 11, 8) / 150 and (-.18, .06, .12).
    c, theta = np.array([-19, 11, 8]) / 150, np.array([-0.18, 0.06, 0.12])
    expected = 100 * (c @ theta) / np.sqrt((c @ c) * (theta @ theta))
    assert fedsac.gamma_attainable([0.3, 0.5, 0.48], known, 0.6) == pytest.approx(expected)
    assert expected < fedsac.gamma_limit([0.3, 0.5, 0.48], 0.6)


CONTRIBUTIONS = st.lists(st.tuples(st.floats(0.1, 0.6), st.floats(0.1, 0.6)), min_size=2, max_size=8)


@given(CONTRIBUTIONS, st.floats(0.001, 0.4))
def test_exact_knowledge_attains_the_limit_and_nothing_is_above_100(pairs, above):
    c, known = np.array(pairs).T
    assume(np.ptp(c) > 1e-6 and np.ptp(known) > 1e-6)
    best = float(max(c.max(), known.max())) + above
    assert fedsac.gamma_attainable(c, c, best) == fedsac.gamma_limit(c, best)
    attained = fedsac.gamma_attainable(c, known, best)
    assert attained is not None and -100 <= attained <= 100


@given(CONTRIBUTIONS, st.floats(0.001, 0.4))
def test_the_fairest_rewards_are_those_of_the_limit_and_inside_the_bounds(pairs, above):
    c = np.array(pairs)[:, 0]
    assume(np.ptp(c) > 1e-6)
    best = float(c.max()) + above
    theta = fairest_rewards(c, best)
    top = c == c.max()
    assert (theta[top] == best).all()
    assert (theta >= c).all() and (theta[~top] <= (c[~top] + best) / 2).all()
    assert fedsac.gamma(c, theta) == fedsac.gamma_limit(c, best)


def test_it_does_not_exist_where_what_decides_has_nothing_inside_bcf():
    c, rewards = (0.3, 0.5), [0.4, 0.55]
    # 0.55 is above both contributions on the test set, but not above those on V.
    assert judged(Contributions((0.3, 0.56), c), "validation", rewards)["gamma_attainable"] is None
    assert judged(Contributions((0.3, 0.56), c), "test", rewards)["gamma_attainable"] == pytest.approx(100)
    assert judged(Contributions((0.4, 0.4), c), "validation", rewards)["gamma_attainable"] is None
    assert judged(Contributions(c, c), "validation", None)["gamma_attainable"] is None


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return fedsac.run(TINY, tmp_path_factory.mktemp("runs") / "run", watcher=CsvLogger())


def test_a_run_shows_it_everywhere(run):
    c, folder = run.contributions, run.folder
    for record in run.records:
        theta = fairest_rewards(c.validation, max(record["rewards"]))
        expected = None if theta is None else fedsac.gamma(c.test, theta)
        assert record["gamma_attainable"] == expected
    last = run.last["gamma_attainable"]
    assert last is not None and last != run.last["gamma_limit"]
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["results"]["last"]["gamma_attainable"] == last
    with (folder / "rounds.csv").open() as file:
        assert float(list(csv.DictReader(file))[-1]["gamma_attainable"]) == last
    written = page.write([folder])[0].read_text()
    assert f"attainable {last:.2f}" in written
    assert rows([run])[0].values["gamma_attainable"] == [last]


def test_where_test_contributions_decide_it_is_the_limit():
    result = fedsac.run(TINY.replace(contribution_on="test"))
    limits = [record["gamma_limit"] for record in result.records]
    assert [record["gamma_attainable"] for record in result.records] == limits
    again = judged_again(result.records, result.contributions, "test")
    assert [record["gamma_attainable"] for record in again] == pytest.approx(limits)


def test_folders_of_earlier_versions_are_read(run, tmp_path):
    """Without attainable gammas and standard errors: the first are worked out, the second unknown."""
    old = tmp_path / "old"
    old.mkdir()
    summary = json.loads((run.folder / "summary.json").read_text())
    del summary["contributions_error"]
    for numbers in summary["results"].values():
        del numbers["gamma_attainable"]
    (old / "summary.json").write_text(json.dumps(summary))
    records = [json.loads(line) for line in (run.folder / "rounds.jsonl").read_text().splitlines()]
    stripped = [{key: value for key, value in r.items() if key != "gamma_attainable"} for r in records]
    (old / "rounds.jsonl").write_text("".join(json.dumps(record) + "\n" for record in stripped))
    config = (run.folder / "config.toml").read_text()
    (old / "config.toml").write_text(config.replace("standalone_checkpoints = 1\n", ""))
    read = read_run(old)
    assert [r["gamma_attainable"] for r in read.records] == [r["gamma_attainable"] for r in run.records]
    assert read.contributions.error is None
    assert "± on V" not in page.write([old], tmp_path / "old.html")[0].read_text()
