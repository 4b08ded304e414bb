"""docs/architecture.md against the code: every file and every name on it is there, and no room is missing."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
NAMES = sorted(set(re.findall(r"`(fedsac(?:\.\w+)+)`", PAGE)))


def resolved(name: str) -> object:
    """The module, or what is in a module, that a dotted name names."""
    module, rest = name, []
    while True:
        try:
            found: object = importlib.import_module(module)
            break
        except ModuleNotFoundError:
            module, _, last = module.rpartition(".")
            rest.insert(0, last)
    for part in rest:
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_there(name):
    assert resolved(name) is not None


def test_the_first_screen_answers_where():
    first = PAGE.split("## Rooms")[0]
    assert len(first.splitlines()) < 35
    for question in (
        "a reward is cut",
        "a reply is refused",
        "a checkpoint is written",
        "training is done",
        "a metric is",
    ):
        assert question in first
    assert "a scene is added" in first
    assert len(NAMES) > 30


def rooms() -> dict[str, str]:
    """What the page says of each room."""
    return dict(re.findall(r"^\| `(\w+)/` \| (.*) \|$", PAGE, flags=re.MULTILINE))


def test_every_room_is_on_the_page_and_every_file_is_in_its_room():
    package = ROOT / "src" / "fedsac"
    assert set(rooms()) == {path.name for path in package.iterdir() if (path / "__init__.py").exists()}
    for room, text in rooms().items():
        for name in re.findall(r"`([\w/]+\.py)`", text):
            assert (package / room / name).exists(), f"{room}/{name}"
    top = re.search(r"^\| top level \| (.*) \|$", PAGE, flags=re.MULTILINE)
    assert top is not None
    assert all((package / name).exists() for name in re.findall(r"`(\w+\.py)`", top[1]))


def test_every_file_of_the_federation_is_explained():
    text = PAGE.split("## The federation")[1]
    files = {path.name for path in (ROOT / "src/fedsac/federation").glob("*.py")} - {"__init__.py"}
    assert {name for name in files if f"{name}`" not in text} == set()


def test_every_link_leads_somewhere():
    for target in re.findall(r"\]\(([\w./-]+)(?:#[\w-]+)?\)", PAGE):
        assert (ROOT / "docs" / target).exists(), target


def test_every_path_in_the_repository_is_there():
    for path in re.findall(r"`((?:tests|src|docs|benchmarks)/[\w/.]+)`", PAGE):
        assert (ROOT / path).exists(), path
