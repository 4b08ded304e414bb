"""Drawings and charts: both writers are sound, every number and name is there, nothing leaves the frame or overlaps."""

import io
import math
import xml.etree.ElementTree as ElementTree
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pypdf import PdfReader

from fedsac import FedsacError
from fedsac.report import axes, fonts
from fedsac.report.charts import (
    MAX_LINE_POINTS,
    Series,
    bars,
    clients_by_method,
    contribution_reward,
    lines,
    scatter,
)
from fedsac.report.drawing import svg
from fedsac.report.fonts import PLAIN, font_named
from fedsac.report.heatmap import heatmap
from fedsac.report.labels import _Taken
from fedsac.report.pdf import HEAD, pdf
from fedsac.report.shapes import Area, Drawing, Line, Mark, Text, box, fitted, text_width

SVG = "{http://www.w3.org/2000/svg}"
ARABIC, CHINESE = ("DejaVuSans",), ("DroidSansFallbackFull", "DroidSansFallback")
HOSTILE = "<script>alert('\"&\x00\ud83d)\\(</script>"
NAMES = [f"client-{i:02d}" for i in range(1, 11)]
ALONE = [56.8, 71.6, 83.6, 86.4, 87.7, 90.8, 92.8, 92.2, 92.5, 93.0]
PAID = [54.0, 70.5, 95.0, 96.9, 96.1, 97.8, 97.5, 97.8, 97.5, 97.8]


def charts() -> dict[str, Drawing]:
    points = [Series(n, ((x, y),), labels=(n,)) for n, x, y in zip(NAMES, ALONE, PAID, strict=True)]
    curves = [Series(n, tuple((t, v * t / 9) for t in range(1, 10))) for n, v in zip(NAMES, PAID, strict=True)]
    return {
        "scatter": scatter("fairness", points, "x", "y"),
        "lines": lines("rounds", curves, "round", "accuracy"),
        "legend": lines("rounds", curves, "round", "gamma", direct=False),
        "contribution": contribution_reward("pay", NAMES, ALONE, PAID),
        "methods": clients_by_method("methods", NAMES, ALONE, {"fedavg": PAID, "fedsac": ALONE}),
        "bars": bars("share", NAMES, {"down": ALONE, "up": PAID}, "MB"),
        "heatmap": heatmap("held", NAMES, [[1.0] * k + [0.0] * (10 - k) for k in range(10)], [("one", 6), ("two", 4)]),
    }


def read_pdf(content: bytes) -> tuple[PdfReader, str]:
    """A PDF of one page as another library reads it, strictly, and its text without spaces."""
    assert content.startswith(HEAD)
    reader = PdfReader(io.BytesIO(content), strict=True)
    (page,) = reader.pages
    return reader, packed(page.extract_text())


def packed(text: str) -> str:
    return "".join(text.split())


@pytest.mark.parametrize("name", charts())
def test_a_chart_is_sound_in_both_formats(name):
    drawing = charts()[name]
    root = ElementTree.fromstring(svg(drawing))
    assert root.tag == f"{SVG}svg" and root.get("role") == "img" and drawing.title in root.get("aria-label")
    reader, body = read_pdf(pdf(drawing))
    texts = [element.text or "" for element in root.iter(f"{SVG}text")]
    assert drawing.title in texts
    # The same texts in one as in the other, each as often.
    for text, count in Counter(map(packed, texts)).items():
        assert body.count(text) >= count, text
    assert len(body) == sum(len(packed(text)) for text in texts)
    box = reader.pages[0].mediabox
    assert [float(box.width), float(box.height)] == pytest.approx(
        [0.75 * drawing.width, 0.75 * (drawing.height + 30)], abs=0.01
    )
    assert reader.metadata.title == drawing.title


@pytest.mark.parametrize("name", charts())
def test_the_same_chart_has_the_same_bytes(name):
    assert svg(charts()[name]) == svg(charts()[name])
    assert pdf(charts()[name]) == pdf(charts()[name])


