"""Writes down each function of the project that a process calls, once, since it started or was last signalled.

Python imports a module of this name by itself where its folder is on PYTHONPATH, so that the processes of a service
are traced without a change. TRACED names the file, to which all of them append lines of process, file and function;
TRACED_ROOT is the folder of the project. SIGUSR1 has a process forget what it wrote. A forked process begins anew.
"""

import os
import signal
import sys
import threading
from types import CodeType, FrameType

ROOT = f"{os.environ['TRACED_ROOT']}/"
TOPS = tuple(f"{ROOT}{top}/" for top in ("api", "core", "farthing", "workers"))
LOG = os.open(os.environ["TRACED"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
SEEN = set[CodeType]()


def note(frame: FrameType, event: str, _: object) -> None:
    """Write down a call, unless it was seen. Statements of a module while it is imported are no call."""
    code = frame.f_code
    if event != "call" or code in SEEN:
        return
    SEEN.add(code)
    if code.co_filename.startswith(TOPS) and code.co_name != "<module>":
        os.write(LOG, f"{os.getpid()}\t{code.co_filename.removeprefix(ROOT)}\t{code.co_qualname}\n".encode())


os.register_at_fork(after_in_child=SEEN.clear)
signal.signal(signal.SIGUSR1, lambda *_: SEEN.clear())
threading.setprofile(note)
sys.setprofile(note)
