"""The page in a real browser: drawn, sortable, readable with mouse, keys, on a phone and in the dark."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import fedsac
from fedsac import Config
from fedsac.report.page import write
from fedsac.runs.comparing import compare

pytestmark = pytest.mark.slow

CHROMIUM, DRIVER = "/usr/bin/chromium", "/usr/bin/chromedriver"
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--hide-scrollbars"),
)
ARTEFACTS = Path(__file__).resolve().parents[2] / "test-artefacts"


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    fedsac.run(Config(rounds=8, local_steps=10), folder / "run")
    small = Config(rounds=4, clients=4, hidden=(16, 8), local_steps=5, standalone_steps=20)
    compare(small, ["fedsac", "fedavg", "cgsv"], 2, folder / "compared")
    return {name: write([folder / name])[0] for name in ("run", "compared")}


@pytest.fixture(scope="module")
def browser(tmp_path_factory) -> Iterator[object]:
    if not Path(CHROMIUM).exists() or not Path(DRIVER).exists():
        pytest.skip(f"needs {CHROMIUM} and {DRIVER}; make browser installs them where it can")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


def visit(browser, page: Path, *, width: int = 1200, height: int = 900, dark: bool = False) -> None:
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": [scheme]})
    browser.get(page.as_uri())
    assert browser.get_log("browser") == []  # no error, no warning, nothing blocked


def keep(browser, name: str) -> None:
    """A picture of the whole page for a person to look at."""
    ARTEFACTS.mkdir(exist_ok=True)
    height = browser.execute_script("return document.documentElement.scrollHeight")
    width = browser.execute_script("return innerWidth")
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.save_screenshot(str(ARTEFACTS / f"{name}.png"))
    assert (ARTEFACTS / f"{name}.png").stat().st_size > 10_000


@pytest.mark.parametrize(("name", "charts"), [("run", 7), ("compared", 4)])
def test_charts_are_drawn(name, charts, browser, pages):
    visit(browser, pages[name])
    boxes = browser.execute_script(
        """return [...document.querySelectorAll(".plot:not(.narrow) svg.chart")].map((chart) => {
             const outer = chart.getBoundingClientRect();
             const shapes = [...chart.querySelectorAll("polyline, polygon, circle, text")];
             return {
               width: outer.width, height: outer.height,
               // Lines across have no height, lines up no width; nothing has neither.
               empty: shapes.filter((s) => { const b = s.getBBox(); return b.width + b.height === 0; }).length,
               shapes: shapes.length,
               outside: shapes.filter((s) => {
                 const b = s.getBoundingClientRect();
                 return b.left < outer.left - 1 || b.right > outer.right + 1 || b.bottom > outer.bottom + 1;
               }).map((s) => s.outerHTML),
             };
           });"""
    )
    assert len(boxes) == charts
    for found in boxes:
        assert found["width"] > 300 and found["height"] > 100
        assert found["shapes"] > 5 and found["empty"] == 0
        assert found["outside"] == []
    keep(browser, name)


def test_a_heading_sorts_both_ways(browser, pages):
    from selenium.webdriver.common.by import By

    visit(browser, pages["run"])
    table = next(t for t in browser.find_elements(By.TAG_NAME, "table") if t.text.startswith("Clients after"))

    def column(k: int) -> list[str]:
        cells = "return [...arguments[0].tBodies[0].rows].map((row) => row.cells[arguments[1]].textContent)"
        return browser.execute_script(cells, table, k)

    heads = table.find_elements(By.CSS_SELECTOR, "thead th")
    place = next(k for k, head in enumerate(heads) if head.text.startswith("reward"))
    before = column(place)
    assert all(head.get_attribute("aria-sort") is None for head in heads)
    heads[place].find_element(By.TAG_NAME, "button").click()
    assert heads[place].get_attribute("aria-sort") == "descending"
    assert [float(v) for v in column(place)] == sorted(map(float, before), reverse=True)
    heads[place].find_element(By.TAG_NAME, "button").send_keys("\n")  # the keyboard does it, too
    assert heads[place].get_attribute("aria-sort") == "ascending"
    assert [float(v) for v in column(place)] == sorted(map(float, before))
    heads[0].find_element(By.TAG_NAME, "button").click()
    assert heads[place].get_attribute("aria-sort") is None and column(0) == sorted(column(0))
    assert sorted(column(place)) == sorted(before)  # rows moved whole
    assert browser.get_log("browser") == []


def tip(browser) -> str | None:
    return browser.execute_script("const t = document.getElementById('tip'); return t.hidden ? null : t.textContent")


def test_pointing_shows_a_value(browser, pages):
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.by import By

    visit(browser, pages["run"])
    marks = browser.find_elements(By.CSS_SELECTOR, "svg.chart [data-tip]:not(polyline)")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", marks[0])
    ActionChains(browser).move_to_element(marks[0]).perform()
    assert tip(browser) == marks[0].get_attribute("data-tip")
    box = browser.execute_script("return document.getElementById('tip').getBoundingClientRect().toJSON()")
    assert box["width"] > 20 and box["left"] >= 0 and box["top"] >= 0
    ActionChains(browser).move_to_element(browser.find_element(By.TAG_NAME, "footer")).perform()
    assert tip(browser) is None


def test_arrow_keys_and_a_finger_show_values(browser, pages):
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    visit(browser, pages["run"])
    chart = browser.find_element(By.CSS_SELECTOR, "svg.chart:has([data-tips])")
    first = browser.execute_script("return JSON.parse(arguments[0].querySelector('[data-tips]').dataset.tips)", chart)
    browser.execute_script("arguments[0].focus()", chart)
    for k in (0, 1):
        ActionChains(browser).send_keys(Keys.ARROW_RIGHT).perform()
        assert tip(browser) == first[k]
    ActionChains(browser).send_keys(Keys.ESCAPE).perform()
    assert tip(browser) is None
    browser.execute_script(
        """const chart = arguments[0], line = chart.querySelector("[data-tips]"), m = chart.getScreenCTM();
           const { x, y } = line.points[3];
           const at = { clientX: x * m.a + m.e, clientY: y * m.d + m.f, pointerType: "touch", bubbles: true };
           chart.dispatchEvent(new PointerEvent("pointerdown", at));""",
        chart,
    )
    assert tip(browser) == first[3]


@pytest.mark.parametrize("width", [320, 360])
@pytest.mark.parametrize("name", ["run", "compared"])
def test_a_phone_scrolls_one_way_only(name, width, browser, pages):
    visit(browser, pages[name], width=width, height=640)
    inner, whole = browser.execute_script("return [innerWidth, document.documentElement.scrollWidth]")
    assert inner == width and whole <= width
    # What is wider scrolls inside its box, and the keyboard reaches it.
    assert browser.execute_script(
        """const reached = (box) => box.scrollWidth <= box.clientWidth || box.tabIndex === 0;
           return [...document.querySelectorAll(".scroll")].every(reached)"""
    )
    keep(browser, f"{name}-{width}")


PHONE = 390


def test_a_phone_sees_every_layer_and_can_read_it(browser, pages):
    """The chart of neurons stands in layers one below the other, no chart is cut, and no text is tiny."""
    visit(browser, pages["run"], width=PHONE, height=844)
    found = browser.execute_script(
        """return [...document.querySelectorAll("svg.chart")].filter((c) => c.getClientRects().length).map((chart) => {
             const outer = chart.getBoundingClientRect(), scale = outer.width / chart.viewBox.baseVal.width;
             const texts = [...chart.querySelectorAll("text")];
             return {
               right: outer.right, texts: texts.map((t) => t.textContent),
               least: Math.min(...texts.map((t) => scale * Number(t.getAttribute("font-size")))),
             };
           })"""
    )
    assert len(found) == 7
    assert all(chart["right"] <= PHONE and chart["least"] >= 10 for chart in found)
    assert any({"layer 1: 200 neurons", "layer 2: 200 neurons"} <= set(chart["texts"]) for chart in found)
    tapped = browser.execute_script(
        """const cell = document.querySelector(".narrow [data-tip]");
           cell.dispatchEvent(new PointerEvent("pointerdown", { bubbles: true, pointerType: "touch" }));
           return document.getElementById("tip").hidden ? "" : document.getElementById("tip").textContent"""
    )
    assert tapped.startswith("client-") and "of layer 1" in tapped


def test_a_table_that_is_cut_says_so_and_keeps_its_names(browser, pages):
    visit(browser, pages["run"], width=PHONE, height=844)
    found = browser.execute_script(
        """return [...document.querySelectorAll(".scroll")].map((box) => {
             box.scrollLeft = 1000;
             const head = box.querySelector("tbody th").getBoundingClientRect();
             return {
               cut: box.scrollWidth > box.clientWidth + 1, hint: !box.previousElementSibling.hidden,
               name: Math.abs(head.left - box.getBoundingClientRect().left) < 2,
             };
           })"""
    )
    assert any(table["cut"] for table in found)
    assert all(table["hint"] == table["cut"] and table["name"] for table in found)
    visit(browser, pages["run"])
    assert browser.execute_script("return [...document.querySelectorAll('.hint')].every((hint) => hint.hidden)")


def lightness(browser) -> list[float]:
    """Of the page, of the paper of charts and of their texts, 0 to 1."""
    colours = browser.execute_script(
        """const of = (selector, what) => getComputedStyle(document.querySelector(selector))[what];
           return [of("body", "backgroundColor"), of(".chart .f-paper", "fill"), of(".chart text", "fill")]"""
    )
    return [sum(map(int, re.findall(r"\d+", colour)[:3])) / 765 for colour in colours]


def test_the_dark_is_dark(browser, pages):
    visit(browser, pages["run"])
    back, paper, ink = lightness(browser)
    assert back > 0.9 and paper > 0.9 and ink < 0.5
    visit(browser, pages["run"], dark=True)
    back, paper, ink = lightness(browser)
    assert back < 0.15 and paper < 0.15 and ink > 0.5
    keep(browser, "run-dark")


def test_it_prints_on_white(browser, pages):
    import base64

    visit(browser, pages["run"], dark=True)
    dark = {"name": "prefers-color-scheme", "value": "dark"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": [dark]})
    _, paper, ink = lightness(browser)
    assert paper > 0.9 and ink < 0.5
    content = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"])
    ARTEFACTS.mkdir(exist_ok=True)
    (ARTEFACTS / "run-print.pdf").write_bytes(content)
    assert content.startswith(b"%PDF") and len(content) > 20_000


@pytest.mark.parametrize("name", ["run", "compared"])
def test_paper_cuts_no_table(name, browser, pages):
    """At the width of A4 less its margins, with the classes that a narrow window has set before."""
    visit(browser, pages[name], width=718)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert browser.execute_script(
        "return [...document.querySelectorAll('table')].every((t) => t.getBoundingClientRect().right <= innerWidth + 1)"
    )
    assert browser.execute_script("return [...document.querySelectorAll('.hint')].every((h) => !h.offsetHeight)")


def test_names_that_want_to_be_scripts_stay_names(browser, tmp_path):
    import numpy as np

    silos = tmp_path / "silos"
    silos.mkdir()
    rng = np.random.default_rng(0)
    for name in ("<img src=x onerror=document.title=1>", "a<_script><script>document.title=2", "validation"):
        np.savez(silos / f"{name}.npz", x=rng.normal(size=(60, 3)), y=rng.integers(2, size=60))
    quick = Config(data=str(silos), rounds=2, hidden=(4,), local_steps=1, standalone_steps=2)
    fedsac.run(quick, tmp_path / "run")
    visit(browser, write([tmp_path / "run"])[0])
    assert browser.title.startswith("fedsac on")
    assert browser.execute_script("return document.querySelectorAll('img').length") == 0
    assert "<img src=x onerror=document.title=1>" in browser.execute_script("return document.body.textContent")
