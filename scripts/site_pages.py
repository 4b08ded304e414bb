"""Pages of the documentation site that are not in docs/: README.md and its like, and the reference.

A hook of mkdocs (mkdocs.yml names it). Pages link to each other as files of the repository, which is how a forge shows
them; here every such link becomes one to the site's page.
"""

import ast
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "fedsac"
ABOVE = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Pages at the top of the repository, and what they are called on the site."""

LINK = re.compile(r"(?<=\]\()(?P<path>[^)\s#:]+)(?P<anchor>#[^)\s]*)?(?=\))")


def public_names() -> list[str]:
    """What `fedsac.__all__` lists, read without importing anything."""
    for statement in ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
            return list(ast.literal_eval(statement.value))
    raise ValueError("src/fedsac/__init__.py has no __all__")


def modules(name: str) -> list[str]:
    """A module, or a package and every module in it."""
    path = ROOT / "src" / Path(*name.split("."))
    if path.with_suffix(".py").exists():
        return [name]
    inside = sorted(file.relative_to(ROOT / "src").with_suffix("") for file in path.rglob("*.py"))
    return [".".join(file.parts) for file in inside if file.name != "__init__"]


def reference(title: str, names: list[str]) -> str:
    return f"# {title}\n\n" + "\n\n".join(f"::: {name}" for name in names) + "\n"


def reference_pages(config: MkDocsConfig) -> dict[str, str]:
    pages = {"reference/fedsac.md": reference("Public API", [f"fedsac.{name}" for name in public_names()])}
    for page, name in config.extra["reference"].items():
        pages[f"reference/{page}.md"] = reference(name, modules(name))
    return pages


def on_files(files: Files, config: MkDocsConfig, **more: Any) -> Files:
    above = {page: (ROOT / name).read_text(encoding="utf-8") for name, page in ABOVE.items()}
    for page, text in {**above, **reference_pages(config)}.items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **more: Any) -> str:
    here = page.file.src_uri
    origin = next((name for name, site in ABOVE.items() if site == here), f"docs/{here}")

    def solved(link: re.Match[str]) -> str:
        named = posixpath.normpath(posixpath.join(posixpath.dirname(origin), link["path"]))
        target, anchor = place_on_site(named, link["anchor"] or "", config)
        return posixpath.relpath(target, posixpath.dirname(here) or ".") + anchor if target else link[0]

    return LINK.sub(solved, markdown)


def place_on_site(named: str, anchor: str, config: MkDocsConfig) -> tuple[str | None, str]:
    """Where a file of the repository is on the site: page and anchor. None: nowhere, and the strict build says so."""
    if named in ABOVE:
        return ABOVE[named], anchor
    if named.startswith("docs/"):
        return named.removeprefix("docs/"), anchor
    if named.startswith("src/") and named.endswith(".py"):
        module = named.removeprefix("src/").removesuffix(".py").replace("/", ".")
        for page, name in config.extra["reference"].items():
            if module in modules(name):
                return f"reference/{page}.md", f"#{module}"
    return None, anchor
