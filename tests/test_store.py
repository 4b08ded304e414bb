"""Run folders: complete, equal byte for byte, safe against damage, full disks and second processes."""

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import fedsac
from fedsac import Config, FedsacError
from fedsac.runs.folder import Folder
from fedsac.runs.watcher import Watcher

SMALL = Config(rounds=4, clients=3, hidden=(16, 12), local_steps=5, standalone_steps=20)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file but the clock's."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != "timing.json")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "finished"
    fedsac.run(SMALL, folder)
    return folder


@pytest.fixture
def copied(finished, tmp_path) -> Path:
    """A finished run that a test may spoil."""
    import shutil

    return Path(shutil.copytree(finished, tmp_path / "copy"))


def test_a_run_folder_is_complete_and_explains_itself(finished):
    assert set(contents(finished)) == {
        "README.md",
        "config.toml",
        "rounds.jsonl",
        "summary.json",
        "confusion.json",
        "global.safetensors",
        "checkpoints/round-000003.safetensors",
        "checkpoints/round-000004.safetensors",
        *(f"rewards/client-0{i}.safetensors" for i in (1, 2, 3)),
    }
    explained = (finished / "README.md").read_text()
    for path in finished.iterdir():
        assert path.name in explained
    for name in re.findall(r"^- `(\w+(?:\.\w+)?)", explained, re.MULTILINE):
        assert (finished / name).exists(), name
    assert len((finished / "rounds.jsonl").read_text().splitlines()) == 4


def test_every_file_carries_the_format_version(finished):
    assert "format_version = 1" in (finished / "config.toml").read_text()
    assert "format version 1" in (finished / "README.md").read_text()
    for name in ("summary.json", "timing.json"):
        assert json.loads((finished / name).read_text())["format_version"] == 1
    for line in (finished / "rounds.jsonl").read_text().splitlines():
        assert json.loads(line)["format_version"] == 1
    for path in finished.rglob("*.safetensors"):
        content = path.read_bytes()
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        about = json.loads(header["__metadata__"]["fedsac"])
        about = json.loads(about["facts"]) if "facts" in about else about
        assert about["format_version"] == 1


def test_its_config_does_the_same_again(finished, tmp_path):
    from fedsac.config import read

    fedsac.run(Config(**read(finished / "config.toml")), tmp_path / "again")
    assert contents(tmp_path / "again") == contents(finished)


def test_rewards_load_with_torch_and_safetensors_alone(finished):
    small = load_file(finished / "rewards" / "client-01.safetensors")
    sizes = [small["0.weight"].shape[1], *(small[f"{i}.weight"].shape[0] for i in (0, 2, 4))]
    module = torch.nn.Sequential(
        torch.nn.Linear(sizes[0], sizes[1]),
        torch.nn.ReLU(),
        torch.nn.Linear(sizes[1], sizes[2]),
        torch.nn.ReLU(),
        torch.nn.Linear(sizes[2], sizes[3]),
    )
    module.load_state_dict(small)
    assert sum(sizes[1:3]) == json.loads((finished / "summary.json").read_text())["neurons"][0]


def stop_after(folder: Path, round: int) -> None:
    """Begin the run and give up after a round, as a kill would."""

    class Stop(Watcher):
        def round(self, run, record):
            if record["round"] == round:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fedsac.run(SMALL, folder, watcher=Stop())


@pytest.mark.parametrize("round", [1, 2, 3, 4])
def test_a_resumed_run_ends_with_the_same_bytes(round, finished, tmp_path):
    folder = tmp_path / "run"
    stop_after(folder, round)
    assert not (folder / "summary.json").exists()
    result = fedsac.resume(folder)
    assert contents(folder) == contents(finished)
    assert result.seconds > 0


@pytest.mark.parametrize("method", ["fedsac", "cgsv"])
def test_a_run_killed_in_its_first_round_starts_from_the_contributions_it_kept(method, tmp_path):
    class Stop(Watcher):
        def begin(self, run, records):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fedsac.run(SMALL.replace(method=method), tmp_path / "killed", watcher=Stop())
    (checkpoint,) = (tmp_path / "killed" / "checkpoints").iterdir()
    # No models: what a method starts from can be computed again.
    assert all(name.startswith("shown/") for name in load_file(checkpoint))

    class NothingMeasured(Watcher):
        def alone(self, step, steps):
            raise AssertionError("contributions were kept")

    fedsac.resume(tmp_path / "killed", watcher=NothingMeasured())
    fedsac.run(SMALL.replace(method=method), tmp_path / "whole")
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")


def test_a_finished_run_resumes_to_itself(copied, finished):
    before = contents(finished)
    assert fedsac.resume(copied).results["last"]["round"] == 4
    assert contents(copied) == before


def test_a_run_killed_before_its_first_commit_starts_again(copied, finished):
    for path in (copied / "checkpoints").iterdir():
        path.unlink()
    fedsac.resume(copied)
    assert contents(copied) == contents(finished)


