"""Scripts end with the status that they mean, whatever the package's threads are doing."""

import os
import pathlib
import subprocess
import sys

import pytest

A_IDLE = pathlib.Path(__file__).parent / "../../traces/a-idle.parquet"

BEGIN = """
import os, signal, sys, threading, time
import idlewise
path = sys.argv[1]

class Shallow:
    def select(self, state):
        return 0
    def reflect(self, residency_ns):
        pass

class Endless(Shallow):
    def select(self, state):
        while True:
            pass

class Slow(Shallow):
    def select(self, state):
        time.sleep(0.002)
        return 0

class Wrong(Shallow):
    def select(self, state):
        raise ValueError("wrong")

def replay(governor, **more):
    return idlewise.replay(idlewise.open(path), machines=["spr"], governors=[governor], lambdas=[0], **more)

def interrupt(seconds):
    threading.Timer(seconds, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
"""


def statuses(script: str, count: int) -> list[int]:
    """The exit statuses of that many runs, four at a time; negative for a signal."""
    found: list[int] = []
    for _ in range(0, count, 4):
        line = [sys.executable, "-c", BEGIN + script, os.fspath(A_IDLE)]
        runs = [subprocess.Popen(line, stderr=subprocess.DEVNULL) for _ in range(4)]
        found += [run.wait(timeout=120) for run in runs]
    return found


def test_a_script_that_opens_a_log_ends_with_0() -> None:
    found = statuses("idlewise.open(path)", 52)
    assert found == [0] * 52


@pytest.mark.parametrize(
    "script",
    [
        "idlewise.open(path).gaps()",
        "replay('menu')",
        "replay(Shallow)",
        # An exception that is handled.
        "try:\n    replay(Wrong)\nexcept ValueError:\n    pass\nelse:\n    sys.exit(3)",
        "try:\n    idlewise.open('none')\nexcept idlewise.IdlewiseError:\n    pass\nelse:\n    sys.exit(3)",
        # The governor's thread is left to end by itself.
        "try:\n    replay(Endless, time_limit_s=0.05)\nexcept TimeoutError:\n    pass\nelse:\n    sys.exit(3)",
        # It may come at once on a busy machine, so it has to come inside.
        "try:\n    interrupt(0.1)\n    replay(Endless)\nexcept KeyboardInterrupt:\n    pass\nelse:\n    sys.exit(3)",
        "try:\n    interrupt(0.1)\n    replay(Slow)\n    time.sleep(30)\nexcept KeyboardInterrupt:\n    pass\nelse:\n    sys.exit(3)",
        # No governor in Python: the replay goes on while the script ends.
        "try:\n    interrupt(0.05)\n    while True:\n        idlewise.replay(idlewise.bundled())\nexcept KeyboardInterrupt:\n    pass",
        # Threads that the script waits for.
        "for it in ['menu', Shallow] * 2: threading.Thread(target=replay, args=(it,)).start()",
        # And threads that it does not.
        """
def again(governor):
    while True:
        replay(governor)
for governor in ['menu', Shallow, Slow]:
    threading.Thread(target=again, args=(governor,), daemon=True).start()
time.sleep(0.15)
""",
    ],
)
def test_a_script_ends_with_0(script: str) -> None:
    assert statuses(script, 8) == [0] * 8


def test_an_exception_that_nobody_handles_is_a_1() -> None:
    assert statuses("replay(Wrong)", 8) == [1] * 8


def test_an_exit_handler_can_open_logs_but_calls_no_governors() -> None:
    script = """
import atexit
atexit._run_exitfuncs()
if idlewise.open(path).gap_count != 147:
    sys.exit(3)
try:
    replay(Shallow)
except idlewise.IdlewiseError as error:
    sys.exit(0 if "calls no governors any more" in str(error) else 4)
sys.exit(5)
"""
    assert statuses(script, 4) == [0] * 4
