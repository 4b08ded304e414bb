"""Ctrl-C and SIGTERM in the program: completed rounds are committed before it ends, and nobody sees a traceback.

Python raises `KeyboardInterrupt` wherever it is. In the middle of an import, which in the first seconds is nearly
always, that is printed as an error of its machinery and lost, or becomes an `ImportError` of a library half loaded. So
here an interrupt that comes during an import, or before `main` is ready for it, waits until that is over.
"""

import signal
import threading
from types import FrameType

SECONDS_BETWEEN_LOOKS = 0.02

_ready = False
_waiting = 0  # interrupts that have come and were put off


def install(*, ready: bool) -> None:
    """Handle SIGINT and SIGTERM from now on; raise `KeyboardInterrupt` for them once `ready`."""
    global _ready
    if threading.current_thread() is not threading.main_thread():
        return
    _ready = ready
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:  # who began this in the background wants it left alone
            signal.signal(number, _interrupted)


def ignore() -> None:
    """The program ends: an impatient second Ctrl-C must not interrupt that."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _interrupted(number: int, frame: FrameType | None) -> None:
    global _waiting
    _waiting += 1
    _look_again(number, frame)


def _look_again(number: int, frame: FrameType | None) -> None:
    """Raise, if something waits to be raised and this is the moment; else look again soon. Who insists while something
    of their own is imported that does not end is obeyed."""
    global _waiting
    if not _waiting:
        return
    if hasattr(signal, "setitimer") and (not _ready or (_waiting == 1 and _is_importing(frame))):
        signal.signal(signal.SIGALRM, _look_again)
        signal.setitimer(signal.ITIMER_REAL, SECONDS_BETWEEN_LOOKS)
        return
    _waiting = 0
    raise KeyboardInterrupt


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