def boxes(drawing: Drawing) -> list[tuple[float, float, float, float]]:
    found = []
    for t in (shape for shape in drawing.shapes if isinstance(shape, Text) and shape.text):
        width = text_width(t.text, t.size)
        back = {"start": 0, "middle": 0.5, "end": 1}[t.anchor] * width
        if t.turned:
            found.append((t.x - 0.72 * t.size, t.y + back - width, t.x, t.y + back))
        else:
            found.append((t.x - back, t.y - 0.72 * t.size, t.x - back + width, t.y))
    return found


@pytest.mark.parametrize("name", charts())
def test_texts_stay_inside_and_apart(name):
    drawing = charts()[name]
    places = boxes(drawing)
    for i, (left, top, right, bottom) in enumerate(places):
        assert left >= 0 and top >= 0 and right <= drawing.width and bottom <= drawing.height
        for other in places[i + 1 :]:
            apart = right <= other[0] or other[2] <= left or bottom <= other[1] or other[3] <= top
            assert apart, (name, places[i], other)


@pytest.mark.parametrize("name", charts())
def test_shapes_stay_inside(name):
    drawing = charts()[name]
    for shape in drawing.shapes:
        if isinstance(shape, Line | Area):
            assert all(0 <= x <= drawing.width and 0 <= y <= drawing.height for x, y in shape.points)


@pytest.mark.parametrize("many", [1, 2, 60])
def test_one_client_and_very_many(many):
    names = [f"a client with quite a long name {i}" for i in range(many)]
    values = [50 + 40 * i / many for i in range(many)]
    for drawing in (
        contribution_reward("t", names, values, [v + 1 for v in values]),
        clients_by_method("t", names, values, {"m": values}),
        lines("t", [Series(n, ((1, v), (2, v))) for n, v in zip(names, values, strict=True)], "round", "y"),
        bars("t", names, {"only": values}, "y"),
        heatmap("t", names, [[1.0, 0.0]] * many, [("layer", 2)]),
    ):
        for left, top, right, bottom in boxes(drawing):
            assert left >= 0 and top >= 0 and right <= drawing.width and bottom <= drawing.height
        ElementTree.fromstring(svg(drawing))


places = st.builds(
    lambda left, top, width, height: (left, top, left + width, top + height),
    *(st.floats(-100, 300), st.floats(-100, 300), st.floats(0.5, 120), st.floats(0.5, 40)),
)


@given(st.lists(places, max_size=12), places)
def test_whether_a_place_is_taken(those, place):
    taken = _Taken()
    for other in those:
        taken.add(other)

    def overlap(a, b):
        return min(a[2], b[2]) > max(a[0], b[0]) and min(a[3], b[3]) > max(a[1], b[1])

    assert taken.meets(place) == any(overlap(place, other) for other in those)


def test_a_long_axis_title_is_cut():
    named = "the reward of each client by somebody's.own.metrics:with_a_name_that_does_not_end_where_the_chart_does"
    for drawing in (
        scatter("t", [Series("a", ((1, 2),))], named, named),
        contribution_reward("t", ["a", "b"], [1, 2], [3, 4], named),
    ):
        for left, top, right, bottom in boxes(drawing):
            assert left >= 0 and top >= 0 and right <= drawing.width and bottom <= drawing.height


def test_nothing_to_draw_is_an_empty_frame():
    for drawing in (scatter("t", [], "x", "y"), lines("t", [Series("a", ())], "x", "y"), bars("t", [], {}, "y")):
        assert not [s for s in drawing.shapes if isinstance(s, Mark)]
        ElementTree.fromstring(svg(drawing))


def test_names_that_want_to_be_markup():
    drawing = contribution_reward(HOSTILE, [HOSTILE, "b"], [1, 2], [3, 4])
    text = svg(drawing)
    assert "<script" not in text
    root = ElementTree.fromstring(text)  # control characters would stop it
    assert any("<script>alert('\"&" in (title.text or "") for title in root.iter(f"{SVG}title"))
    _, body = read_pdf(pdf(drawing))
    assert packed("<script>alert('\"&") in body


