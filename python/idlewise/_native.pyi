"""The compiled part of the package. Its users are the package's own files; see those."""

from collections.abc import Sequence
from os import PathLike
from typing import Protocol, final

__version__: str
GOVERNORS_DEFAULT: Sequence[str]

class IdlewiseError(Exception):
    """Something that idlewise cannot do. The message says where, what was found, and what to do."""

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
class Batches:
    @staticmethod
    def of_bytes(bytes: bytes, /) -> Batches: ...
    def bytes(self) -> bytes: ...
    @property
    def column_names(self) -> list[str]: ...
    def columns(self, row_count: int, /) -> list[list[object]]: ...
    def __len__(self) -> int: ...
    def __arrow_c_stream__(self) -> object: ...

@final
class Log:
    @property
    def name(self) -> str: ...
    @property
    def gap_count(self) -> int: ...
    def sha256(self) -> str | None: ...
    def metadata(self) -> str: ...
    def must_be_unchanged(self) -> None: ...
    def gaps(self) -> Batches: ...
    def cpus_idle(self) -> Batches: ...
    def tasks(self) -> Batches: ...
    def frequencies(self) -> Batches: ...
    def gap_counts(self) -> Batches: ...
    def window(self, name: str, from_ns: int | None, to_ns: int | None, cpus: Sequence[int] | None, /) -> Log: ...

class Request(Protocol):
    @property
    def machines(self) -> Sequence[str]: ...
    @property
    def governors(self) -> Sequence[tuple[str, object]]: ...
    @property
    def lambdas(self) -> Sequence[float]: ...
    @property
    def hz(self) -> int | None: ...
    @property
    def latency_limit_us(self) -> int | None: ...
    @property
    def time_limit_s(self) -> float: ...

def open(path: str | PathLike[str], /) -> Log: ...
def bundled() -> list[Log]: ...
def machines() -> list[str]: ...
def replay(logs: Sequence[Log], request: Request, /) -> tuple[Batches, tuple[list[str], list[str]], str | None]: ...
def replayed_gaps(log: Log, request: Request, /) -> Batches: ...
def decisions(log: Log, request: Request, /) -> Batches: ...
def main(arguments: Sequence[str], before: Sequence[str], /) -> int: ...

@final
class Lanes:
    """Many CPUs whose decisions the caller makes."""
    def __new__(
        cls,
        logs: Sequence[Log],
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
