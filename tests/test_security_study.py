"""`python -m benchmarks.security attacks`: goes on, refuses what does not fit, and says what `fedsac attack` says."""

import json

import pytest
import torch

from benchmarks.security import owners
from benchmarks.security.__main__ import main
from benchmarks.security.attacks_page import measured, write
from fedsac import Config


@pytest.mark.slow
def test_a_small_study(tmp_path):
    small = ["attacks", str(tmp_path), "--attacks", "zero,sybils,backdoor@top", "--rounds", "2"]
    main([*small, "--seeds", "1"])
    raw = (tmp_path / "digits-pow.json").read_bytes()
    (tmp_path / "digits-pow.json").unlink()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/*/**/summary.json")}
    main([*small, "--seeds", "1"])
    assert (tmp_path / "digits-pow.json").read_bytes() == raw
    # With their clean runs: four of ours and five others under three attacks, one of ours with each defence alone under
    # two, and four with clients missing.
    assert len(before) == 4 * 4 + 5 * 4 + 5 * 3 + 4
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/*/**/summary.json")}
    with pytest.raises(SystemExit, match="holds another study"):
        main([*small, "--seeds", "2"])

    runs = json.loads(raw)["runs"]
    clean = {run["method"]: run for run in runs if run["attack"] == "clean"}
    mine = {(r["attack"], r["method"]): measured(r, clean[r["method"]]) for r in runs if r["attack"] != "clean"}
    assert len(clean) == 4 + 5 + 5 + 4 and len(mine) == 4 * 3 + 5 * 3 + 5 * 2
    for part, first in (("ours", ""), ("defences", ", hardened work"), ("others", "")):
        for run in json.loads((tmp_path / "digits-pow" / part / "results.json").read_text())["runs"]:
            own = mine[run["attack"], run["method"] + ("" if "," in run["method"] else first)]
            for key in own.keys() - {"one_loss", "mean_success"}:  # the page's own; docs/security.md is tested for them
                value, expected = own[key], run["measured"][key]
                assert value == (None if expected is None else pytest.approx(expected, abs=1e-5)), (run["attack"], key)

    (tmp_path / "docs" / "results" / "attacks").mkdir(parents=True)
    (tmp_path / "docs" / "results" / "attacks" / "digits-pow.json").write_bytes(raw)
    page = write(tmp_path / "docs").read_text()
    assert page.count("| `sybils` |") == 5 and page.count("| `backdoor@top` |") == 4


def test_who_is_taken_for_the_owner_is_counted_by_the_sum_of_all_rounds_so_far():
    """Three clients, each with a way of its own. In the first round the second one goes along the first one's."""
    ways = torch.eye(3, dtype=torch.float64)
    first = torch.tensor([[0.5, 0, 3], [1.0, 0, 0], [0, 0, 1]], dtype=torch.float64)
    everything = torch.ones(3, 3, dtype=torch.bool)
    taken = owners._taken([(first, everything), *[(ways, everything)] * 2], ways)
    # By whole steps the second is taken for the owner of the first's model (cosines .16 and 1; added up, then 1.16 and
    # 1), and both others for that of the second's (0 and 0: it does not stand out); nobody for that of the third's.
    assert taken["whole_steps"] == [3, 0, 0]
    assert len(taken["fits"]) == 3 and taken["fits"][-1] == 0


def test_pairs_of_clients_in_rounds_together_and_in_a_hardened_run():
    config = Config(clients=4, rounds=6, hidden=(12,), standalone_steps=60, local_steps=5, seed=1)
    everybody, hardened = owners.measured(config)
    assert (everybody["held"], hardened["held"]) == ("all", "hardened")
    for row in (everybody, hardened):
        assert row["pairs"] == 12 and all(
            len(row[key]) == 5 and 0 <= min(row[key]) <= max(row[key]) <= 12 for key in owners.KEYS
        )
    assert everybody["fits"][-1] <= everybody["whole_steps"][0]