def names_in(*names: str) -> str:
    return read_pdf(pdf(Drawing(300, 200, "t", shapes=[Text(1, 20 + 20 * k, n) for k, n in enumerate(names)])))[1]


def test_a_pdf_keeps_western_letters_and_page_numbers_are_not_made_of_names():
    assert names_in("Zoë Łódź … ± {nb}") == packed("tZoëŁódź…±{nb}")


@pytest.mark.skipif(font_named(ARABIC) is None, reason="no Arabic font here: apt-get install fonts-dejavu-core")
def test_arabic_names_survive_into_the_pdf():
    name = "مستشفى القاهرة"
    found = names_in(name)
    assert all(word in found or word[::-1] in found for word in name.split())  # readers give either order


@pytest.mark.skipif(font_named(CHINESE) is None, reason="no Chinese font here: apt-get install fonts-droid-fallback")
def test_chinese_names_survive_into_the_pdf():
    assert names_in("client 北京协和医院 1", "名前") == packed("t client 北京协和医院 1 名前")


@pytest.mark.parametrize("name", charts())
def test_texts_are_on_the_page_where_they_belong(name):
    """The beginning of each text in the PDF, as another library finds it: turned ones, too."""
    drawing, found = charts()[name], {}

    def visit(text, turned, moved, *rest):
        a, b, c, d, e, f = turned
        x, y = a * moved[4] + c * moved[5] + e, b * moved[4] + d * moved[5] + f
        if text.strip():
            found.setdefault(packed(text), []).append((x / 0.75, drawing.height - y / 0.75))

    read_pdf(pdf(drawing))[0].pages[0].extract_text(visitor_text=visit)
    for shape in (s for s in drawing.shapes if isinstance(s, Text) and s.text.strip()):
        back = {"start": 0, "middle": 0.5, "end": 1}[shape.anchor] * text_width(shape.text, shape.size)
        x, y = (shape.x, shape.y + back) if shape.turned else (shape.x - back, shape.y)
        places = found[packed(shape.text)]
        assert min(math.dist((x, y), place) for place in places) < 0.1 * text_width(shape.text, shape.size) + 2


def fonts_of(content: bytes) -> list:
    return [font.get_object() for font in read_pdf(content)[0].pages[0]["/Resources"]["/Font"].values()]


@pytest.mark.skipif(font_named(PLAIN) is None, reason="no font here: apt-get install fonts-dejavu-core")
def test_fonts_are_embedded():
    """And no more than the glyphs that are used: their names have a tag."""
    for font in fonts_of(pdf(charts()["scatter"])):
        assert "+" in font["/BaseFont"]
        (inner,) = font["/DescendantFonts"]
        assert "/FontFile2" in inner.get_object()["/FontDescriptor"].get_object()


def test_without_any_font_western_names_stay_and_others_are_one_line(monkeypatch):
    monkeypatch.setattr(fonts, "_files", list)
    assert names_in("Zoë ±") == packed("tZoë±")
    with pytest.raises(FedsacError, match=r"no font here has '京北' of 'x 北京', .* FEDSAC_FONTS; the .svg has it"):
        names_in("x 北京")


def test_fonts_of_ones_own_folder(monkeypatch, tmp_path):
    """FEDSAC_FONTS comes before the system's folders."""
    (tmp_path / "LiberationSans-Regular.ttf").write_bytes(b"no font at all")
    monkeypatch.setenv("FEDSAC_FONTS", str(tmp_path))
    assert font_named(PLAIN) == tmp_path / "LiberationSans-Regular.ttf"
    assert fonts.characters_of(tmp_path / "LiberationSans-Regular.ttf") == frozenset()


