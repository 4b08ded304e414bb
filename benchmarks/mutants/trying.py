"""Tests against one mutant, in a fork of a process that has everything loaded already.

Most changes are inside functions: the fork comes after pytest has collected its tests, and the functions get their new
code in it. What else changes (constants, fields, defaults) takes effect when a module is imported: there the fork comes
before that, and imports the library with the change.
"""

import contextlib
import gc
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType

from benchmarks.mutants.covering import QUIET
from benchmarks.mutants.making import Mutant

# What the library and its tests import and that takes time: loaded once, before the first fork.
HEAVY = (
    *("torch", "numpy", "scipy.stats", "sklearn.datasets", "sklearn.metrics", "safetensors.torch"),
    *("pytest", "hypothesis", "rich.table", "rich.progress", "pooch", "requests", "cryptography.hazmat.primitives"),
)
Work = list[tuple[Mutant, list[str], float]]  # a mutant, its tests, its limit in seconds
Done = Callable[[Mutant, str, float], None]  # takes killed, survived or timeout, and the seconds it took


def load_heavy() -> None:
    for name in HEAVY:
        importlib.import_module(name)
    if any(name.partition(".")[0] == "fedsac" for name in sys.modules):
        sys.exit("fedsac is loaded already: a fork could not load a mutant any more")
    from hypothesis import Phase, settings

    # A failure is enough: nobody reads it, so it need be neither kept nor made small.
    settings.register_profile("mutants", phases=(Phase.explicit, Phase.generate), database=None, deadline=None)
    settings.load_profile("mutants")


def try_all(root: Path, tests: list[str], work: Work, jobs: int, done: Done) -> None:
    """Try all mutants and tell of each."""
    inside = [one for one in work if one[0].inside]
    outside = [one for one in work if not one[0].inside]
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        _in_forks(outside, lambda mutant, chosen: _imported(root, mutant, chosen), jobs, Path(folder), done)
        if inside:
            _collected(root, tests, inside, jobs, Path(folder), done)


def _in_forks(work: Work, child: Callable[[Mutant, list[str]], int], jobs: int, folder: Path, done: Done) -> None:
    waiting, running = list(reversed(work)), {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                mutant, tests, limit = waiting.pop()
                running[_forked(mutant, tests, child, folder)] = mutant, time.monotonic(), limit
            for pid, (mutant, start, limit) in list(running.items()):
                ended, status = os.waitpid(pid, os.WNOHANG)
                seconds = time.monotonic() - start
                if ended or seconds > limit:
                    del running[pid]
                    _end(pid, bool(ended))
                    shutil.rmtree(folder / str(pid), ignore_errors=True)
                    passed = os.waitstatus_to_exitcode(status) == 0
                    done(mutant, ("survived" if passed else "killed") if ended else "timeout", seconds)
            time.sleep(0.005)
    finally:
        for pid in running:
            _end(pid, False)


def _forked(mutant: Mutant, tests: list[str], child: Callable[[Mutant, list[str]], int], folder: Path) -> int:
    pid = os.fork()
    if pid == 0:
        code = 3
        try:
            os.setpgid(0, 0)
            _silenced()
            own = folder / str(os.getpid())
            own.mkdir()
            os.environ["PYTEST_DEBUG_TEMPROOT"] = str(own)  # where tmp_path lies
            code = child(mutant, tests)
        finally:
            os._exit(code)
    return pid


def _silenced() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)


def _end(pid: int, ended: bool) -> None:
    """Kill it, and what its tests have started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    if not ended:
        os.waitpid(pid, 0)


def _imported(root: Path, mutant: Mutant, tests: list[str]) -> int:
    import pytest

    sys.meta_path.insert(0, _Changed(root, mutant))
    return int(pytest.main([*QUIET, "-x", *tests]))


class _Changed(importlib.abc.MetaPathFinder):
    """Imports the mutant's file with its change, and everything else as ever."""

    def __init__(self, root: Path, mutant: Mutant) -> None:
        self._path, self._source = str(root / mutant.path), mutant.source
        self._name = mutant.path.removeprefix("src/").removesuffix(".py").replace("/", ".").removesuffix(".__init__")

    def find_spec(self, fullname, path, target=None):
        if fullname != self._name:
            return None
        loader = _Loader(fullname, self._path)
        loader.source = self._source
        return importlib.util.spec_from_file_location(fullname, self._path, loader=loader)


class _Loader(importlib.machinery.SourceFileLoader):
    source: str

    def get_code(self, fullname):
        return compile(self.source, self.path, "exec", dont_inherit=True)


def _collected(root: Path, tests: list[str], work: Work, jobs: int, folder: Path, done: Done) -> None:
    """In a process of its own, which collects the tests and forks from there; what it finds comes back in lines."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            import pytest

            os.close(reading)  # so that writing fails once nobody reads any more
            _silenced()
            pytest.main([*QUIET, "--capture=no", *tests], plugins=[_Loop(root, work, jobs, folder, writing)])
        finally:
            os._exit(0)
    os.close(writing)
    left = {id(mutant): mutant for mutant, *_ in work}
    with os.fdopen(reading) as lines:
        for line in lines:
            which, outcome, seconds = line.split()
            done(left.pop(int(which)), outcome, float(seconds))
    os.waitpid(pid, 0)
    if left:
        sys.exit(f"{len(left)} mutants could not be tried: the tests could not be collected")


class _Loop:
    """A pytest plugin: instead of running the tests, runs those of each mutant in a fork."""

    def __init__(self, root: Path, work: Work, jobs: int, folder: Path, writing: int) -> None:
        self._root, self._work, self._jobs, self._folder, self._writing = root, work, jobs, folder, writing

    def pytest_runtestloop(self, session) -> bool:
        items = {item.nodeid: item for item in session.items}
        functions = _functions(str(self._root / "src" / "fedsac"))

        def child(mutant: Mutant, tests: list[str]) -> int:
            _give_code(functions[str(self._root / mutant.path)], mutant.source)
            chosen = [items[test] for test in tests]
            for item, after in zip(chosen, [*chosen[1:], None], strict=True):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
                if session.testsfailed:
                    return 1
            return 0

        def done(mutant: Mutant, outcome: str, seconds: float) -> None:
            os.write(self._writing, f"{id(mutant)} {outcome} {seconds:.2f}\n".encode())

        _in_forks(self._work, child, self._jobs, self._folder, done)
        return True


Functions = dict[str, list[FunctionType]]


def _functions(below: str) -> dict[str, Functions]:
    """All functions that live in this process, by file and qualified name."""
    found: dict[str, Functions] = defaultdict(lambda: defaultdict(list))
    for one in gc.get_objects():
        if type(one) is FunctionType and one.__code__.co_filename.startswith(below):
            found[one.__code__.co_filename][one.__code__.co_qualname].append(one)
    return found


def _give_code(functions: Functions, source: str) -> None:
    for code in _codes(compile(source, "mutant", "exec", dont_inherit=True)):
        for function in functions.get(code.co_qualname, ()):
            function.__code__ = code


def _codes(code: CodeType) -> Iterator[CodeType]:
    """The code of a module's functions and of its classes' methods."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_flags & inspect.CO_OPTIMIZED:
                yield constant
            else:  # the body of a class
                yield from _codes(constant)
