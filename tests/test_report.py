"""The page about runs: the right numbers, nothing from outside, the same bytes, whatever clients are called."""

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import fedsac
from fedsac import Config, FedsacError
from fedsac.cli import main
from fedsac.report.comparison import grouped, rival_groups
from fedsac.report.markup import SIGN, Cell, number, signed, table
from fedsac.report.page import build, write
from fedsac.report.reading import read_run, read_runs
from fedsac.report.shapes import Area, Line, Mark
from fedsac.runs.comparing import compare
from fedsac.runs.folder import Folder
from fedsac.runs.watcher import Watcher
from tests.test_drawing import read_pdf
from tests.test_store import contents

SMALL = Config(rounds=3, clients=4, hidden=(16, 8), local_steps=5, standalone_steps=20)
VOID = {"meta", "link", "br", "rect"}
HOSTILE = "<script>alert(1)<_script>\"&'<b onload=x>"


class Page(HTMLParser):
    """Texts and elements of a page; an element that is not closed where it should be is an error."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self.scripts: list[str] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        if tag in ("th", "td"):
            self.rows[-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if "script" in self.open:
            self.scripts.append(data)
        elif "style" not in self.open:
            self.text.append(data)
            if self.open and self.open[-1] in ("th", "td"):
                self.rows[-1][-1] += data


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("report") / "run"
    fedsac.run(SMALL, folder)
    return folder


@pytest.fixture(scope="module")
def compared(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("report") / "compared"
    compare(SMALL, ["fedsac", "fedavg", "standalone"], 2, folder)
    return folder


@pytest.fixture
def copied(finished, tmp_path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "copy"))


def stopped(folder: Path, round: int) -> Path:
    class Stop(Watcher):
        def round(self, run, record):
            if record["round"] == round:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fedsac.run(SMALL, folder, watcher=Stop())
    return folder


def test_the_numbers_are_the_summarys(finished):
    page = Page(build([finished])[0])
    summary = json.loads((finished / "summary.json").read_text())
    last, rows = summary["results"]["last"], {row[0]: row for row in page.rows if row}
    for label in ("last", "selected", "best"):
        found = summary["results"][label]
        shown = "-" if found["gamma"] is None else f"{found['gamma']:.2f}"
        assert rows[label][1:3] == [str(found["round"]), shown]
        attainable = found["gamma_attainable"]
        assert rows[label][4] == ("-" if attainable is None else f"{attainable:.2f}")
        assert rows[label][7] == f"{100 * found['accuracy']['max']:.1f}"
        assert rows[label][-1] == f"{found['log_loss']:.3f}"
    full = max(summary["parameters"])  # whoever contributed most holds everything
    for i, name in enumerate(summary["client_names"]):
        alone, paid = 100 * summary["contributions_test"][i], 100 * summary["rewards"][i]
        assert rows[name] == [
            name,
            str(summary["samples"][i]),
            f"{100 * summary['contributions'][i]:.1f}",
            f"{100 * summary['contributions_error'][i]:.1f}",
            f"{alone:.1f}",
            f"{summary['reputations'][i]:.1f}",
            str(summary["neurons"][i]),
            f"{100 * summary['parameters'][i] / full:.1f}",
            f"{paid:.1f}",
            f"{paid - alone:+.1f}" if abs(paid - alone) >= 0.05 else "0.0",
            f"{summary['log_losses'][i]:.3f}",
            "yes" if summary["inside_bcf"][i] else "no",
        ]
    text = "".join(page.text)
    assert f"{last['gamma']:.2f}" in text and f"{sum(summary['inside_bcf'])} of 4" in text
    saved = 1 - summary["bytes_per_round"]["down"] / (full * 4 * 4)
    assert f"{100 * saved:.1f} %" in text
    assert rows["hidden"][:2] == ["hidden", "16, 8"] and rows["rounds"][:2] == ["rounds", "3"]
    assert "Unfinished" not in text


def test_the_figures_are_the_logs(finished):
    drawn = {figure.name: figure.drawing for figure in build([finished])[1]}
    assert set(drawn) == {
        *("contribution-reward", "parameters", "accuracy-rounds", "fairness-rounds", "bytes", "neurons", "importance"),
    }
    records = [json.loads(line) for line in (finished / "rounds.jsonl").read_text().splitlines()]
    summary = json.loads((finished / "summary.json").read_text())
    curves = [shape for shape in drawn["accuracy-rounds"].shapes if isinstance(shape, Line) and shape.tips]
    for i, curve in enumerate(curves):
        name = summary["client_names"][i]
        assert curve.tips == tuple(f"{name}, round {r['round']}: {100 * r['rewards'][i]:.2f}" for r in records)
    marks = [s.tip for s in drawn["contribution-reward"].shapes if isinstance(s, Mark) and s.tip]
    for name, c, theta in zip(summary["client_names"], summary["contributions_test"], summary["rewards"], strict=True):
        assert any(t.startswith(f"{name}: contribution {100 * c:.2f}, reward {100 * theta:.2f};") for t in marks)
    # Each client's row has as many neurons as the summary says it holds.
    held: dict[str, int] = {}
    for tip in (s.tip for s in drawn["neurons"].shapes if isinstance(s, Area) and s.tip):
        name, first, last = re.match(r"(.*) holds neurons (\d+) to (\d+) of layer", tip).groups()
        held[name] = held.get(name, 0) + int(last) - int(first) + 1
    assert [held.get(name, 0) for name in summary["client_names"]] == summary["neurons"]


def test_the_page_needs_nothing_else(finished, compared):
    for page in (build([finished])[0], build([compared])[0]):
        parsed = Page(page)
        links = [value for _, attrs in parsed.elements for key, value in attrs.items() if key in ("src", "href")]
        assert links == ["data:,"]
        assert "default-src 'none'" in page
        assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest", page)
        # The only addresses are names of namespaces.
        assert set(re.findall(r"https?://[^\s\"'<]+", page)) == {"http://www.w3.org/2000/svg"}
        assert len([tag for tag, _ in parsed.elements if tag == "script"]) == 1
        assert all(attrs.get("aria-label") for tag, attrs in parsed.elements if tag == "svg")
        assert not [key for _, attrs in parsed.elements for key in attrs if key.startswith("on") or key == "style"]


def test_the_same_folder_gives_the_same_bytes(finished, copied, tmp_path):
    assert build([finished]) == build([finished])
    again = tmp_path / "again" / "run"
    fedsac.run(SMALL, again)
    (again / "timing.json").write_text('{"format_version": 1, "seconds": 1e9}')
    assert build([again])[0] == build([finished])[0]


def test_looking_changes_nothing(finished):
    before = contents(finished)
    build([finished])
    with Folder.open(finished):  # another process may be at work
        build([finished])
    assert contents(finished) == before


def test_an_unfinished_run_is_shown_as_far_as_it_is(finished, tmp_path):
    folder = stopped(tmp_path / "run", 2)
    (folder / "rounds.jsonl").write_bytes((folder / "rounds.jsonl").read_bytes() + b'{"format_ver')  # a write cut off
    page = Page(build([folder])[0])
    text = "".join(page.text)
    assert "Unfinished: 2 of 3 rounds are committed." in text
    assert "client-04" in text and "At the last round (2)" in text
    run, whole = read_run(folder), read_run(finished)
    assert run.records == whole.records[:2] and run.clients == whole.clients
    assert run.contributions == whole.contributions and run.state_round == 2
    fedsac.resume(folder)
    assert build([folder])[0] == build([finished])[0]


def test_a_run_without_checkpoints_or_neurons_says_so(copied, tmp_path):
    shutil.rmtree(copied / "checkpoints")
    page, drawn = build([copied])
    assert "Which neurons each client holds is not shown" in page
    assert "neurons" not in [figure.name for figure in drawn]
    fedsac.run(SMALL.replace(method="fedavg"), tmp_path / "fedavg")
    page, drawn = build([tmp_path / "fedavg"])
    assert "Which neurons each client holds is not shown" in page and "importance" not in [f.name for f in drawn]


def test_every_method_has_a_page(tmp_path):
    from fedsac.doors import METHODS

    quick = SMALL.replace(rounds=1, local_steps=2, standalone_steps=3)
    fedsac.run_together([quick.replace(method=m) for m in METHODS], [tmp_path / m for m in METHODS])
    for method in METHODS:
        page = Page(build([tmp_path / method])[0])
        assert f"{method} on digits, pow" in "".join(page.text)
    Page(build([tmp_path / method for method in METHODS])[0])


def test_a_damaged_newest_checkpoint_is_passed_over(copied):
    (copied / "checkpoints" / "round-000003.safetensors").write_bytes(b"nonsense")
    assert read_run(copied).state_round == 2
    assert "after round 2." in build([copied])[0]


def spoil(folder: Path, how: str) -> None:
    summary = folder / "summary.json"
    if how == "no config":
        (folder / "config.toml").unlink()
    elif how == "summary cut off":
        summary.write_bytes(summary.read_bytes()[:100])
    elif how == "summary of a list":
        summary.write_text("[]")
    elif how == "summary without rewards":
        summary.write_text(json.dumps({"format_version": 1}))
    elif how == "newer summary":
        summary.write_text(summary.read_text().replace('"format_version": 1', '"format_version": 5'))
    elif how == "other clients":
        summary.write_text(summary.read_text().replace('"client-04"', '"client-04", "client-05"'))
    elif how == "log gone":
        (folder / "rounds.jsonl").unlink()
    elif how == "log of nonsense":
        (folder / "rounds.jsonl").write_bytes(b"\xff\x00{}\n")
    else:
        summary.unlink()
        for path in (folder / "checkpoints").iterdir():
            path.write_bytes(b"")


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("no config", "is not a run's folder"),
        ("summary cut off", "is not what a run leaves"),
        ("summary of a list", "is not what a run leaves"),
        ("summary without rewards", "is not what a run leaves"),
        ("newer summary", "format version 5 is newer"),
        ("other clients", "do not agree on the number of clients"),
        ("log gone", "is not what a run leaves"),
        ("log of nonsense", "is not what a run leaves"),
        ("nothing sound", "nothing is committed there yet"),
    ],
)
def test_a_broken_folder_is_one_clear_line(how, says, copied, capsys):
    spoil(copied, how)
    before = contents(copied)
    assert main(["report", str(copied)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and says in err
    assert contents(copied) == before


def test_an_empty_folder_a_missing_one_and_a_run_before_its_first_round(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    stop = stopped(tmp_path / "begun", 1)
    (stop / "rounds.jsonl").write_bytes(b"")
    for path in sorted((stop / "checkpoints").iterdir())[1:]:
        path.unlink()
    for name, says in (
        ("empty", "is not a run's folder"),
        ("missing", "there is no such folder"),
        ("begun", "no round of this run has been evaluated yet"),
    ):
        assert main(["report", str(tmp_path / name)]) == 2
        err = capsys.readouterr().err
        assert says in err and err.count("\n") == 1


def test_names_that_want_to_be_markup(tmp_path):
    silos = tmp_path / "silos"
    silos.mkdir()
    rng = np.random.default_rng(0)
    for name in (HOSTILE, "\N{BLACK HEART SUIT} Zoë", "validation"):
        np.savez(silos / f"{name}.npz", x=rng.normal(size=(60, 3)), y=rng.integers(2, size=60))
    quick = Config(data=str(silos), rounds=2, hidden=(4,), local_steps=1, standalone_steps=2)
    fedsac.run(quick, tmp_path / "run")
    written, figures = write([tmp_path / "run"], tmp_path / "r.html", tmp_path / "figures")
    text = written.read_text(encoding="utf-8")
    page = Page(text)
    assert HOSTILE in "".join(page.text)  # as a text
    assert text.count("<script>") == 1 and "<b onload" not in text
    assert {tag for tag, _ in page.elements if tag == "script"} == {"script"} and len(page.scripts) == 1
    for path in figures:
        assert b"<script>" not in path.read_bytes() or path.suffix == ".pdf"


def test_a_comparison_has_means_over_seeds(compared):
    page = Page(build([compared])[0])
    raw = json.loads((compared / "results.json").read_text())["rows"]
    row = next(r for r in raw if (r["method"], r["label"]) == ("fedsac", "last"))
    shown = next(cells for cells in page.rows if cells and cells[0] == "fedsac")
    assert shown[1].startswith(f"{np.mean(row['gamma']):.2f}") and "±" in shown[1]
    assert shown[6].startswith(f"{100 * np.mean(row['max']):.2f}")
    runs = [cells[0] for cells in page.rows if cells and "-seed" in cells[0]]
    assert sorted(runs) == sorted(f"{m}-seed{s}" for m in ("fedsac", "fedavg", "standalone") for s in (0, 1))
    names = [figure.name for figure in build([compared])[1]]
    assert names == ["fairness-accuracy", "clients", "gamma-rounds", "bcf-rounds"]


def test_many_methods_get_the_width_of_the_page(compared, tmp_path):
    from fedsac.doors import METHODS

    assert next(f for f in build([compared])[1] if f.name == "clients").narrow is None
    quick = SMALL.replace(rounds=1, local_steps=1, standalone_steps=2)
    methods = list(METHODS)[:8]
    fedsac.run_together([quick.replace(method=m) for m in methods], [tmp_path / m for m in methods])
    page, drawn = build([tmp_path / m for m in methods])
    clients = next(figure for figure in drawn if figure.name == "clients")
    assert clients.drawing.width == 2 * clients.narrow.width
    tips = [[s.tip for s in d.shapes if isinstance(s, Mark) and s.tip] for d in (clients.drawing, clients.narrow)]
    assert tips[0] == tips[1] and len(tips[0]) == 8 * 4
    assert page.count('<figure class="wide">') == 1 and page.count('class="plot narrow"') == 1


def test_clients_of_a_comparison_are_averaged_by_position(compared):
    drawing = next(f.drawing for f in build([compared])[1] if f.name == "clients")
    summaries = [json.loads((compared / f"fedsac-seed{s}" / "summary.json").read_text()) for s in (0, 1)]
    mean = 100 * np.mean([summary["rewards"][2] for summary in summaries])
    assert f"client-03, fedsac: {mean:.2f}" in [s.tip for s in drawing.shapes if isinstance(s, Mark)]


def test_runs_are_told_apart_by_what_differs(compared, tmp_path):
    fedsac.run(SMALL.replace(beta=1.0, seed=3), tmp_path / "mild")
    fedsac.run(SMALL.replace(scene="cla"), tmp_path / "cla")
    runs = read_runs([compared / "fedsac-seed0", compared / "fedsac-seed1", tmp_path / "mild"])
    groups = grouped(runs)
    assert [(group.name, len(group.runs)) for group in groups] == [("beta 5", 2), ("beta 1", 1)]
    page, drawn = build([compared / "fedsac-seed0", tmp_path / "cla"])
    assert "the runs do not have the same ones" in page and "clients" not in [figure.name for figure in drawn]
    assert '<th scope="row">cla</th>' in page and '<th scope="col">scene</th>' in page


def test_methods_are_tested_against_each_other_on_the_same_data_only(compared, tmp_path):
    """Two scenes and two splits in one page: each method's rivals are those of its own data."""
    fedsac.run(SMALL.replace(scene="cla"), tmp_path / "cla")
    fedsac.run(SMALL.replace(seed=1, split_seed=7), tmp_path / "split")
    runs = read_runs([compared, tmp_path / "cla", tmp_path / "split"])
    (rivals,) = rival_groups(grouped(runs))
    assert [(len(group.runs), group.runs[0].config.method) for group in rivals] == [
        (2, "fedsac"),
        (2, "fedavg"),
        (2, "standalone"),
    ]
    text = build([compared, tmp_path / "cla", tmp_path / "split"])[0]
    assert text.count("<h2>Which method is significantly first</h2>") == 1
    assert rival_groups(grouped(read_runs([compared / "fedsac-seed0", tmp_path / "cla"]))) == []


