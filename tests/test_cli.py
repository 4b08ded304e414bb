"""The command as a person uses it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fedsac
from fedsac.cli import main
from fedsac.runs.labels import JUDGED

QUICK = ["--rounds", "2", "--clients", "3", "--hidden", "12", "--local-steps", "3", "--standalone-steps", "5"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_version(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"fedsac {fedsac.__version__}\n"


def test_a_run_ends_with_its_table(capsys):
    assert main(["run", *QUICK]) == 0
    out, err = capsys.readouterr()
    for text in ("client-03", "reward", "in BCF", "last", "selected", "best", "runs/digits-pow-fedsac-seed0"):
        assert text in out
    assert "federated training (rounds): 2/2" in err
    assert max(len(line) for line in out.splitlines()) <= 80 + len("runs/")


def test_a_second_run_gets_a_folder_of_its_own():
    for _ in range(3):
        assert main(["run", *QUICK]) == 0
    assert sorted(path.name for path in Path("runs").iterdir()) == [
        "digits-pow-fedsac-seed0",
        "digits-pow-fedsac-seed0-2",
        "digits-pow-fedsac-seed0-3",
    ]


def test_json_is_one_object_with_everything(capsys):
    assert main(["run", *QUICK, "--json", "--out", "here"]) == 0
    out = json.loads(capsys.readouterr().out)
    promised = """format_version data scene method clients rounds seed samples contributions contributions_test
        reputations rewards neurons parameters bytes_per_round seconds results"""
    assert set(promised.split()) <= set(out)
    assert set(out["bytes_per_round"]) == {"down", "up"}
    assert out["clients"] == 3 and len(out["rewards"]) == len(out["neurons"]) == len(out["parameters"]) == 3
    for label in ("last", "selected", "best"):
        assert set(out["results"][label]) == {"round", "log_loss", *JUDGED}
        assert set(out["results"][label]["accuracy"]) == {"max", "mean", "min"}
    summary = json.loads(Path("here/summary.json").read_text())
    assert {**summary, "seconds": out["seconds"], "folder": "here"} == out


def test_flags_go_before_the_file_and_the_file_before_the_preset(capsys):
    Path("mine.toml").write_text('data = "fashion-mnist"\nbeta = 7.0\nrounds = 9\n')
    from fedsac.cli import parser
    from fedsac.cli.run import configured

    chosen = parser().parse_args(["run", "--config", "mine.toml", "--rounds", "3", "--preset", "paper"])
    config = configured(chosen)
    assert (config.rounds, config.beta, config.lr, config.contribution_on) == (3, 7.0, 0.1, "test")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "--rounds", "0"], "rounds must be a whole number of at least 1, not 0"),
        (["run", "--rounds", "many"], "argument --rounds: invalid int value: 'many'"),
        (["run", "--round", "3"], "unrecognized arguments: --round 3 (did you mean --rounds?) (see fedsac run --help)"),
        (["run", "--methdo=fedavg"], "(did you mean --method?) (see fedsac run --help)"),
        (["federation", "status", "x", "--jsn"], "--jsn (did you mean --json?) (see fedsac federation status --help)"),
        (["run", "--zzz"], "unrecognized arguments: --zzz (see fedsac run --help)"),
        (
            ["run", "--hidden", "10,x"],
            "argument --hidden: must be whole numbers, one for each hidden layer with commas",
        ),
        (["run", "--scene", "pow:"], "scene pow takes no parameter"),
        (["run", "--scene", "dri:1"], "'dri:1' is neither a name (did you mean dir?) nor module:attribute"),
        (["run", "--scene", "pov"], "no scene 'pov' (did you mean pow?); there are pow"),
        (["run", "--method", "fedsad"], "no method 'fedsad'"),
        (["run", "--data", "digit"], "digits"),
        (["run", "--data", "none.csv"], "none.csv"),
        (["run", "--config", "none.toml"], "none.toml: there is no such file"),
        (["run", "--config", "/tmp"], "/tmp: is a folder; name a TOML file"),
        (["attack", "zero", "--clients", "2"], "attackers median:2, as the attack has it: of 2 clients at least one"),
        (["attack", "zero", "--clients", "2"], "median takes 1 to 1 of them, as --attackers median:1, or take more"),
        (["run", "--attack", "zero", "--attackers", "largest:12"], "attackers largest:12: of 10 clients at least one"),
        (["run", "--resume", "nowhere"], "nowhere is not a run's folder"),
        (["run", "--resume", "nowhere", "--lr", "3"], "leave --lr out"),
        (["run", "--preset", "paper"], "the paper has no settings for digits"),
        (["run", "--preset", "article"], "no preset 'article'"),
        (["run", "--samples-per-client", "5000"], "needs 50000 samples"),
        (["run", "--out", "/proc/none/run"], "cannot make a folder there"),
        (["run", "--data-dir", "nowhere", "--data", "mnist"], "nowhere"),
        (["data", "check", "none.csv"], "none.csv"),
        (["data", "fetch", "imagenet"], "imagenet"),
        (["predict", "none.safetensors", "digits"], "none.safetensors: cannot be read"),
        (["export", "none.safetensors"], "none.safetensors: cannot be read"),
        (["fly"], "invalid choice: 'fly' (choose from"),
        (["rnu"], "invalid choice: 'rnu' (did you mean run?) (choose from"),
        ([], "COMMAND"),
    ],
)
def test_bad_input_is_one_clear_line_and_exit_code_2(arguments, says, capsys):
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("fedsac: ") and err.count("\n") == 1
    assert says in err
    assert not Path("runs").exists() or not any(Path("runs").iterdir())


def test_an_unknown_key_in_a_config_file(capsys):
    Path("mine.toml").write_text("leraning_rate = 3")
    assert main(["run", "--config", "mine.toml"]) == 2
    assert "mine.toml: unknown key 'leraning_rate'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('rounds = "ten"', "mine.toml: rounds must be a whole number of at least 1, not 'ten'"),
        ("scene = 3", "mine.toml: scene must be a text, not 3"),
        ('scene = "pov"', "mine.toml: no scene 'pov' (did you mean pow?)"),
        ("options = 3", "mine.toml: options must be names with plain values, not 3"),
    ],
)
def test_a_wrong_value_in_a_config_file_is_named_with_the_file(line, says, capsys):
    Path("mine.toml").write_text(line)
    assert main(["run", "--config", "mine.toml"]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"fedsac: {says}") and err.count("\n") == 1
    assert main(["run", "--config", "mine.toml", "--set", "beta=3"]) == 2
    assert capsys.readouterr().err == err


def test_a_wrong_flag_is_not_the_config_files_fault(capsys):
    Path("mine.toml").write_text("rounds = 3")
    assert main(["run", "--config", "mine.toml", "--rounds", "0"]) == 2
    assert capsys.readouterr().err.startswith("fedsac: rounds must be a whole number")


def test_data_list_and_check(capsys):
    assert main(["data", "list"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in ("digits", "fashion-mnist", "cifar10", "svhn", "mnist"))
    assert main(["data", "check", "digits"]) == 0
    assert "1,797 samples" in capsys.readouterr().out


def own_table(path: Path, rows: int = 240, extra: bool = False) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 3)) * [1, 100, 1e-3]
    label = np.where(x[:, 0] + x[:, 1] / 100 > 0, "ill", "well")
    lines = ["age,dose,ratio,label" if not extra else "id,ratio,age,dose"]
    for i in range(rows):
        values = [*x[i], label[i]] if not extra else [i, x[i, 2], x[i, 0], x[i, 1]]
        lines.append(",".join(map(str, values)))
    path.write_text("\n".join(lines) + "\n")


def test_a_table_of_ones_own_from_run_to_prediction(capsys):
    own_table(Path("own.csv"))
    assert main(["run", "--data", "own.csv", *QUICK, "--rounds", "20", "--scene", "iid", "--out", "run"]) == 0
    capsys.readouterr()
    assert main(["predict", "run/rewards/client-01.safetensors", "own.csv"]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0] == "row,class,probability,probability of ill,probability of well" and len(lines) == 241
    for line in lines[1:]:
        _, name, top, ill, well = line.split(",")
        assert {"ill": ill, "well": well}[name] == top == max(ill, well)
        assert float(ill) + float(well) == pytest.approx(1, abs=2e-6)
    accuracy = float(err.split()[1].strip(","))
    assert accuracy > 0.6
    # The same rows, columns in another order, an identifier besides, no label: the same classes.
    own_table(Path("new.csv"), extra=True)
    assert main(["predict", "run/rewards/client-01.safetensors", "new.csv", "--out", "new-classes.csv"]) == 0
    assert Path("new-classes.csv").read_text() == out


def test_predict_does_not_score_by_labels_that_the_model_does_not_know(capsys):
    """It said "accuracy 0.0000", as if the model were bad."""
    own_table(Path("own.csv"))
    assert main(["run", "--data", "own.csv", *QUICK, "--scene", "iid", "--out", "run"]) == 0
    Path("other.csv").write_text(Path("own.csv").read_text().replace("ill", "1").replace("well", "0"))
    mixed = Path("own.csv").read_text().splitlines()
    mixed[7] = mixed[7].rpartition(",")[0] + ",unclear"
    Path("mixed.csv").write_text("\n".join(mixed) + "\n")
    cases = {"other.csv": r"label '[01]' \(row 0, .* 240 of 240", "mixed.csv": r"'unclear' \(row 6, .* 1 of 240"}
    for data, says in cases.items():
        capsys.readouterr()
        assert main(["predict", "run/global.safetensors", data]) == 2
        out, err = capsys.readouterr()
        assert len(out.splitlines()) == 241 and "accuracy" not in err
        assert re.search(says, err) and "the model's classes, 'ill', 'well'" in err and len(err.splitlines()) == 1


def test_predict_refuses_data_of_another_shape(capsys):
    assert main(["run", *QUICK, "--out", "run"]) == 0
    own_table(Path("own.csv"))
    capsys.readouterr()
    assert main(["predict", "run/global.safetensors", "own.csv"]) == 2
    assert "the model takes 64 features, the data has 3" in capsys.readouterr().err


def test_nothing_is_written_over_what_is_read(capsys):
    assert main(["run", *QUICK, "--out", "run"]) == 0
    model = "run/rewards/client-01.safetensors"
    np.savez("mine.npz", x=np.zeros((3, 64), np.uint8))
    before = Path(model).read_bytes(), Path("mine.npz").read_bytes()
    assert main(["predict", model, "mine.npz", "--out", "mine.npz"]) == 2
    assert main(["export", model, "--out", model]) == 2
    assert (Path(model).read_bytes(), Path("mine.npz").read_bytes()) == before
    assert capsys.readouterr().err.count("is what is read; name another file") == 2


def test_names_are_not_markup(capsys):
    Path("silos").mkdir()
    rng = np.random.default_rng(0)
    for name in ("[red]", "a:smile:b", "validation"):
        np.savez(f"silos/{name}.npz", x=rng.normal(size=(40, 3)), y=rng.integers(2, size=40))
    settings = ["--rounds", "1", "--hidden", "4", "--local-steps", "1", "--standalone-steps", "2"]
    assert main(["run", "--data", "silos", *settings, "--out", "x[/b]"]) == 0
    out = capsys.readouterr().out
    assert "[red]" in out and "a:smile:b" in out and "x[/b]" in out


def test_predict_refuses_what_is_no_model(capsys):
    Path("x.safetensors").write_bytes(b"not a model")
    assert main(["predict", "x.safetensors", "digits"]) == 2
    assert "x.safetensors: not a model of fedsac's, or damaged" in capsys.readouterr().err


def test_onnx_gives_the_same_probabilities(capsys):
    import onnxruntime
    from sklearn.datasets import load_digits

    from fedsac.models.files import ModelFile

    assert main(["run", *QUICK, "--out", "run"]) == 0
    assert main(["export", "run/rewards/client-02.safetensors"]) == 0
    assert "x [n, 64] float32: rows of features" in capsys.readouterr().out
    x = load_digits().data.astype(np.float32)
    session = onnxruntime.InferenceSession("run/rewards/client-02.onnx", providers=["CPUExecutionProvider"])
    ours = ModelFile.load(Path("run/rewards/client-02.safetensors")).probabilities(x)
    assert session.run(["probabilities"], {"x": x})[0] == pytest.approx(ours, abs=1e-5)
    assert session.get_modelmeta().custom_metadata_map["classes"].split("\n") == [str(k) for k in range(10)]


def test_interrupted_by_control_c_it_says_how_to_go_on():
    import signal

    command = [sys.executable, "-m", "fedsac", "run", "--rounds", "5000", "--standalone-steps", "5", "--out", "run"]
    # Ctrl-C must count also where the tests themselves were started with it ignored, as a shell does in the background.
    listening = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.default_int_handler)}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **listening)
    assert process.stderr is not None
    assert any("federated training" in line for line in process.stderr)
    process.send_signal(signal.SIGINT)
    rest = process.stderr.read()
    assert process.wait() == 130
    process.stderr.close()
    assert "interrupted; go on with: fedsac run --resume run" in rest
    assert "Traceback" not in rest


def test_very_many_clients_do_not_fill_the_screen(tmp_path, capsys):
    given = ["--clients", "70", "--scene", "iid", "--rounds", "1", "--standalone-steps", "2", "--hidden", "8"]
    assert main(["run", *given, "--out", str(tmp_path / "run")]) == 0
    out = capsys.readouterr().out
    assert "client-60 " in out and "and 10 more" in out and "client-61 " not in out
    assert len(json.loads((tmp_path / "run" / "summary.json").read_text())["rewards"]) == 70
