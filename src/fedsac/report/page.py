"""Writing a report: one self-contained HTML page, and its figures as .svg and .pdf files."""

from collections.abc import Sequence
from pathlib import Path

from fedsac.atomic import write_atomic
from fedsac.errors import FedsacError
from fedsac.report import attacks, comparison, single
from fedsac.report.drawing import SVG_SIGN, svg
from fedsac.report.markup import SIGN, Figure, document
from fedsac.report.pdf import HEADS, pdf
from fedsac.report.reading import Run, read_runs
from fedsac.runs.attack_table import STUDY
from fedsac.runs.checkpoint import UNSOUND

REPORT_NAME = "report.html"


def build(paths: Sequence[Path]) -> tuple[str, list[Figure]]:
    """The page about the runs in these folders, and the figures on it. The same folders give the same bytes."""
    study = len(paths) == 1 and (paths[0] / STUDY).exists()
    runs = [] if study else read_runs(paths)
    try:
        return attacks.page(paths[0]) if study else _page(runs)
    except UNSOUND as error:  # what is read is checked for what a page needs most, not for the type of every number
        what = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        where = ", ".join(map(str, paths))
        raise FedsacError(f"{where}: what lies there cannot be shown ({what}); is it damaged?") from error


def _page(runs: Sequence[Run]) -> tuple[str, list[Figure]]:
    if len(runs) == 1:
        run = runs[0]
        drawn = single.figures(run)
        return document(single.title(run), single.subtitle(run), single.body(run, drawn)), drawn
    comparison.check_metrics(runs)
    drawn = comparison.figures(runs)
    title = f"Comparison on {comparison.where(runs)}"
    return document(title, comparison.subtitle(runs), comparison.body(runs, drawn)), drawn


def write(paths: Sequence[Path], out: Path | None = None, figures: Path | None = None) -> tuple[Path, list[Path]]:
    """Write the page (by default into the run's folder) and the figures; returns their paths. A file that is not a
    report of ours is never overwritten. A figure that cannot be a PDF, for want of a font, does not cost the others:
    the error comes when all is written."""
    page, drawn = build(paths)
    place = out or (paths[0] / REPORT_NAME if len(paths) == 1 else Path(REPORT_NAME))
    files: list[tuple[Path, bytes, tuple[bytes, ...]]] = [(place, page.encode(), (SIGN.encode(),))]
    failed = []
    for entry in drawn if figures is not None else ():
        assert figures is not None
        files.append((figures / f"{entry.name}.svg", svg(entry.drawing).encode(), (SVG_SIGN.encode(),)))
        try:
            files.append((figures / f"{entry.name}.pdf", pdf(entry.drawing), HEADS))
        except FedsacError as error:
            failed.append(f"{figures / entry.name}.pdf: {error}")
    for path, _, signs in files:
        _refuse_to_overwrite(path, signs)
    for path, content, _ in files:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, content, durable=False)
        except OSError as error:
            raise FedsacError(f"{path}: cannot be written ({error.strerror})") from None
    if failed:
        raise FedsacError(failed[0])
    return place, [path for path, _, _ in files[1:]]


def _refuse_to_overwrite(path: Path, signs: Sequence[bytes]) -> None:
    """Raise if there is a file that does not begin with one of the `signs`, as those of fedsac do."""
    try:
        with path.open("rb") as file:
            if file.read(max(map(len, signs))).startswith(tuple(signs)):
                return
    except FileNotFoundError:
        return
    except OSError as error:
        raise FedsacError(f"{path}: cannot be written ({error.strerror}); name another place") from None
    raise FedsacError(f"{path} is there already and is no report of fedsac's; name another place")
