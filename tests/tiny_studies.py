"""Tiny real studies on digits: two methods, two seeds, two rounds, three clients."""

from dataclasses import replace

from benchmarks.studies import judge_page, long_page, methods_page
from benchmarks.studies.carrying_out import carry_out
from benchmarks.studies.definitions import STUDIES
from fedsac.runs.watcher import Watcher

PAGES = {"methods": methods_page, "judge": judge_page, "long": long_page}
TWO = {"methods": ("fedsac", "fedavg"), "judge": ("fedsac-plus", "fedavg-server"), "long": ("fedsac", "fedavg")}


def tiny(name):
    return replace(
        STUDIES[name],
        columns=(("digits", 3),),
        scenes=("pow", "dir:1.0"),
        methods=TWO[name],
        seeds=2,
        rounds=2,
        eval_every=1,
    )


def carried_out(study, out, watcher=None, minutes=None, workers=1):
    small = {"hidden": (16,), "local_steps": 3, "threads": 1}
    return carry_out(study, study.cells, out, watcher or Watcher(), minutes, workers, **small)


def made_in(out):
    """Three tiny studies and their pages, in one folder."""
    for name, page in PAGES.items():
        assert carried_out(tiny(name), out)
        page.write(out)
    return out