class Notes(Watcher):
    def __init__(self):
        self.said = []

    def note(self, text):
        self.said.append(text)


@pytest.mark.parametrize("damage", ["truncate", "empty", "flip a weight", "flip the header", "garbage"])
def test_a_damaged_newest_checkpoint_is_passed_over(damage, copied, finished):
    path = copied / "checkpoints" / "round-000004.safetensors"
    content = bytearray(path.read_bytes())
    if damage == "truncate":
        content = content[: len(content) // 2]
    elif damage == "empty":
        content = bytearray()
    elif damage == "flip a weight":
        content[-3] ^= 1
    elif damage == "flip the header":
        content[200] ^= 1
    else:
        content = bytearray(b"\xff" * 500)
    path.write_bytes(content)
    notes = Notes()
    fedsac.resume(copied, watcher=notes)
    assert any("round-000004.safetensors is damaged" in text for text in notes.said)
    assert contents(copied) == contents(finished)


def test_a_log_that_lost_its_end_falls_back_too(copied, finished):
    log = copied / "rounds.jsonl"
    log.write_bytes(log.read_bytes()[:-10])
    notes = Notes()
    fedsac.resume(copied, watcher=notes)
    assert any("does not match the log" in text for text in notes.said)
    assert contents(copied) == contents(finished)


def test_no_sound_checkpoint_is_an_error_that_loses_nothing(copied):
    for path in (copied / "checkpoints").iterdir():
        path.write_bytes(b"nonsense")
    before = contents(copied)
    with pytest.raises(FedsacError, match="no checkpoint is sound"):
        fedsac.resume(copied)
    assert contents(copied) == before


def test_other_data_than_the_run_began_with_is_refused(tmp_path):
    import numpy as np

    rng = np.random.default_rng(0)
    own = tmp_path / "own.npz"
    np.savez(own, x=rng.normal(size=(300, 4)), y=rng.integers(2, size=300))
    fedsac.run(SMALL.replace(data=str(own)), tmp_path / "run")
    np.savez(own, x=rng.normal(size=(300, 4)), y=rng.integers(2, size=300))
    with pytest.raises(FedsacError, match="the data or the settings are not what this run began with"):
        fedsac.resume(tmp_path / "run")


@pytest.mark.parametrize("change", [("lr = 0.05", "lr = 0.5"), ("rounds = 4", "rounds = 3"), ("[16, 12]", "[16, 13]")])
def test_other_settings_than_the_run_began_with_are_refused(change, copied):
    path = copied / "config.toml"
    assert change[0] in path.read_text()
    path.write_text(path.read_text().replace(*change))
    with pytest.raises(FedsacError, match="the data or the settings are not what this run began with"):
        fedsac.resume(copied)


def test_starting_over_is_refused_unless_asked(copied, finished):
    with pytest.raises(FedsacError, match=r"holds a run already; go on with --resume .*--overwrite"):
        fedsac.run(SMALL, copied)
    assert contents(copied) == contents(finished)
    (copied / "my notes.txt").write_text("keep me")
    (copied / "rewards" / "mine.txt").write_text("keep me")
    fedsac.run(SMALL.replace(rounds=2), copied, overwrite=True)
    assert len((copied / "rounds.jsonl").read_text().splitlines()) == 2
    assert (copied / "my notes.txt").read_text() == (copied / "rewards" / "mine.txt").read_text() == "keep me"


@pytest.mark.parametrize("left", [[], ["config.toml.part"], ["config.toml"]])
def test_a_folder_whose_making_was_cut_short_can_be_used(left, finished, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    for name in left:
        if name == "config.toml":
            (folder / name).write_bytes((finished / name).read_bytes())
        else:
            (folder / name).write_text("half")
    if (folder / "config.toml").exists():
        fedsac.resume(folder)
    else:
        fedsac.run(SMALL, folder)
    assert contents(folder) == contents(finished)


@pytest.mark.parametrize("overwrite", [True, False])
def test_a_folder_of_something_else_is_never_touched(overwrite, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(FedsacError, match="holds other files than a run's"):
        fedsac.run(SMALL, tmp_path, overwrite=overwrite)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("overwrite", [True, False])
@pytest.mark.parametrize("name", ["README.md", "config.toml", "checkpoints/best.pt", "rewards/notes.txt"])
def test_files_that_are_only_named_like_ours_are_not_ours(name, overwrite, tmp_path):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("mine")
    with pytest.raises(FedsacError, match="holds other files than a run's"):
        fedsac.run(SMALL, tmp_path, overwrite=overwrite)
    assert path.read_text() == "mine"


def test_a_folder_named_like_a_data_set_changes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").mkdir()
    assert fedsac.run(SMALL, "run").config.data == "digits"


def test_a_file_in_the_way(tmp_path):
    (tmp_path / "run").write_text("")
    with pytest.raises(FedsacError, match="is a file; name a folder"):
        fedsac.run(SMALL, tmp_path / "run")


@pytest.mark.parametrize("what", ["config.toml", "checkpoint", "model"])
def test_what_a_newer_program_wrote_is_refused_politely(what, copied):
    from fedsac.models.files import ModelFile

    if what == "config.toml":
        path = copied / "config.toml"
        path.write_text(path.read_text().replace("format_version = 1", "format_version = 2"))
        with pytest.raises(FedsacError, match="format version 2 is newer than this fedsac understands"):
            fedsac.resume(copied)
    elif what == "model":
        path = copied / "rewards" / "client-01.safetensors"
        path.write_bytes(path.read_bytes().replace(rb"{\"format_version\": 1", rb"{\"format_version\": 7"))
        with pytest.raises(FedsacError, match="format version 7 is newer"):
            ModelFile.load(path)
    else:
        import hashlib

        # A checkpoint of another version has a right hash over other contents.
        path = copied / "checkpoints" / "round-000004.safetensors"
        content = path.read_bytes()
        length = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + length])
        outer = json.loads(header["__metadata__"]["fedsac"])
        tensors = load_file(path)
        outer["facts"] = outer["facts"].replace('"format_version": 1', '"format_version": 3')
        digest = hashlib.sha256(outer["facts"].encode())
        for name in sorted(tensors):
            digest.update(f"{name} {tensors[name].dtype} {tuple(tensors[name].shape)}".encode())
            digest.update(tensors[name].numpy().tobytes())
        outer["sha256"] = digest.hexdigest()
        header["__metadata__"]["fedsac"] = json.dumps(outer)
        text = json.dumps(header).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])
        with pytest.raises(FedsacError, match="format version 3 is newer"):
            fedsac.resume(copied)