def test_numbers_are_where_they_belong():
    """By hand: a point half way between two ticks is half way between them in pixels."""
    drawing = scatter("t", [Series("a", ((0, 0), (10, 100), (5, 50)))], "x", "y")
    low, high, middle = (shape for shape in drawing.shapes if isinstance(shape, Mark) and shape.tip)
    assert (low.x + high.x) / 2 == pytest.approx(middle.x) and (low.y + high.y) / 2 == pytest.approx(middle.y)
    assert low.x < high.x and low.y > high.y
    assert "x 5.00, y 50.00" in middle.tip


def test_the_band_of_bcf():
    """c_i < theta < (c_i + 80) / 2: at c = 20 from 20 to 50, at c = 40 from 40 to 60; clients inside are circles."""
    drawing = contribution_reward("t", ["a", "b", "c"], [20, 40, 60], [30, 70, 80])
    marks = {mark.tip.split(":")[0]: mark for mark in drawing.shapes if isinstance(mark, Mark) and mark.tip}
    assert [marks[n].shape for n in "abc"] == ["circle", "diamond", "circle"]
    assert "inside BCF 20.00 to 50.00" in marks["a"].tip
    assert "outside BCF 40.00 to 60.00" in marks["b"].tip
    band = drawing.shapes[0]
    assert isinstance(band, Area)
    # In pixels: the band's edges at the x of client a are the y of rewards 20 and 50.
    up = {value: y_of(marks, value) for value in (20, 50)}
    assert edge(band.points[0], band.points[1], marks["a"].x) == pytest.approx(up[20])
    assert edge(band.points[3], band.points[2], marks["a"].x) == pytest.approx(up[50])
    assert "2 of 3 clients" in drawing.description


def y_of(marks, value):
    """From two clients with rewards 30 and 80."""
    return marks["a"].y + (value - 30) / (80 - 30) * (marks["c"].y - marks["a"].y)


def edge(start, end, x):
    return start[1] + (x - start[0]) / (end[0] - start[0]) * (end[1] - start[1])


def test_series_differ_in_colour_or_mark_and_keep_theirs():
    assert len({(axes.colour(i), axes.shape(i)) for i in range(56)}) == 56
    assert len({(axes.colour(i), axes.dash(i)) for i in range(28)}) == 28
    whole = scatter("t", [Series("a", ((1, 1),)), Series("b", ((2, 2),))], "x", "y")
    half = scatter("t", [Series("a", ()), Series("b", ((2, 2),))], "x", "y")
    looks = [[(m.shape, m.colour) for m in d.shapes if isinstance(m, Mark) and m.tip] for d in (whole, half)]
    assert looks[1] == looks[0][1:]


def test_a_long_line_is_thinned_and_keeps_its_ends():
    points = tuple((t, t % 7) for t in range(1, 5001))
    (line,) = (s for s in lines("t", [Series("a", points)], "round", "y").shapes if isinstance(s, Line) and s.tips)
    assert len(line.points) == len(line.tips) == MAX_LINE_POINTS
    assert line.tips[0].startswith("a, round 1:") and line.tips[-1].startswith("a, round 5000:")


def test_a_line_is_broken_where_it_has_no_value():
    drawing = lines("t", [Series("a", ((1, 5), (2, 6), (4, 7), (5, 8), (7, 9)), gaps=(3, 6))], "round", "y")
    parts = [[tip.split(":")[0] for tip in s.tips] for s in drawing.shapes if isinstance(s, Line) and s.tips]
    assert parts == [["a, round 1", "a, round 2"], ["a, round 4", "a, round 5"]]
    assert [s.tip for s in drawing.shapes if isinstance(s, Mark)] == ["a, round 7: 9.00"]  # one point alone is a mark


def written(drawing: Drawing) -> dict[str, Text]:
    return {shape.text: shape for shape in drawing.shapes if isinstance(shape, Text)}


