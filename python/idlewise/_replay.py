"""Replays."""

import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar, final

from ._logs import Log, Path, opened
from ._native import GOVERNORS_DEFAULT, State
from ._native import Log as Handle
from ._native import decisions as rows_of_decisions
from ._native import machines as machine_ids
from ._native import replay as replayed
from ._native import replayed_gaps as rows_of_gaps
from ._tables import Table

_RECORDED = "recorded"


class Governor(Protocol):
    """Selects idle states for one CPU, and holds that CPU's history."""

    def select(self, state: State, /) -> int | tuple[int, bool]:
        """Selects a state.

        Returns:
            The index of a state, shallowest first; then the tick is stopped. Or the index, and whether to stop the
            tick.
        """
        ...

    def reflect(self, residency_ns: int, /) -> object:
        """Learns how long the CPU was idle, the exit included, in nanoseconds."""
        ...


NamedGovernor = str | Callable[[], Governor]


@dataclass(frozen=True)
class _Request:
    """What is replayed, besides the logs."""

    machines: Sequence[str]
    governors: Sequence[tuple[str, Callable[[], Governor] | None]]
    lambdas: Sequence[float]
    hz: int | None
    latency_limit_us: int | None
    time_limit_s: float


@final
class Runs:
    """The results of a replay. They can be pickled if their logs and Python governors can be."""

    def __init__(self, table: Table, logs: list[Log], machines: list[str], request: _Request) -> None:
        self._table = table
        self._logs = logs
        self._machines = machines
        self._request = request

    def table(self) -> Table:
        """A row for each log, machine, governor and λ, with the columns of `idlewise lab sweep collect`."""
        return self._table

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
        handle, request = self._one(governor, log, machine, lambda_)
        return Table(rows_of_gaps(handle, request))

    def decisions(
        self, governor: str, *, log: str | None = None, machine: str | None = None, lambda_: float = 0.25
    ) -> Table:
        """Replays one governor on one log and machine once more, and returns a row for each decision. Where the tick
        or a limit ends a stay, a gap has several.

        Columns: cpu, start_ns, gap_ns, sleep_length_ns, wake_reason of the gap; at_ns, when in the gap the state was
        entered; state; verdict, as the kernel counts (fit, too_deep, too_shallow); stay_ns, without the exit;
        ended_by (event, tick, poll_limit, promotion); delay_ns of the gap's event, in the gap's last row only;
        energy_uj of the stay and of the tick's work after it.

        Args:
            governor: Its name in the table.
            log: The log's name, if there are several.
            machine: The machine as it was given, if there are several.
            lambda_: The price of delay, in times the power of polling, for a governor that asks for one.

        Raises:
            ValueError: If a name is none of these runs'.
            IdlewiseError: If there are more than 67 million decisions.
        """
        handle, request = self._one(governor, log, machine, lambda_)
        return Table(rows_of_decisions(handle, request))

    def _one(
        self, governor: str, log: str | None, machine: str | None, lambda_: float
    ) -> tuple[Handle, _Request]:
        chosen = _one("governor", self._request.governors, lambda it: it[0], governor)
        of_machine = _one("machine", self._machines, str, machine)
        # The log says which machine it was recorded on.
        if of_machine.startswith(_RECORDED + ":"):
            of_machine = _RECORDED
        request = replace(self._request, governors=[chosen], machines=[of_machine], lambdas=[lambda_])
        return _one("log", self._logs, lambda it: it.name, log).handle, request

    def __repr__(self) -> str:
        governors = ", ".join(name for name, _ in self._request.governors)
        logs, machines = len(self._logs), len(self._machines)
        return f"<idlewise.Runs of {governors}: {logs} logs, {machines} machines>"


_T = TypeVar("_T")


def _one(what: str, all: Sequence[_T], name: Callable[[_T], str], wish: str | None) -> _T:
    """The one that is named, or the only one."""
    names = ", ".join(map(name, all))
    if wish is None and len(all) > 1:
        raise ValueError(f"name the {what}: {names}")
    for one in all:
        if wish is None or name(one) == wish:
            return one
    raise ValueError(f"the runs have no {what} '{wish}', but {names}")


def _named(governors: NamedGovernor | Iterable[NamedGovernor]) -> list[tuple[str, Callable[[], Governor] | None]]:
    """Each governor with its name."""
    many = [governors] if isinstance(governors, str) or callable(governors) else list(governors)
    if not many:
        raise ValueError("governors: none are given")
    named: list[tuple[str, Callable[[], Governor] | None]] = []
    for governor in many:
        if isinstance(governor, str):
            name, made = governor, None
        elif callable(governor):
            own = getattr(governor, "name", None)
            name, made = own if isinstance(own, str) else getattr(governor, "__name__", repr(governor)), governor
        else:
            raise TypeError(f"governors: {governor!r} is no name and no class")
        if name in (other for other, _ in named):
            how = "leave one out" if made is None else "give one of them a class attribute `name`"
            raise ValueError(f"governors: two are called {name}, and nobody could tell them apart; {how}")
        named.append((name, made))
    return named


def machines() -> list[str]:
    """Returns the ids of the machines that are built in and have idle states."""
    return machine_ids()


def replay(
    logs: Log | Path | Sequence[Log | Path],
    *,
    machines: Path | Sequence[Path] = (),
    governors: NamedGovernor | Sequence[NamedGovernor] = GOVERNORS_DEFAULT,
    lambdas: float | Sequence[float] = (0.0, 0.25, 1.0),
    hz: int | None = None,
    latency_limit_us: int | None = None,
    time_limit_s: float = 10.0,
) -> Runs:
    """Replays logs on machines under governors.

    Args:
        logs: One log or several, or their files.
        machines: Ids, paths of machine files, or "recorded": each log's own idle states. By default "recorded"; logs
            without states are then replayed on six others, with a warning.
        governors: Names, as in `idlewise replay --help`, or Python classes. A class is called without arguments for
            each CPU. Its name in tables is its attribute `name`, or else the class's own.
        lambdas: Prices of delay, in times the power of polling.
        hz: The kernel's CONFIG_HZ; by default the recording's.
        latency_limit_us: The longest exit latency allowed, in microseconds.
        time_limit_s: How long a governor in Python may take for one decision, in seconds.

    Raises:
        IdlewiseError: If a name is unknown, or a log is damaged.
        ValueError: If there are no logs, or two governors of one name.
        TypeError: If a Python governor returns no index.
        IndexError: If it returns an index that is no state.
        TimeoutError: If a Python governor does not return in time.
        KeyboardInterrupt: After ctrl-c, also within a governor.
        Exception: What a Python governor raises.
    """
    several = opened(logs)
    paths = [machines] if isinstance(machines, (str, os.PathLike)) else machines
    prices = [lambdas] if isinstance(lambdas, (int, float)) else lambdas
    names = [os.fspath(path) for path in paths]
    request = _Request(names, _named(governors), list(prices), hz, latency_limit_us, time_limit_s)
    rows, found, assumed = replayed([log.handle for log in several], request)
    if assumed is not None:
        warnings.warn(assumed.replace("--machine", "machines="), stacklevel=2)
    return Runs(Table(rows), several, names or found, request)
