from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Protocol, final

__version__: str

class IdlewiseError(Exception):
    """Something that idlewise cannot do. The message says where, what was found, and what to do."""

class Governor(Protocol):
    """Selects idle states for one CPU, and holds that CPU's history."""
    def select(self, state: State, /) -> int | tuple[int, bool]:
        """Selects a state.

        Returns:
            The index of a state, shallowest first; then the tick is stopped. Or the index, and whether to stop the
            tick.
        """
    def reflect(self, residency_ns: int, /) -> object:
        """Learns how long the CPU was idle, the exit included, in nanoseconds."""

@final
class State:
    """What a governor may look at when it selects a state. It is only valid during the call."""
    @property
    def sleep_length_ns(self) -> int | None:
        """Time to the next timer, not counting the tick, in nanoseconds; None if there is none."""
    @property
    def next_event_ns(self) -> int | None:
        """Time to the next timer or tick, in nanoseconds; None if there is none."""
    @property
    def latency_limit_ns(self) -> int:
        """The longest exit latency allowed now, in nanoseconds."""
    @property
    def tick_stopped(self) -> bool:
        """Whether the tick is already stopped."""
    @property
    def now_ns(self) -> int:
        """The CPU's clock, in nanoseconds."""
    @property
    def exit_latencies_ns(self) -> tuple[int, ...]:
        """The states' exit latencies, shallowest first, in nanoseconds."""
    @property
    def target_residencies_ns(self) -> tuple[int, ...]:
        """The states' target residencies, shallowest first, in nanoseconds."""
    def is_disabled(self, index: int, /) -> bool:
        """Whether a state is disabled."""

@final
class Table:
    """A table in Arrow's memory, which polars.DataFrame(), pyarrow.table(), pandas.DataFrame.from_arrow() and DuckDB
    take as it is."""
    @property
    def row_count(self) -> int:
        """The number of rows."""
    @property
    def column_names(self) -> list[str]:
        """The columns."""
    def __len__(self) -> int: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Arrow's PyCapsule interface. The columns are shared, not copied."""

@final
class Log:
    """An idle log: what the CPUs of a machine did when they were idle."""
    @property
    def name(self) -> str:
        """The file's name without folder and extensions."""
    @property
    def gap_count(self) -> int:
        """The number of idle gaps."""
    @property
    def path(self) -> Path:
        """The file that it was read from; of a bundled log, its name."""
    def metadata(self) -> str:
        """The log's metadata, as JSON."""
    def gaps(self) -> Table:
        """A row for each gap, with the log's columns: cpu, start_ns, gap_ns, sleep_length_ns, wake_reason,
        next_tick_ns, tick_stopped, ran_task, latency_limit_ns, recorded_state, recorded_idle_ns.

        Raises:
            IdlewiseError: If the log is damaged.
        """
    def cpus_idle(self) -> Table:
        """The columns of LISA's `df_cpus_idle()`: Time in seconds (LISA's index), cpu, and state, -1 when a CPU leaves
        its state. A gap has a row for the state that the kernel entered first, and one for its end; stays that only
        the tick ended are one. Gaps without a recorded state are left out.

        Raises:
            IdlewiseError: If the log is damaged.
        """

@final
class Runs:
    """The results of a replay."""
    def table(self) -> Table:
        """A row for each log, machine, governor and λ, with the columns of `idlewise lab sweep collect`."""
    def gaps(
        self, governor: str, *, log: str | None = None, machine: str | None = None, lambda_: float = 0.25
    ) -> Table:
        """Replays one governor on one log and machine once more, and returns a row for each gap.

        Columns: cpu, start_ns, gap_ns, sleep_length_ns, wake_reason; chosen_state, the first that the governor
        selected; right_state, the oracle's at that price; verdict on the first stay, as the kernel counts (fit,
        too_deep, too_shallow); stay_count; delay_ns of the gap's event; energy_uj; cost_uj, energy and priced delay;
        right_cost_uj, the oracle's.

        Args:
            governor: Its name in the table.
            log: The log's name, if there are several.
            machine: The machine as it was given, if there are several.
            lambda_: The price of delay, in times the power of polling.

        Raises:
            ValueError: If a name is none of these runs'.
        """

@final
class Lanes:
    """Many CPUs whose decisions the caller makes. `idlewise.gym` has the environment made of it."""
    def __new__(
        cls,
        logs: Log | Sequence[Log],
        *,
        machine: str,
        lambda_: float,
        lane_count: int,
        hz: int | None = None,
        latency_limit_us: int | None = None,
    ) -> Lanes: ...
    @property
    def gap_counts(self) -> list[int]:
        """The number of gaps of each source: a CPU of a log."""
    @property
    def states(self) -> list[tuple[str, int, int]]:
        """Name, exit latency in ns and target residency in ns of each state."""
    def reset(self, lane: int, source: int, start: int, gap_count: int, /) -> list[int]:
        """Begins an episode. Returns time to the next timer, to the next timer or tick, the latency limit (-1 if there
        is none), whether the tick is stopped, and the last residency; times in ns."""
    def step(self, states: bytes, ticks: bytes, /) -> tuple[bytes, bytes, bytes, bytes]:
        """Carries out a decision in each lane: a byte with its state, and one that says whether to stop the tick.
        Returns questions (5 int64 a lane), costs in uJ (float64), the oracle's costs in gaps that are over (float64, not a
        number in others), and whether episodes are over (uint8)."""
    def costs_uj(self, lane: int, /) -> tuple[float, float]:
        """What a lane's episode has cost so far, and what the oracle spent in the gaps that are over."""

def open(path: str | PathLike[str]) -> Log:
    """Opens an idle log, or converts a recording in any format that `idlewise log import` reads.

    Raises:
        IdlewiseError: If the file cannot be read. The message has its path.
    """

def bundled() -> list[Log]:
    """Returns the logs that are built in."""

def machines() -> list[str]:
    """Returns the ids of the machines that are built in and have idle states."""

def replay(
    logs: Log | Sequence[Log],
    *,
    machines: Sequence[str] = ...,
    governors: Sequence[str | Callable[[], Governor]] = ...,
    lambdas: Sequence[float] = ...,
    hz: int | None = None,
    latency_limit_us: int | None = None,
    time_limit_s: float = 10.0,
) -> Runs:
    """Replays logs on machines under governors.

    Args:
        logs: One log or several.
        machines: Ids, paths of machine files, or "recorded": each log's own idle states. By default "recorded"; logs
            without states are then replayed on six others, with a warning.
        governors: Names, as in `idlewise replay --help`, or Python classes. A class is called without arguments for
            each CPU.
        lambdas: Prices of delay, in times the power of polling.
        hz: The kernel's CONFIG_HZ; by default the recording's.
        latency_limit_us: The longest exit latency allowed, in microseconds.
        time_limit_s: How long a governor in Python may take for one decision, in seconds.

    Raises:
        IdlewiseError: If a name is unknown, or a log is damaged.
        TypeError: If a Python governor returns no index.
        IndexError: If it returns an index that is no state.
        TimeoutError: If a Python governor does not return in time.
        KeyboardInterrupt: After ctrl-c, also within a governor.
        Exception: What a Python governor raises.
    """

def main(arguments: Sequence[str], before: Sequence[str], code: str, /) -> int:
    """Runs the command with these arguments, the program's name first, and returns its exit status. `before` is how to
    start it once more, and `code` the file that holds it. Use `idlewise.command`."""

