"""Which tests run which lines: only those can notice that a line has changed."""

import json
import os
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from benchmarks.mutants.making import Mutant

# Assertions are left as they are: pytest would import the files named here from the disk in order to rewrite them,
# mutants included.
QUIET = ("-q", "--no-header", "--tb=short", "--assert=plain", "-p", "no:cacheprovider", "--hypothesis-seed=0")


@dataclass(frozen=True)
class Covering:
    """`seconds` of each test; for each file and line, the tests that run it."""

    seconds: dict[str, float]
    tests: dict[str, dict[int, set[str]]]

    def of(self, mutant: Mutant, budget: float) -> list[str]:
        """The tests to try on a mutant, file by file (tests of a file share fixtures), the quickest first, as many as
        `budget` seconds suffice for."""
        files: dict[str, list[str]] = defaultdict(list)
        for test in sorted(self._concerned(mutant), key=lambda test: (self.seconds[test], test)):
            files[test.partition("::")[0]].append(test)
        chosen: list[str] = []
        for tests in sorted(files.values(), key=lambda tests: sum(self.seconds[test] for test in tests)):
            for test in tests:
                budget -= self.seconds[test]
                if not chosen or budget > 0:
                    chosen.append(test)
        return chosen

    def _concerned(self, mutant: Mutant) -> set[str]:
        lines = self.tests.get(mutant.path, {})
        if mutant.inside:
            first, last = mutant.lines
            return set().union(*(lines.get(line, ()) for line in range(first, last + 1)))
        # What runs while a module is imported (constants, defaults) concerns every file of tests that comes by, also
        # those of its tests that only make an object; where the module has no function of its own, all of them.
        files = {test.partition("::")[0] for tests in lines.values() for test in tests}
        return {test for test in self.seconds if not files or test.partition("::")[0] in files}


def covering(root: Path, tests: list[str], folder: Path) -> Covering:
    """By running these tests once, unchanged, in a process of their own."""
    file = folder / "covering.json"
    file.unlink(missing_ok=True)
    if (child := os.fork()) == 0:
        code = 1
        try:
            code = _measure(root, tests, file)
        finally:
            sys.stdout.flush()
            os._exit(code)
    if os.waitpid(child, 0)[1] or not file.exists():
        sys.exit("the tests fail without any mutant, or cannot be run")
    found = json.loads(file.read_text())
    lines = {path: {int(line): set(ids) for line, ids in rows.items()} for path, rows in found["tests"].items()}
    return Covering(found["seconds"], lines)


def _measure(root: Path, tests: list[str], file: Path) -> int:
    import coverage
    import pytest

    measured = coverage.Coverage(data_file=None, source=[str(root / "src" / "fedsac")], config_file=False)
    watch = _Watch(measured)
    with measured.collect():
        code = int(pytest.main([*QUIET, *tests], plugins=[watch]))
    data, ran = measured.get_data(), defaultdict(lambda: defaultdict(set))
    for path in data.measured_files():
        for line, contexts in data.contexts_by_lineno(path).items():
            for context in filter(None, contexts):
                ran[str(Path(path).relative_to(root))][line] |= watch.tests(context)
    rows = {path: {line: sorted(ids) for line, ids in lines.items()} for path, lines in ran.items()}
    file.write_text(json.dumps({"seconds": watch.seconds, "tests": rows}))
    return code


class _Watch:
    """A pytest plugin. What a fixture runs is put down to all tests of its file: they may share what it made."""

    def __init__(self, measured) -> None:
        self._measured, self._start = measured, 0.0
        self.seconds: dict[str, float] = {}
        self._of_file: dict[str, set[str]] = defaultdict(set)

    def tests(self, context: str) -> set[str]:
        kind, _, name = context.partition(" ")
        return {name} if kind == "call" else self._of_file[name]

    def pytest_runtest_setup(self, item) -> None:
        self._start = time.monotonic()
        self._of_file[item.nodeid.partition("::")[0]].add(item.nodeid)
        self._measured.switch_context("setup " + item.nodeid.partition("::")[0])

    def pytest_runtest_call(self, item) -> None:
        self._measured.switch_context("call " + item.nodeid)

    def pytest_runtest_logfinish(self, nodeid) -> None:
        self.seconds[nodeid] = time.monotonic() - self._start
        self._measured.switch_context("")
