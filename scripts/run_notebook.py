"""Execute a notebook in a kernel of its own and keep what its cells show: scripts/run_notebook.py [--check] NOTEBOOK

With `--check` nothing is written: the cells must run, and show what the notebook has, but for numbers, which other
processors round otherwise, and progress must have been shown. Progress is not kept: it tells of time alone.
"""

import difflib
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

SECONDS = 600  # for one cell


def executed(path: Path) -> tuple[Any, str]:
    """The notebook with the outputs of its cells, and what went to standard error: progress."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(notebook, timeout=SECONDS, kernel_name="python3").execute(cwd=folder)
    progress = []
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times
        if cell.cell_type == "code":
            progress += [out.text for out in cell.outputs if out.get("name") == "stderr"]
            cell.outputs = [out for out in cell.outputs if out.get("name") != "stderr"]
    notebook.metadata.pop("language_info", None)  # the version of Python
    return notebook, "".join(progress)


def shown(notebook: Any) -> list[str]:
    """What the cells show, without numbers: of a figure, that there is one."""
    lines = []
    for number, cell in enumerate(notebook.cells):
        for out in cell.get("outputs", ()):
            texts = {"text": out.text} if out.output_type == "stream" else out.get("data", {})
            for kind, text in sorted(texts.items()):
                plain = "(drawn)" if kind == "image/svg+xml" else re.sub(r"-?\d[\d.,e+-]*|NaN", "#", text)
                plain = re.sub(r"[ -]+", " ", re.sub(r"\b(yes|no)\b", "?", plain))
                lines += [f"cell {number}, {kind}: {line}" for line in plain.splitlines()]
    return lines


def main() -> None:
    *flags, name = sys.argv[1:]
    path = Path(name)
    notebook, progress = executed(path)
    if flags != ["--check"]:
        nbformat.write(notebook, path)
        return
    if "rounds: 100%" not in progress:
        sys.exit(f"{path}: no progress was shown: {progress[-500:]!r}")
    before, now = shown(nbformat.read(path, as_version=4)), shown(notebook)
    if before != now:
        sys.exit(f"{path} shows something else now:\n" + "\n".join(difflib.unified_diff(before, now, lineterm="")))
    print(f"{path}: {len(now)} lines as before")


if __name__ == "__main__":
    main()
