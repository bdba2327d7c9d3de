"""What the command does, as functions that return its JSON.

Each runs the command in a process of its own: ctrl-c and cleaning up work as they do in a shell, and what it took of
memory is returned. Keywords are the command's options: `duration_ms=100` is `--duration-ms 100`, True is an option
without a value, False and None leave it out, and a list repeats it. docs/schemas of idlewise describes the JSON.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from os import PathLike
from typing import Any

from ._arguments import Path, listed, path_of
from ._logs import Log
from ._native import IdlewiseError

Option = bool | int | float | str | PathLike[str] | Sequence[str | int | float | PathLike[str]] | None
"""What an option can be."""

NEGATIVE = 1
"""The command's status if it worked, and the result is negative: a mismatch, cells that failed."""


def _words(options: dict[str, Option]) -> list[str]:
    words: list[str] = []
    for name, value in options.items():
        flag = "--" + name.rstrip("_").replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            words.append(flag)
            continue
        many = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
        for one in many:
            words += [flag, os.fspath(one) if isinstance(one, PathLike) else str(one)]
    return words


def command(*words: Path, check: bool = True, input: str | None = None) -> str:
    """Runs `idlewise WORDS...` and returns what it prints.

    Args:
        words: The arguments, each a word.
        check: Whether exit status 1, a negative result, is an error too.
        input: What the command reads from standard input.

    Raises:
        IdlewiseError: If it fails. The message is what it said.
    """
    done = ran(*words, input=input)
    if done.returncode not in (0, NEGATIVE) or check and done.returncode:
        raise failed(done)
    return done.stdout


def ran(*words: Path, input: str | None = None) -> subprocess.CompletedProcess[str]:
    """Runs `idlewise WORDS...`, whatever comes of it."""
    line = [sys.executable, "-m", "idlewise", *(os.fspath(word) for word in words)]
    environment = {**os.environ, "PYTHONSAFEPATH": "1"}
    pipe = subprocess.PIPE
    stdin = None if input is None else pipe
    with subprocess.Popen(line, stdin=stdin, stdout=pipe, stderr=pipe, text=True, env=environment) as process:
        try:
            said = process.communicate(input)
        except BaseException:
            # It may clean up. After a ctrl-c, subprocess.run() would leave a zombie.
            process.terminate()
            try:
                process.wait(2)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            raise
    return subprocess.CompletedProcess(line, process.returncode, *said)


def failed(done: subprocess.CompletedProcess[str]) -> IdlewiseError:
    """What a command that failed has said."""
    # What follows is how the command is used, which helps nobody here.
    said = done.stderr.split("\n\nUsage:")[0].split("\n\n  tip:")[0]
    said = " ".join(said.removeprefix("idlewise: ").removeprefix("error: ").split())
    return IdlewiseError(said or f"idlewise ended with status {done.returncode}")


def _json(name: str, words: Iterable[Path], options: dict[str, Option], *, check: bool = True) -> dict[str, Any]:
    # Options come first, and "--" after them, so that no file is taken for one.
    rest = list(words)
    document: dict[str, Any] = json.loads(
        command(*name.split(), *_words({**options, "json": True}), *(["--", *rest] if rest else []), check=check)
    )
    return document


def _paths(logs: Log | Path | Sequence[Log | Path] | None) -> list[str]:
    if logs is None:
        return []
    many = listed("logs", logs, Log)
    if not many:
        raise ValueError("logs: an empty list")
    return [_path(log) if isinstance(log, Log) else path_of("logs", log) for log in many]


def _path(log: Log) -> str:
    if log.is_bundled:
        raise ValueError(f"logs: {log.name} is built in and has no file; without logs, the command takes all that are built in")
    log.handle.must_be_unchanged()
    return log.path


def info(log: Log | Path) -> dict[str, Any]:
    """What a log or a recording holds: `idlewise info LOG`."""
    return _json("info", [_path(log) if isinstance(log, Log) else path_of("log", log)], {})


def machine(name: Path) -> dict[str, Any]:
    """A machine's states, powers and doubts: `idlewise machines NAME`."""
    document: dict[str, Any] = json.loads(command("machines", "--json", "--", name))
    return document


def import_recording(recording: Path, log: Path, **options: Option) -> dict[str, Any]:
    """Converts a recording (perf.data, trace.dat, Perfetto, text) to an idle log: `idlewise log import`.

    Args:
        recording: What to read.
        log: The file to write. `force=True` replaces it.
        options: See `idlewise log import --help`.
    """
    command("log", "import", *_words({**options, "output": log}), "--", recording)
    return info(log)


def record(log: Path = "trace.dat", *, duration: float = 10, **options: Option) -> str:
    """Records this machine's idle CPUs for so many seconds, as root: `idlewise record`. Returns the file's path."""
    command("record", *_words({**options, "duration": duration, "output": log}))
    return os.fspath(log)


def diff(
    logs: Log | Path | Sequence[Log | Path] | None = None, a: str = "menu", b: str = "menu+min", **options: Option
) -> dict[str, Any]:
    """Where two governors differ, gap by gap, and what that costs: `idlewise replay --compare`.

    Args:
        logs: Logs or recordings; by default the bundled ones.
        a: The first governor, also a C file.
        b: The second. Changes are b minus a.
        options: See `idlewise replay --compare --help`: machine, lambda_mw, latency_limit_us, patch, ...
    """
    return _json("replay --compare", _paths(logs), {"governor": [a, b], **options})


def oracle(logs: Log | Path | Sequence[Log | Path] | None = None, **options: Option) -> dict[str, Any]:
    """The best there is: a replay of the oracle, which knows each gap in advance: `idlewise replay --governor oracle`."""
    return _json("replay", _paths(logs), {"governor": "oracle", **options})


def arena(logs: Log | Path | Sequence[Log | Path] | None = None, **options: Option) -> dict[str, Any]:
    """Who wins over logs, machines and prices: `idlewise replay --rank`."""
    return _json("replay --rank", _paths(logs), options)


def simulate(machine: Path, workload: Log | Path, **options: Option) -> dict[str, Any]:
    """Runs a workload on a simulated machine: `idlewise lab simulate MACHINE WORKLOAD`.

    Args:
        machine: An id or a file.
        workload: A name of `idlewise lab simulate --list`, a TOML file, or a log.
        options: See `idlewise lab simulate --help`: governor, duration_ms, seed, replicates, set, ...
    """
    place = _path(workload) if isinstance(workload, Log) else path_of("workload", workload)
    return _json("lab simulate", [path_of("machine", machine), place], options)


def predict(recording: Path, **options: Option) -> dict[str, Any]:
    """What another governor or setting would do to a recorded workload: `idlewise predict`."""
    # What follows "--" would be a command to run.
    path = path_of("recording", recording)
    path = path if not path.startswith("-") else os.path.join(".", path)
    document: dict[str, Any] = json.loads(command("predict", *_words({**options, "json": True}), path))
    return document


def study(name: str, **options: Option) -> dict[str, Any]:
    """Repeats a study: `idlewise lab study NAME`."""
    return _json("lab study", [name], options)


def report(output: Path, logs: Log | Path | Sequence[Log | Path] | None = None, **options: Option) -> str:
    """Writes a page about logs that needs nothing else: `idlewise report`. Returns its path."""
    command("report", *_words({**options, "output": output}), "--", *_paths(logs))
    return os.fspath(output)


def sweep(manifest: Path, **options: Option) -> dict[str, Any]:
    """Computes what is missing of a sweep: `idlewise lab sweep MANIFEST`. Cells that fail are in the result."""
    return _json("lab sweep", [manifest], options, check=False)
