"""`python -m benchmarks.security attacks`: goes on, refuses what does not fit, and says what `fedsac attack` says."""

import json

import pytest

from benchmarks.security.__main__ import main
from benchmarks.security.page import measured


@pytest.mark.slow
def test_a_small_study(tmp_path):
    small = ["attacks", str(tmp_path), "--attacks", "zero,sybils,backdoor@top", "--rounds", "2"]
    main([*small, "--seeds", "1"])
    raw = (tmp_path / "digits-pow.json").read_bytes()
    (tmp_path / "digits-pow.json").unlink()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/*/runs/*/summary.json")}
    main([*small, "--seeds", "1"])
    assert (tmp_path / "digits-pow.json").read_bytes() == raw and len(before) == 9 * 4
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/*/runs/*/summary.json")}
    with pytest.raises(SystemExit, match="holds another study"):
        main([*small, "--seeds", "2"])

    runs = json.loads(raw)["runs"]
    clean = {run["method"]: run for run in runs if run["attack"] == "clean"}
    mine = {(r["attack"], r["method"]): measured(r, clean[r["method"]]) for r in runs if r["attack"] != "clean"}
    assert len(clean) == 9 and len(mine) == 27
    for part in ("plain", "hardened", "hardened-plus"):
        for run in json.loads((tmp_path / "digits-pow" / part / "results.json").read_text())["runs"]:
            own = mine[run["attack"], run["method"] + ("" if part == "plain" else ", hardened")]
            for key, value in own.items():
                expected = run["measured"]["false_positives" if key == "false" else key]
                assert value == (None if expected is None else pytest.approx(expected, abs=1e-5)), (run["attack"], key)
