"""Logs and recordings."""

import builtins
import importlib
import json
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias, final

from . import _shown
from ._arguments import Path, absolute, listed, number, path_of, whole
from ._native import IdlewiseError
from ._native import Log as Handle
from ._native import bundled as handles_of_bundled
from ._native import open as opened_handle
from ._tables import Table

# From, to, and CPUs.
_Window: TypeAlias = tuple[int | None, int | None, tuple[int, ...] | None]


@final
class Log:
    """An idle log: what the CPUs of a machine did when they were idle. `idlewise.open` makes one.

    It can be pickled if its file can be opened again where it is unpickled.
    """

    def __init__(self, handle: Handle, path: str, *, is_bundled: bool = False, window: _Window | None = None) -> None:
        """For the package itself: `idlewise.open` and `idlewise.bundled` make logs."""
        # For the package's other files.
        self.handle = handle
        self.part = window
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

    def gap_counts(self) -> Table:
        """Counts gaps by their length and by what ended them. Columns: gap_ns, the shortest of a bin that reaches to
        1.19 times that; wake_reason; gap_count; idle_ns, their time together.

        Raises:
            IdlewiseError: If the log is damaged.
        """
        return Table(self.handle.gap_counts())

    def tasks(self) -> Table:
        """Reads the recording once more, and returns a row for each time that a task ran. Columns: cpu; start_ns, on the
        clock of the gaps; run_ns, None where the recording does not say when the task left (one made for gaps alone has
        only switches from the idle task; `idlewise record --causes` has all); task, its pid; name; ended_by: runnable
        (another one took its place), waits, ends.

        Raises:
            IdlewiseError: If the log was not opened from a recording, or that is damaged.
        """
        return Table(self._whole("tasks").tasks())

    def frequencies(self) -> Table:
        """Reads the recording once more, and returns a row for each time that a CPU's frequency was set
        (power:cpu_frequency; none if that was not recorded). Columns: cpu, at_ns, frequency_khz.

        Raises:
            IdlewiseError: If the log was not opened from a recording, or that is damaged.
        """
        return Table(self._whole("frequencies").frequencies())

    def _whole(self, what: str) -> Handle:
        if self.part is not None:
            raise IdlewiseError(f"{self.name}: a window has gaps only; call {what}() of the log that it is of")
        return self.handle

    def window(
        self, start_ns: int | None = None, end_ns: int | None = None, *, cpus: int | Iterable[int] | None = None
    ) -> "Log":
        """Returns the gaps that begin from `start_ns` on and before `end_ns`, as a log, which can be replayed alone. A
        governor then knows nothing of what came before.

        Args:
            start_ns: On the clock of the column start_ns; by default the log's beginning.
            end_ns: By default the log's end.
            cpus: Only these CPUs.

        Raises:
            IdlewiseError: If no gap is in it, or the log lacks a CPU.
            ValueError: If it is a window already, or a number is none.
        """
        if self.part is not None:
            raise ValueError(f"{self.name}: it is a window already; make another one of the whole log")
        start, end = (whole(name, at, -(2**63), 2**63 - 1) for name, at in (("start_ns", start_ns), ("end_ns", end_ns)))
        if start is not None and end is not None and start >= end:
            raise ValueError(f"end_ns: {end} is not after start_ns, {start}")
        several = None if cpus is None else list(cpus) if isinstance(cpus, Iterable) else [cpus]
        chosen = None if several is None else tuple(sorted({number("cpus", cpu, 0, 65535) for cpu in several}))
        return _window(self, (start, end, chosen))

    def plot(self) -> Any:
        """A chart (Altair's): how many gaps there are of each length, how much idle time they are, what ended them, and
        the shortest gap for which each idle state pays. `pip install 'idlewise[plot]'`."""
        return _shown.plot_of_log(self)

    def scan(self) -> Any:
        """The gaps as a polars.LazyFrame, with the columns of `gaps()`. Of an idle log's file it reads only the CPUs, times
        and columns that a query needs.

        Raises:
            IdlewiseError: If the log is damaged, or was replaced; also when the frame is collected.
        """
        polars: Any = importlib.import_module("polars")
        if self.part is not None or self.is_bundled or not _is_parquet(self._path):
            return polars.DataFrame(self.gaps()).lazy()
        self.handle.must_be_unchanged()
        # All logs have the same columns, and files may lack some.
        schema = polars.DataFrame(Table(handles_of_bundled()[0].gaps())).schema

        def read(columns: list[str] | None, wanted: Any, count: int | None, _: int | None) -> Iterator[Any]:
            self.handle.must_be_unchanged()
            file = polars.scan_parquet(self._path, glob=False)
            of_file = file.collect_schema()
            shown: list[Any] = []
            for name, kind in schema.items():
                column = polars.col(name) if name in of_file else polars.lit(None)
                shown.append(column if of_file.get(name) == kind else column.cast(kind).alias(name))
            frame = file.select(shown)
            frame = frame if wanted is None else frame.filter(wanted)
            frame = frame if columns is None else frame.select(columns)
            found = (frame if count is None else frame.head(count)).collect()
            self.handle.must_be_unchanged()
            yield found

        return importlib.import_module("polars.io.plugins").register_io_source(read, schema=schema)

    def _repr_html_(self) -> str:
        about = self.metadata()
        cpus = [cpu for cpu in about["cpus"] if cpu["observed"]]
        span_s = max((cpu["last_at_ns"] - cpu["first_at_ns"] for cpu in cpus), default=0) / 1e9
        facts = {
            "gaps": self.gap_count,
            "CPUs": len(cpus),
            "seconds": span_s,
            "kernel": about["kernel"],
            "governor": about["governor"],
            "CPU": about["cpu_model"],
        }
        doubts = "; ".join(about["doubts"])
        return _shown.table([self.name, ""], facts.items(), f"Doubts: {doubts}" if doubts else "")

    def __repr__(self) -> str:
        return f"<idlewise.Log {self.name}: {self.gap_count} gaps>"

    def __reduce__(self) -> tuple[object, ...]:
        return _reopened, (self._path, self.is_bundled, _content(self), self.part)


def _window(log: Log, window: _Window) -> Log:
    start, end, cpus = window
    times = f"{'' if start is None else start}..{'' if end is None else end}"
    name = f"{log.name}@{times}" + ("" if cpus is None else "/" + ",".join(map(str, cpus)))
    return Log(log.handle.window(name, start, end, cpus), log.path, is_bundled=log.is_bundled, window=window)


def _is_parquet(path: str) -> bool:
    """Whether polars can read it: a file with a name that is text."""
    try:
        path.encode()
        with builtins.open(path, "rb") as file:
            return file.read(4) == b"PAR1"
    except (OSError, UnicodeEncodeError):
        return False




def _content(log: Log) -> tuple[object, ...]:
    """What tells a log from another. The hash of what came from a pipe or a URL is not known."""
    return log.handle.sha256(), log.handle.metadata(), log.gap_count


def _reopened(path: str, is_bundled: bool, content: tuple[object, ...], window: _Window | None) -> Log:
    log = next(log for log in bundled() if log.name == path) if is_bundled else open(path)
    log = log if window is None else _window(log, window)
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
    place = place if "://" in place else absolute(place)
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


def key_of(log: Log) -> tuple[object, ...]:
    """What two logs of one file share."""
    return log.is_bundled, log.path, log.part