def test_two_processes_do_not_share_a_run(copied):
    script = f"import fedsac; fedsac.resume({str(copied)!r})"
    with Folder.open(copied):
        other = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        assert "another process is at work on this run" in other.stderr
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


@pytest.mark.parametrize(("room", "file"), [(500, "rounds.jsonl"), (3000, "round-000002.safetensors")])
def test_a_full_disk_ends_with_a_clear_line_and_a_loadable_checkpoint(room, file, finished, tmp_path):
    """A real file size limit stands in for the disk's: the system refuses the write in the middle of a file."""
    folder = tmp_path / "run"
    script = textwrap.dedent(
        f"""
        import resource, signal, sys
        import fedsac.runs.folder
        from fedsac.cli import main

        # From the third commit on there is no more room: writes stop half way, as on a full disk.
        commit, done = fedsac.runs.folder.Folder.commit, []
        def limited(self, *arguments):
            done.append(1)
            if len(done) == 3:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, ({room}, {room}))
            return commit(self, *arguments)
        fedsac.runs.folder.Folder.commit = limited
        sys.exit(main(["run", "--rounds", "4", "--clients", "3", "--hidden", "16,12", "--local-steps", "5",
                       "--standalone-steps", "20", "--out", {str(folder)!r}]))
        """
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    last = ended.stderr.strip().splitlines()[-1]
    assert file in last
    assert re.search(r"cannot be written: .*; what was committed is safe: make room and go on with", last)
    assert "Traceback" not in ended.stderr
    fedsac.resume(folder)
    assert contents(folder) == contents(finished)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a small file system")
def test_a_really_full_disk(finished, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    try:
        with pytest.raises(FedsacError, match="the disk is full; what was committed is safe"):
            fedsac.run(SMALL, disk / "run")
        subprocess.run(["mount", "-o", "remount,size=8m", str(disk)], check=True)
        fedsac.resume(disk / "run")
        assert contents(disk / "run") == contents(finished)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize("where", ["checkpoints", "rounds.jsonl", "timing.json"])
def test_an_interruption_in_the_middle_of_a_commit_loses_and_repeats_nothing(where, tmp_path, monkeypatch):
    """Ctrl-C while a file is written: all whole rounds are committed once more, and no line is in the log twice."""
    config = Config(rounds=4, clients=3, hidden=(8,), local_steps=2, standalone_steps=4, threads=1)
    fedsac.run(config, tmp_path / "whole")
    from fedsac.runs import folder

    pressed = []
    write, append = folder.write_atomic, folder.Folder._append

    def interrupted(self_or_path, *given, **more):
        path = self_or_path.path / "rounds.jsonl" if isinstance(self_or_path, folder.Folder) else self_or_path
        (append if isinstance(self_or_path, folder.Folder) else write)(self_or_path, *given, **more)
        log = tmp_path / "run" / "rounds.jsonl"
        third = log.exists() and log.read_bytes().count(b"\n") == 3
        if third and not pressed and where in str(path):
            pressed.append(path)
            raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(folder, "write_atomic", interrupted)
        patched.setattr(folder.Folder, "_append", interrupted)
        fedsac.run(config, tmp_path / "run")
    assert pressed
    assert len((tmp_path / "run" / "rounds.jsonl").read_text().splitlines()) == 3
    fedsac.resume(tmp_path / "run")
    for name in ("rounds.jsonl", "summary.json"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
