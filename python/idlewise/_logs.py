"""Logs and recordings."""

import json
import os
from collections.abc import Iterable
from typing import Any, TypeAlias, cast, final

from ._native import IdlewiseError
from ._native import Log as Handle
from ._native import bundled as handles_of_bundled
from ._native import open as opened_handle
from ._tables import Table

Path: TypeAlias = str | os.PathLike[str]


@final
class Log:
    """An idle log: what the CPUs of a machine did when they were idle. `idlewise.open` makes one.

    It can be pickled if its file can be opened again where it is unpickled.
    """

    def __init__(self, handle: Handle, path: str, *, is_bundled: bool = False) -> None:
        """For the package itself: `idlewise.open` and `idlewise.bundled` make logs."""
        # For the package's other files.
        self.handle = handle
        self._path = path
        self.is_bundled = is_bundled
        """Whether it is built in."""

    @property
    def name(self) -> str:
        """The file's name without folder and extensions."""
        return self.handle.name

    @property
    def gap_count(self) -> int:
        """The number of idle gaps."""
        return self.handle.gap_count

    @property
    def path(self) -> str:
        """The file or URL that it was read from; of a bundled log, its name."""
        return self._path

    def metadata(self) -> dict[str, Any]:
        """The log's metadata: kernel, CPUs, idle states, where it comes from (docs/json.md of idlewise)."""
        document: dict[str, Any] = json.loads(self.handle.metadata())
        return document

    def gaps(self) -> Table:
        """Reads a row for each gap, with the log's columns: cpu, start_ns, gap_ns, sleep_length_ns, wake_reason,
        next_tick_ns, tick_stopped, ran_task, latency_limit_ns, recorded_state, recorded_idle_ns.

        Raises:
            IdlewiseError: If the log is damaged.
        """
        return Table(self.handle.gaps())

    def cpus_idle(self) -> Table:
        """Reads the columns of LISA's `df_cpus_idle()`: Time in seconds (LISA's index), cpu, and state, -1 when a CPU
        leaves its state. A gap has a row for the state that the kernel entered first, and one for its end; stays that
        only the tick ended are one. Gaps without a recorded state are left out.

        Raises:
            IdlewiseError: If the log is damaged.
        """
        return Table(self.handle.cpus_idle())

    def __repr__(self) -> str:
        return f"<idlewise.Log {self.name}: {self.gap_count} gaps>"

    def __reduce__(self) -> tuple[object, ...]:
        return _reopened, (self._path, self.is_bundled, _content(self))


def _content(log: Log) -> tuple[object, ...]:
    """What tells a log from another. The hash of what came from a pipe or a URL is not known."""
    return log.handle.sha256(), log.handle.metadata(), log.gap_count


def _reopened(path: str, is_bundled: bool, content: tuple[object, ...]) -> Log:
    log = next(log for log in bundled() if log.name == path) if is_bundled else open(path)
    if _content(log) != content:
        raise IdlewiseError(f"{path}: not the log that was pickled; it was replaced")
    return log


def open(path: Path) -> Log:
    """Opens an idle log, or converts a recording in any format that `idlewise log import` reads.

    Args:
        path: A file, or a URL (s3://, gs://, az://, https://), which is copied to a temporary file. Credentials come
            from the environment (docs/sweep.md of idlewise).

    Raises:
        IdlewiseError: If the file cannot be read. The message has its path.
    """
    place = path_of("path", path)
    # A log is read when it is used, wherever the process is then.
    place = place if "://" in place else os.path.abspath(place)
    return Log(opened_handle(place), place)


def bundled() -> list[Log]:
    """Returns the logs that are built in."""
    return [Log(log, log.name, is_bundled=True) for log in handles_of_bundled()]


def opened(logs: Log | Path | Iterable[Log | Path]) -> list[Log]:
    """One log or several, as a list, each once."""
    several = [one if isinstance(one, Log) else open(path_of("logs", one)) for one in listed("logs", logs, Log)]
    if not several:
        raise ValueError("logs: none are given; open some with idlewise.open(path)")
    return list({key_of(log): log for log in several}.values())


def key_of(log: Log) -> tuple[bool, str]:
    """What two logs of one file share."""
    return log.is_bundled, log.path


def path_of(argument: str, path: object) -> str:
    """A path as text; errors name the argument."""
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise TypeError(f"{argument}: expected a path, not {path!r}")
    text = os.fsdecode(cast("str | bytes | os.PathLike[str]", path))
    if not text:
        raise ValueError(f"{argument}: an empty path")
    return text


def listed(argument: str, one_or_several: object, *of_one: type) -> list[Any]:
    """One thing in a list, or the things of a list; errors name the argument."""
    if isinstance(one_or_several, (str, bytes, os.PathLike, *of_one)):
        return [one_or_several]
    if isinstance(one_or_several, Iterable):
        return [*one_or_several]
    raise TypeError(f"{argument}: what is {one_or_several!r}?")
