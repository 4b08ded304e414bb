"""Settings: impossible ones are refused, and a file brings back what was written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsac import Config, FedsacError
from fedsac.config import RULES, check_rules, read

configs = st.builds(
    Config,
    data=st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    scene=st.sampled_from([None, "pow", "dir:0.3"]),
    rounds=st.integers(1, 10**6),
    beta=st.floats(0, 1e6),
    lr=st.floats(1e-12, 1e3),
    clients=st.none() | st.integers(2, 1000),
    split_seed=st.none() | st.integers(0, 10**6),
    hidden=st.lists(st.integers(1, 500), min_size=1, max_size=4).map(tuple),
    options=st.dictionaries(st.text(min_size=1), st.booleans() | st.integers() | st.floats(-1e9, 1e9) | st.text()),
    label=st.text(min_size=1).filter(lambda text: text.isprintable()),
)


@given(configs)
def test_a_config_survives_its_file(config):
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.toml"
        path.write_text(config.toml(), encoding="utf-8")
        assert Config(**read(path)) == config


@pytest.mark.parametrize(
    ("setting", "value", "says"),
    [
        ("rounds", 0, "rounds must be a whole number of at least 1, not 0"),
        ("rounds", 2.5, "whole number"),
        ("split_seed", -1, "split_seed must be a whole number of at least 0, not -1"),
        ("rounds", True, "whole number"),
        ("clients", 1, "at least 2"),
        ("lr", 0, "lr must be a number above 0"),
        ("lr", float("nan"), "lr must be a number above 0"),
        ("lr", "fast", "lr must be a number above 0, from 1e-30 to 1e30, not 'fast'"),
        ("beta", -1, "at least 0"),
        ("seed", -1, "at least 0"),
        ("hidden", (), "one or more whole numbers"),
        ("hidden", (10, 0), "one or more whole numbers"),
        ("hidden", 200, "one or more whole numbers"),
        ("device", "gpu", "cpu or cuda or auto"),
        ("dtype", "float16", "float32 or float64"),
        ("contribution_on", "train", "validation or test"),
        ("scene", "pov", "there are pow, cla"),
        ("data", "", "must be a text"),
        ("eval_every", 0, "at least 1"),
    ],
)
def test_an_impossible_value_is_named(setting, value, says):
    with pytest.raises(FedsacError, match=says) as raised:
        Config(**{setting: value})
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("round = 3", "unknown key 'round'; did you mean rounds"),
        ("xyz = 3", "unknown key 'xyz'; there are data, scene"),
        ("rounds = = 3", "not a TOML file"),
        ("format_version = 99", "format version 99 is newer than this fedsac understands"),
        ("format_version = 'x'", "is not one"),
    ],
)
def test_a_bad_file_is_refused_by_name(tmp_path, text, says):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(FedsacError, match=says) as raised:
        read(path)
    assert str(path) in str(raised.value)


def test_a_missing_file(tmp_path):
    with pytest.raises(FedsacError, match="no such file"):
        read(tmp_path / "none.toml")


@pytest.mark.parametrize("text", ["rounds = 3\n", "rules = 1\n", f"rules = {RULES + 1}\n"])
def test_a_run_of_other_rules_is_named_and_what_to_do_about_it(tmp_path, text):
    """Those without a number are from before there were numbers, which is 1."""
    path = tmp_path / "my run" / "config.toml"
    path.parent.mkdir()
    path.write_text(text)
    rules = 1 if "rules" not in text else int(text.split()[-1])
    with pytest.raises(FedsacError) as raised:
        check_rules(path)
    said = str(raised.value)
    assert said.startswith(f"{path.parent}: begun under rules {rules}, this fedsac has rules {RULES}, ")
    assert said.endswith(f", or begin it again with --config {path}")
    path.write_text(Config().toml())
    check_rules(path)


def test_seeds_as_people_read_them():
    assert Config(seed=3).seeds_named == "seed 3"
    assert Config(seed=3, split_seed=0).seeds_named == "seed 3, split seed 0"
