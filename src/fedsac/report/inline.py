"""The figures of a run's page, one by one, for a notebook."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedsac.errors import FedsacError
from fedsac.report import comparison, single
from fedsac.report.drawing import svg
from fedsac.report.markup import Figure
from fedsac.report.pdf import pdf
from fedsac.report.reading import Run, read_runs
from fedsac.runs.result import Result


@dataclass(frozen=True)
class Picture:
    """A figure that a notebook shows; `save` writes it as .svg or .pdf."""

    figure: Figure

    def __repr__(self) -> str:
        return f"<Picture: {self.figure.drawing.title}>"

    def _repr_svg_(self) -> str:
        return svg(self.figure.drawing)

    def save(self, path: Path | str) -> None:
        suffix = Path(path).suffix.lower()
        if suffix not in (".svg", ".pdf"):
            raise FedsacError(f"{path}: a figure is saved as .svg or .pdf")
        drawing = self.figure.drawing
        Path(path).write_bytes(pdf(drawing) if suffix == ".pdf" else svg(drawing).encode())


def figures(of: Result | Path | str | Sequence[Result | Path | str]) -> dict[str, Picture]:
    """The figures of a run's page, by name; of several runs, those of the page that compares them. A run is a `Result`
    or a folder, which may also be a comparison's or a sweep's."""
    several = of if isinstance(of, list | tuple) else [of]
    runs = [run for one in several for run in ([_run(one)] if isinstance(one, Result) else _read(one))]
    if not runs:
        raise FedsacError("name a run at least")
    if len(runs) > 1:
        comparison.check_metrics(runs)
    drawn = single.figures(runs[0]) if len(runs) == 1 else comparison.figures(runs)
    return {figure.name: Picture(figure) for figure in drawn}


def _read(of: object) -> list[Run]:
    if not isinstance(of, Path | str):
        raise FedsacError(f"figures are of a Result or of a folder, not of {type(of).__name__}")
    return read_runs([Path(of)])


def _run(result: Result) -> Run:
    return Run(
        name=f"{result.config.method}-seed{result.config.seed}",
        config=result.config,
        finished=True,
        clients=result.clients,
        contributions=result.contributions,
        records=result.records,
        samples=result.samples,
        reputations=result.reputations,
        reported_on=result.reported_on,
        parameters=result.layout.parameters,
    )
