"""A process that has loaded everything, and forks to run one `fedsac` command after the other, each with limits: so
that hundreds of commands can be tried, and one that crashes, hangs or eats all memory is seen as such.

    python -m tests.zygote MEGABYTES SECONDS    reads a JSON list of arguments per line, answers a JSON object per line
"""

import json
import os
import resource
import signal
import sys
import tempfile
import traceback
from pathlib import Path

import torch

from fedsac.cli import main, parser
from fedsac.cli import screen as _screen  # noqa: F401
from fedsac.data.catalogue import load
from fedsac.report import page as _page  # noqa: F401
from fedsac.runs import comparing as _comparing  # noqa: F401


def run(arguments: list[str], megabytes: int, seconds: int) -> dict[str, object]:
    """What becomes of one command: how it ended (a negative number: by that signal), and what it wrote."""
    with tempfile.TemporaryFile("w+", errors="replace") as out, tempfile.TemporaryFile("w+", errors="replace") as err:
        child = os.fork()
        if child == 0:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
            resource.setrlimit(resource.RLIMIT_AS, (used + (megabytes << 20), used + (megabytes << 20)))
            signal.alarm(seconds)
            status = 99
            try:
                status = main(arguments)
            except SystemExit as ended:
                status = ended.code if isinstance(ended.code, int) else 0
            except BaseException:  # noqa: BLE001  (what the interpreter would show, too)
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        _, ended = os.waitpid(child, 0)
        out.seek(0)
        err.seek(0)
        return {"status": os.waitstatus_to_exitcode(ended), "out": out.read(), "err": err.read()}


if __name__ == "__main__":
    torch.set_num_threads(1)
    parser()
    load("digits", None, label="label", quiet=True)
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line), int(sys.argv[1]), int(sys.argv[2]))), flush=True)