def test_a_list_that_leads_elsewhere_is_refused(compared, tmp_path):
    (tmp_path / "compare.json").write_text('{"format_version": 1, "runs": {"../elsewhere": ""}}')
    with pytest.raises(FedsacError, match="not a comparison that was begun"):
        build([tmp_path])


def test_where_the_page_goes(copied, compared, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["report", str(copied)]) == 0
    assert str(copied / "report.html") in capsys.readouterr().out
    assert main(["report", str(copied), str(compared)]) == 0
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith(SIGN)
    assert main(["report", str(copied), "--out", "new/mine.html", "--figures", "figures"]) == 0
    assert (tmp_path / "new" / "mine.html").read_bytes() == (copied / "report.html").read_bytes()
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    assert {"neurons.svg", "neurons.pdf"} <= names and len(names) == 14
    for path in (tmp_path / "figures").glob("*.pdf"):
        read_pdf(path.read_bytes())
    assert main(["report", str(copied), "--out", "new/mine.html", "--figures", "figures"]) == 0  # again


def test_files_of_others_stay(copied, tmp_path, capsys):
    (copied / "report.html").write_text("<html>my thesis</html>")
    assert main(["report", str(copied)]) == 2
    assert "is there already and is no report of fedsac's" in capsys.readouterr().err
    figures = tmp_path / "figures"
    figures.mkdir()
    (figures / "neurons.svg").write_text("<svg>mine</svg>")
    (figures / "bytes.pdf").write_bytes(b"%PDF-1.4 mine")
    place = tmp_path / "r.html"
    assert main(["report", str(copied), "--out", str(place), "--figures", str(figures)]) == 2
    assert (copied / "report.html").read_text() == "<html>my thesis</html>"
    assert sorted(path.name for path in figures.iterdir()) == ["bytes.pdf", "neurons.svg"] and not place.exists()
    assert main(["report", str(copied), "--out", str(tmp_path)]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_run_and_compare_write_their_pages(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    quick = ["--rounds", "2", "--clients", "3", "--hidden", "12", "--local-steps", "2", "--standalone-steps", "4"]
    assert main(["run", *quick, "--out", "run"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"A page to look at: {Path('run') / 'report.html'}"
    page = Path("run/report.html").read_bytes()
    Path("run/report.html").unlink()
    assert main(["run", "--resume", "run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["folder"] == "run"
    assert Path("run/report.html").read_bytes() == page
    assert "report.html" in Path("run/README.md").read_text()
    assert main(["run", *quick, "--rounds", "1", "--out", "run", "--overwrite"]) == 0
    assert Path("run/report.html").read_bytes() != page
    assert main(["compare", *quick, "--methods", "fedsac,cgsv", "--seeds", "1", "--out", "both"]) == 0
    assert "report.html" in capsys.readouterr().out
    assert Path("both/report.html").read_text(encoding="utf-8").startswith(SIGN)


def test_a_page_that_cannot_be_written_does_not_cost_the_table(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    quick = ["--rounds", "1", "--clients", "3", "--hidden", "4", "--local-steps", "1", "--standalone-steps", "2"]
    assert main(["run", *quick, "--out", "run"]) == 0
    Path("run/report.html").write_text("mine now")
    capsys.readouterr()
    assert main(["run", "--resume", "run"]) == 0
    out, err = capsys.readouterr()
    assert "client-03" in out and "A page to look at" not in out
    assert "there is no report" in err and Path("run/report.html").read_text() == "mine now"


def test_deciding_measures_and_validation_are_named(tmp_path):
    fedsac.run(SMALL.replace(contribution="cosine", rounds=1), tmp_path / "run")
    page = build([tmp_path / "run"])[0]
    assert "contribution (cosine)" in page and ">decides</th>" in page


def test_numbers_that_do_not_exist_are_dashes_below_all_others():
    made = table("t", ("a", "b"), [["x", number(None)], ["y", Cell("1.50", 1.5)]])
    assert 'data-value="-Infinity">-</td>' in made and 'data-value="1.5">1.50</td>' in made


def test_what_rounds_to_zero_has_neither_sign_nor_colour():
    assert [signed(value) for value in (0.04, -0.04, 0.0)] == [Cell("0.0", value) for value in (0.04, -0.04, 0.0)]
    assert signed(0.06) == Cell("+0.1", 0.06, "good") and signed(-0.06) == Cell("-0.1", -0.06, "bad")
    assert signed(0.04, 2) == Cell("+0.04", 0.04, "good")


def test_importance_that_is_no_number_is_left_out(copied, monkeypatch):
    from fedsac.runs import checkpoint

    unpack = checkpoint.unpack

    def spoilt(path):
        found, *rest = unpack(path)
        found.shown["importance"] = np.full_like(found.shown["importance"], np.nan)
        return found, *rest

    monkeypatch.setattr(checkpoint, "unpack", spoilt)
    page, drawn = build([copied])
    assert "importance" not in [figure.name for figure in drawn] and "nan" not in page