def test_everyone_in_a_crowd_has_a_name_tied_to_the_point():
    """Nine clients within a few pixels, and the best in the corner: no name is missing, and each stands beside its
    point or at the end of a line that begins there."""
    names = [f"client-{i:02d}" for i in range(1, 11)]
    drawing = contribution_reward("t", names, [40 + 0.2 * i for i in range(9)] + [90], [50.0] * 9 + [95])
    found = written(drawing)
    assert set(names) <= set(found)
    ties = [shape for shape in drawing.shapes if isinstance(shape, Line) and shape.width == 0.8]
    assert ties
    for mark in (shape for shape in drawing.shapes if isinstance(shape, Mark) and shape.tip):
        label = found[mark.tip.partition(":")[0]]
        beside = abs(label.x - mark.x) <= 9 and abs(label.y - mark.y) <= 18.5
        own = [tie for tie in ties if math.isclose(math.dist(tie.points[0], (mark.x, mark.y)), 6)]
        assert beside or any(math.dist(tie.points[1], (label.x, label.y)) <= 13 for tie in own)


@pytest.mark.parametrize("many", [10, 60, 400])
def test_the_best_client_has_a_name_in_any_crowd(many):
    names = [f"client-{i:03d}" for i in range(many)]
    values = [90 + 0.02 * i * 10 / many for i in range(many)]
    assert {names[0], names[-1]} <= set(written(contribution_reward("t", names, values, [v + 1 for v in values])))


def test_a_name_is_not_nearer_to_another_point():
    """Three in a row, the left two so close that the left one's name would stand above its neighbour."""
    names, x = ["the first client", "second", "third"], [10, 14, 60]
    drawing = scatter("t", [Series("a", tuple((v, 1) for v in x), labels=tuple(names))], "x", "y")
    marks = [shape for shape in drawing.shapes if isinstance(shape, Mark) and shape.tip]
    ends = [shape.points for shape in drawing.shapes if isinstance(shape, Line) and shape.width == 0.8]
    for k, name in enumerate(names):
        label = written(drawing)[name]
        nearest = min(range(3), key=lambda i: math.dist((marks[i].x, marks[i].y), (label.x, label.y)))
        tied = any(math.dist(end, (label.x, label.y)) <= 13 for _, end in ends)
        assert nearest == k or tied


def test_a_name_to_the_left_ends_at_its_point():
    """Whatever font a browser takes in Helvetica's place, it cannot run into the point."""
    drawing = scatter("t", [Series("a", ((0, 0), (10, 10)), labels=("low", "the highest of all"))], "x", "y")
    mark = max((shape for shape in drawing.shapes if isinstance(shape, Mark) and shape.tip), key=lambda m: m.x)
    label = written(drawing)["the highest of all"]
    assert label.anchor == "end" and label.x < mark.x - 5


def test_thirteen_methods_need_no_legend():
    """They are named beside their points and at the ends of their lines, once each."""
    methods = [f"method-{i}" for i in range(13)]
    points = [Series(m, ((50 + 3 * i, (7 * i) % 13),), labels=(m,)) for i, m in enumerate(methods)]
    curves = [Series(m, ((1, i), (2, (5 * i) % 13))) for i, m in enumerate(methods)]
    for drawing in (scatter("t", points, "x", "y"), lines("t", curves, "round", "y", direct=False)):
        texts = [shape.text for shape in drawing.shapes if isinstance(shape, Text)]
        assert [texts.count(method) for method in methods] == [1] * 13
    few = lines("t", curves[:3], "round", "y", direct=False)
    assert [written(few)[method].y for method in methods[:3]] == [16, 16, 16]  # in one row above
    # Points on top of each other cannot all be named there: the legend stays.
    same = [Series(m, ((1, 1),), labels=(m,)) for m in [f"a method with a long name {i}" for i in range(40)]]
    keys = [s for s in scatter("t", same, "x", "y").shapes if isinstance(s, Mark) and not s.tip]
    assert len(keys) == 40


