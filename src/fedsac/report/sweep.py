"""The figures of a sweep: gamma and the best reward against the number that is varied, with 95 % intervals."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

from fedsac.config import Config
from fedsac.report.axes import HEIGHT, WIDTH, colour, framed, shape, span
from fedsac.report.markup import Figure
from fedsac.report.shapes import Drawing, Line, Mark
from fedsac.runs.comparison import Row

NOT_VARIED = ("seed", "threads", "device", "data_dir")
SHOWN = (("gamma", "gamma", 1), ("max", "best reward (%)", 100))  # column, heading and factor
WHISKER = 4.0  # half the width of the bar at an interval's end


@dataclass(frozen=True)
class Estimate:
    """A mean at a value of the setting, and its 95 % interval, if there is one."""

    value: float
    mean: float
    interval: tuple[float, float] | None


def figures(configs: Sequence[Config], rows: Sequence[Row]) -> list[Figure]:
    """What a sweep shows, if these configs, one for each row, differ in a single number; else nothing."""
    name = varied_number(configs)
    if name is None:
        return []
    made = []
    for key, heading, factor in SHOWN:
        estimates = []
        for config, row in zip(configs, rows, strict=True):
            mean, interval = row.mean(key), row.interval(key)
            if mean is not None:
                ends = None if interval is None else (factor * interval[0], factor * interval[1])
                estimates.append(Estimate(_values(config)[name], factor * mean, ends))  # type: ignore[arg-type]
        if len(estimates) > 1:
            drawing = means_by_value(name, heading, sorted(estimates, key=lambda one: one.value))
            caption = "Means over seeds at the last round, with their 95 % intervals (t distribution)."
            made.append(Figure(f"{key}-by-{name}", drawing, caption))
    return made


def varied_number(configs: Sequence[Config]) -> str | None:
    """The one setting or option in which the configs differ, if it is a number in all of them."""
    values = [_values(config) for config in configs]
    names = dict.fromkeys(name for own in values for name in own)
    differ = [name for name in names if len({own.get(name) for own in values}) > 1]
    if len(differ) != 1 or not all(isinstance(own.get(differ[0]), float) for own in values):
        return None
    return differ[0]


def means_by_value(of: str, y: str, estimates: Sequence[Estimate]) -> Drawing:
    """The mean of `y` for each value of a setting, joined by a line, and the intervals as bars."""
    tips = [_tip(of, y, one) for one in estimates]
    drawing = Drawing(WIDTH, HEIGHT, f"{y.removesuffix(' (%)')} by {of}", f"Means over seeds: {'; '.join(tips)}.")
    ends = [end for one in estimates for end in (one.mean, *(one.interval or ()))]
    frame = framed(drawing, span([one.value for one in estimates]), span(ends), (of, y), top=12.0)
    frame.edge()
    drawing.add(Line(tuple(frame.at(one.value, one.mean) for one in estimates), colour(0), 1.4))
    for one, tip in zip(estimates, tips, strict=True):
        if one.interval is not None:
            places = [frame.at(one.value, end) for end in one.interval]
            drawing.add(Line(tuple(places), colour(0), 1.4))
            for across, up in places:
                drawing.add(Line(((across - WHISKER, up), (across + WHISKER, up)), colour(0), 1.4))
        drawing.add(Mark(*frame.at(one.value, one.mean), shape(0), colour(0), 5, tip=tip))
    return drawing


def _tip(of: str, y: str, one: Estimate) -> str:
    text = f"{of} {one.value:g}: {y} {one.mean:.2f}"
    return text if one.interval is None else f"{text}, 95 % {one.interval[0]:.2f} to {one.interval[1]:.2f}"


def _values(config: Config) -> dict[str, float | str]:
    """Every setting and option, numbers as such."""
    own = {f.name: getattr(config, f.name) for f in fields(Config) if f.name not in (*NOT_VARIED, "options")}
    return {name: _number(value) for name, value in {**own, **config.options}.items()}


def _number(value: object) -> float | str:
    try:
        return str(value) if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return str(value)
