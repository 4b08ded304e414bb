"""Who can read what a federation writes, what gets into an image, and what consoles say when something ends."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

pytest.importorskip("flwr")

from fedsac.cli import main
from fedsac.federation.processes import last_line
from tests.flower_grid import coordinate, digits_silos, federation

ROOT = Path(__file__).resolve().parents[1]


def open_to_others(folder):
    return sorted(str(path) for path in [folder, *folder.rglob("*")] if path.stat().st_mode & 0o077)


def test_everything_that_init_join_and_add_write_is_the_owners(tmp_path):
    hub, site = tmp_path / "hub", tmp_path / "north"
    assert main(["federation", "init", str(hub), "--sites", "a,b"]) == 0
    assert main(["federation", "join", str(site), str(hub / "invitation.json")]) == 0
    assert main(["federation", "add", str(hub), "north", "--request", str(site / "request.json")]) == 0
    assert main(["federation", "add", str(hub), "south"]) == 0
    assert open_to_others(hub) == [] and open_to_others(site) == []
    (tmp_path / "after").touch()
    assert (tmp_path / "after").stat().st_mode & 0o777 == 0o666 & ~_umask(), "the caller's umask is as it was"


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_rewards_ledger_and_receipts_are_in_folders_of_the_owners_alone(tmp_path):
    """Called from Python, with the umask that there is: folders are closed, and what they hold with them."""
    folder = federation(tmp_path / "fed", digits_silos(tmp_path / "silos"), rounds=1, hidden=(8,))
    coordinate(folder)
    for path in (folder, folder / "server", folder / "server" / "rewards", folder / "a"):
        assert path.stat().st_mode & 0o077 == 0, path
    for name in ("key", "heads.jsonl"):
        assert (folder / "a" / name).stat().st_mode & 0o077 == 0, name


def ignored(path, patterns):
    """Docker's rule for the patterns that the file has: the last one that matches a path or a parent decides."""
    out = False
    for pattern in patterns:
        keep, name = pattern.startswith("!"), pattern.lstrip("!")
        parts = Path(path).parts
        if name == "*" or parts[0] == name or (name.startswith("**/") and name[3:] in parts):
            out = not keep
    return out


def test_images_hold_the_package_and_no_secret():
    text = (ROOT / ".dockerignore").read_text()
    patterns = [line for line in text.splitlines() if line and not line.startswith("#")]
    for path in ("trial/a/key", "consortium/server/ca.key", "north/data.csv", "data.npz", ".git/config", "x.csv"):
        assert ignored(path, patterns), path
    for path in ("src/fedsac/cli/federation.py", "pyproject.toml", "constraints.txt", "README.md", "LICENSE"):
        assert not ignored(path, patterns) and (ROOT / path).exists(), path


def test_what_buildah_copies_is_the_package_and_no_secret(tmp_path):
    """The context as the Containerfile copies it, by a real build: a federation's folders lie in the working tree."""
    if shutil.which("buildah") is None or os.geteuid() != 0:
        pytest.skip("needs buildah, and root to look into what it has stored")
    tree = tmp_path / "tree"
    for name in ("trial/a/key", "trial/server/ca.key", "key", "data.npz", "src/fedsac/x.py", "src/__pycache__/x.pyc"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text("secret")
    for name in (".dockerignore", "pyproject.toml", "constraints.txt", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    copy = next(line for line in (ROOT / "docs/containers/Containerfile").read_text().splitlines() if "COPY" in line)
    (tmp_path / "Containerfile").write_text(f"FROM scratch\n{copy}\n")
    store = ["--storage-driver", "vfs", "--root", str(tmp_path / "store"), "--runroot", str(tmp_path / "run")]
    built = ["build", "--isolation", "chroot", "--file", str(tmp_path / "Containerfile"), "--tag", "tried", str(tree)]
    done = subprocess.run(["buildah", *store, *built], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (layer,) = (tmp_path / "store" / "vfs" / "dir").iterdir()
    found = {str(path.relative_to(layer / "src")) for path in (layer / "src").rglob("*") if path.is_file()}
    kept = {"pyproject.toml", "constraints.txt", "README.md", "LICENSE", "src/fedsac/x.py"}
    assert found - {".dockerignore"} == kept


def test_containers_run_as_the_user_whose_folders_they_are_given():
    services = yaml.safe_load((ROOT / "docs/containers/compose.yaml").read_text())["services"]
    assert all(re.match(r"\$\{FEDSAC_USER:\?", service["user"]) for service in services.values())


SAID = {
    "FileNotFoundError: [Errno 2] No such file or directory: 'flower-superexec'": """Traceback (most recent call last):
  File "subprocess.py", line 1950, in _execute_child
    raise child_exception_type(errno_num, err_msg, err_filename)
FileNotFoundError: [Errno 2] No such file or directory: 'flower-superexec'

2026-11-18T08:43:41.939Z ERROR [uvicorn.error] Application startup failed. Exiting.
""",
    "sqlalchemy.exc.DatabaseError: (sqlite3.DatabaseError) file is not a database": """  File "x.py", line 52, in _set
    cursor.execute(f"PRAGMA {pragma} = {value};")
sqlalchemy.exc.DatabaseError: (sqlite3.DatabaseError) file is not a database
(Background on this error at: https://sqlalche.me/e/21/4xp6)
""",
    "ERROR : Path argument `--ssl-ca-certfile` does not point to a file.": """INFO : Starting Flower SuperLink
ERROR : Path argument `--ssl-ca-certfile` does not point to a file.
INFO : SuperLink terminated gracefully.
INFO : FastAPI lifespan: shutdown
""",
    "INFO : FastAPI lifespan: startup": "INFO : FastAPI lifespan: startup\nINFO : Shutting down\n",
    "nothing": "",
}


@pytest.mark.parametrize("cause", SAID)
def test_the_cause_is_shown_and_not_how_flower_shuts_down(cause, tmp_path):
    log = tmp_path / "superlink.log"
    log.write_text(SAID[cause])
    assert last_line(log) == f"{log} says: {cause}"


def test_a_wrong_label_column_names_what_to_change(tmp_path, capsys):
    folder = federation(tmp_path / "fed", digits_silos(tmp_path / "silos"), rounds=1)
    (folder / "a" / "data.csv").write_text("x,y\n1,2\n")
    toml = folder / "a" / "site.toml"
    toml.write_text(toml.read_text().replace('"data.npz"', '"data.csv"'))
    assert main(["federation", "site", str(folder / "a")]) == 2
    said = capsys.readouterr().err
    assert f"write the one as label in {toml}" in said and "--label" not in said
    hub = folder / "federation.toml"
    hub.write_text(hub.read_text().replace('"validation.npz"', '"wrong.csv"'))
    (folder / "wrong.csv").write_text("x,y\n1,2\n")
    assert main(["federation", "server", str(folder)]) == 2
    said = capsys.readouterr().err
    assert f"write the one as label in {hub}" in said and "--label" not in said