def test_one_evaluation_is_bars():
    drawing = lines("Reward", [Series("a", ((3, 40.0),)), Series("b", ((3, 80.0),))], "round", "accuracy")
    assert drawing.title == "Reward: round 3 alone" and not [s for s in drawing.shapes if isinstance(s, Mark)]
    a, b = (s for s in drawing.shapes if isinstance(s, Area) and s.tip)
    tall = [max(y for _, y in bar.points) - min(y for _, y in bar.points) for bar in (a, b)]
    assert (a.tip, b.tip) == ("a: 40.00", "b: 80.00") and tall[1] == pytest.approx(2 * tall[0])


def test_layers_side_by_side_and_one_below_the_other():
    rows = [[1, 0, 1, 1], [0, 1, 0, 1]]
    for stacked in (False, True):
        drawing = heatmap("t", ["a", "b"], rows, [("one", 2), ("two", 2)], stacked=stacked)
        one, two = written(drawing)["one"], written(drawing)["two"]
        assert (one.x == two.x, one.y == two.y) == (stacked, not stacked)
        tips = sorted(s.tip for s in drawing.shapes if isinstance(s, Area) and s.tip)
        assert tips == [
            *("a, one, columns 1 to 1: 1", "a, two, columns 1 to 2: 1"),
            *("b, one, columns 2 to 2: 1", "b, two, columns 2 to 2: 1"),
        ]
        inside = [(x, y) for s in drawing.shapes if isinstance(s, Area) for x, y in s.points]
        assert all(0 <= x <= drawing.width and 0 <= y <= drawing.height for x, y in inside)


def test_a_line_that_ends_early_is_led_to_its_name_by_dots():
    curves = [Series("whole", ((1, 1), (3, 2))), Series("early", ((1, 4), (2, 5)), gaps=(3,))]
    drawing = lines("t", curves, "round", "y")
    ends = {s.tip.split(",")[0]: s.points[-1] for s in drawing.shapes if isinstance(s, Line) and s.tips}
    leads = [s for s in drawing.shapes if isinstance(s, Line) and not s.tips and s.width == 1 and s.colour != "grid"]
    dashes = {name: s.dash for name, (x, y) in ends.items() for s in leads if s.points[0] == pytest.approx((x + 1, y))}
    assert dashes == {"whole": (), "early": (1, 4)}


def test_equal_neighbours_of_a_heatmap_are_one_shape():
    drawing = heatmap("t", ["a"], [[1, 1, 1, 0, 0, 1]], [("layer", 6)], tip="{name} {first}-{last}")
    assert [s.tip for s in drawing.shapes if isinstance(s, Area) and s.tip] == ["a 1-3", "a 6-6"]


def test_clients_are_sorted_by_contribution():
    drawing = clients_by_method("t", ["most", "least"], [90, 10], {"m": [95, 20]})
    first, second = (s for s in drawing.shapes if isinstance(s, Mark) and s.tip)
    assert first.x < second.x and first.tip == "least, m: 20.00" and second.tip == "most, m: 95.00"


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 100, [0, 20, 40, 60, 80, 100]),
        (97.1, 99.4, [97.5, 98, 98.5, 99]),
        (-20, 99, [0, 25, 50, 75]),
        (1, 1, [1]),
    ],
)
def test_ticks(low, high, expected):
    assert axes.ticks(low, high) == expected


def test_widths_and_cutting():
    assert text_width("Hi", 1000) == 722 + 222
    assert fitted("a short one", 12, 500) == "a short one"
    cut = fitted("one that is far too long", 12, 60)
    assert cut.endswith("…") and text_width(cut, 12) <= 60
    assert cut == "one that i…" and text_width("one that is…", 12) > 60
    # A file of somebody else's may name anything: what is too long is not read on, or this would take hours.
    assert fitted("far too long" * 10**6, 12, 60) == "far too lo…"
    assert box(0, 0, 2, 1) == ((0, 0), (2, 0), (2, 1), (0, 1))
