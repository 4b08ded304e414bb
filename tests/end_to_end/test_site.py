"""The documentation site: everything is in it, every link leads somewhere, and nothing is loaded from elsewhere."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from dataclasses import fields
from html import escape
from pathlib import Path

import pytest

import fedsac

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("mkdocs.yml", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs", "scripts", "src")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="needs mkdocs, which `make docs` installs"),
]


def build(repository: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    settings = [f"--config-file={repository / 'mkdocs.yml'}"]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run([*command, *settings], capture_output=True, text=True, env=environment)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT, folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def copy(tmp_path) -> Path:
    """As much of the repository as the site is made of, to be changed."""
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / part, tmp_path / part)
    return tmp_path


def test_every_page_is_there(site):
    pages = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    assert len(pages) > 5
    named = [page.with_name("index.md") if page.name == "README.md" else page for page in pages]
    assert [page for page in named if not (site / page.with_suffix(".html")).exists()] == []
    assert "<h1" in (site / "index.html").read_text(encoding="utf-8")


def test_the_reference_has_all_that_is_public(site):
    text = (site / "reference" / "fedsac.html").read_text(encoding="utf-8")
    assert [name for name in fedsac.__all__ if f'id="fedsac.{name}"' not in text] == []
    helps = {field.name: escape(field.metadata["help"], quote=False).split("`")[0] for field in fields(fedsac.Config)}
    assert {name: help for name, help in helps.items() if f"<p>{help}" not in text} == {}


def test_examples_are_shown_as_code(site):
    for page in (site / "reference").glob("*.html"):
        assert "<blockquote>" not in page.read_text(encoding="utf-8"), page.name
    assert '<span class="gp">&gt;&gt;&gt; </span>' in (site / "reference" / "core.html").read_text(encoding="utf-8")


def test_nothing_is_loaded_from_elsewhere(site):
    loading = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)=[\"']?(?:https?:)?//[^>]*>")
    assert [found for page in site.rglob("*.html") for found in loading.findall(page.read_text(encoding="utf-8"))] == []
    imported = re.compile(r"(?:@import|url\()\s*[\"'(]*(?:https?:)?//[^)\"';]*")
    assert [found for sheet in site.rglob("*.css") for found in imported.findall(sheet.read_text("utf-8"))] == []


def test_links_to_files_outside_docs_lead_to_their_pages(copy, tmp_path):
    page = copy / "docs" / "results" / "speed.md"
    links = ("../../README.md#the-paper", "../../CONTRIBUTING.md", "../../src/fedsac/core/units.py", "../decisions.md")
    page.write_text(page.read_text(encoding="utf-8") + "".join(f"\n[there]({link})\n" for link in links), "utf-8")
    done = build(copy, tmp_path / "site")
    assert done.returncode == 0, done.stderr
    found = re.findall(r'<a href="([^"]*)">there</a>', (tmp_path / "site/results/speed.html").read_text("utf-8"))
    reference = "../reference/core.html#fedsac.core.units"
    assert found == ["../index.html#the-paper", "../contributing.html", reference, "../decisions.html"]


@pytest.mark.parametrize(
    ("page", "text", "complaint"),
    [
        ("docs/decisions.md", "[gone](nowhere.md)", "nowhere.md"),
        ("docs/decisions.md", "[gone](architecture.md#nowhere)", "nowhere"),
        ("docs/decisions.md", "[gone](../src/fedsac/nowhere.py)", "nowhere.py"),
        ("README.md", "[gone](docs/nowhere.md)", "nowhere.md"),
        ("README.md", "[gone](#nowhere)", "nowhere"),
        ("docs/without-a-place.md", "# A page that is not in `nav`", "without-a-place.md"),
        ("docs/decisions.md", "::: fedsac.core.nowhere", "fedsac.core.nowhere"),
    ],
)
def test_what_leads_nowhere_fails_the_build(copy, tmp_path, page, text, complaint):
    with (copy / page).open("a", encoding="utf-8") as file:
        file.write(f"\n{text}\n")
    done = build(copy, tmp_path / "site")
    assert done.returncode != 0
    assert complaint in done.stderr
