"""`python -m benchmarks.security attacks`: goes on, refuses what does not fit, and says what `fedsac attack` says."""

import json

import pytest

from benchmarks.security.__main__ import main
from benchmarks.security.attacks_page import measured, write


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
