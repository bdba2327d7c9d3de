"""Replays."""

import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, SupportsFloat, TypeVar, cast, final

from . import _shown
from ._arguments import Path, listed, path_of, text_of, whole
from ._logs import Log, key_of, opened
from ._native import GOVERNORS_DEFAULT, State
from ._native import Log as Handle
from ._native import decisions as rows_of_decisions
from ._native import machines as machine_ids
from ._native import replay as replayed
from ._native import replayed_gaps as rows_of_gaps
from ._tables import Table

_RECORDED = "recorded"
_LAMBDA_MAX = 16


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

    def __init__(
        self, table: Table, logs: list[tuple[str, Log]], machines: list[tuple[str, str]], request: _Request
    ) -> None:
        """For the package itself: `idlewise.replay` makes runs."""
        self._table = table
        # Each with its name in the rows.
        self._logs = logs
        # Each as it was given, and as the rows have it.
        self._machines = machines
        self._request = request

    def table(self) -> Table:
        """A row for each log, machine, governor and λ, with the columns of `idlewise lab sweep collect`."""
        return self._table

    def gaps(
        self,
        governor: NamedGovernor,
        *,
        log: Log | str | None = None,
        machine: Path | None = None,
        lambda_: SupportsFloat = 0.25,
    ) -> Table:
        """Replays one governor on one log and machine once more, and returns a row for each gap.

        Columns: cpu, start_ns, gap_ns, sleep_length_ns, wake_reason; chosen_state, the first that the governor
        selected; right_state, the oracle's at that price; verdict on the first stay, as the kernel counts (fit,
        too_deep, too_shallow); stay_count; delay_ns of the gap's event; energy_uj; cost_uj, energy and priced delay;
        right_cost_uj, the oracle's.

        Args:
            governor: Its name in the table, or its class.
            log: The log or its name, if there are several.
            machine: The machine as it was given or as the table has it, if there are several.
            lambda_: The price of delay, in times the power of polling.

        Raises:
            ValueError: If a name is none of these runs', or more than one's.
        """
        handle, request = self._one(governor, log, machine, lambda_)
        return Table(rows_of_gaps(handle, request))

    def decisions(
        self,
        governor: NamedGovernor,
        *,
        log: Log | str | None = None,
        machine: Path | None = None,
        lambda_: SupportsFloat = 0.25,
    ) -> Table:
        """Replays one governor on one log and machine once more, and returns a row for each decision. Where the tick
        or a limit ends a stay, a gap has several.

        Columns: cpu, start_ns, gap_ns, sleep_length_ns, wake_reason of the gap; at_ns, when in the gap the state was
        entered; state; verdict, as the kernel counts (fit, too_deep, too_shallow); stay_ns, without the exit;
        ended_by (event, tick, poll_limit, promotion); delay_ns of the gap's event, in the gap's last row only;
        energy_uj of the stay and of the tick's work after it.

        Args:
            governor: Its name in the table, or its class.
            log: The log or its name, if there are several.
            machine: The machine as it was given or as the table has it, if there are several.
            lambda_: The price of delay, in times the power of polling, for a governor that asks for one.

        Raises:
            ValueError: If a name is none of these runs', or more than one's.
            IdlewiseError: If there are more than 67 million decisions.
        """
        handle, request = self._one(governor, log, machine, lambda_)
        return Table(rows_of_decisions(handle, request))

    def plot(self, *, lambda_: SupportsFloat = 0.25) -> Any:
        """A chart (Altair's): what the governors cost on all logs together, power and delay, a panel for each machine.
        Governors that are told the price of delay were told this one. `pip install 'idlewise[plot]'`.

        Raises:
            ValueError: If the runs have no such price.
        """
        return _shown.plot_of_runs(self._table, _number("lambda_", lambda_, _LAMBDA_MAX))

    def _repr_html_(self) -> str:
        rows = self._table.rows()
        regrets: dict[tuple[str, str], dict[float, list[float]]] = {}
        for row in rows:
            if row["regret_ratio"] is not None:
                of_one = regrets.setdefault((row["machine"], row["governor"]), {})
                of_one.setdefault(row["lambda"], []).append(row["regret_ratio"])
        prices = list(dict.fromkeys(self._request.lambdas))
        shown = ((machine, governor, *(_mean(one.get(price)) for price in prices)) for (machine, governor), one in regrets.items())
        columns = ["machine", "governor", *(f"regret at λ = {price:g}" for price in prices)]
        return _shown.table(columns, shown, f"Mean of {len(self._logs)} logs: cost above an oracle's, as a ratio (simulated)")

    def _one(
        self, governor: NamedGovernor, log: Log | str | None, machine: Path | None, lambda_: SupportsFloat
    ) -> tuple[Handle, _Request]:
        if callable(governor) and not any(governor == made for _, made in self._request.governors):
            raise ValueError(f"the runs have no governor {governor!r}, but {', '.join(it for it, _ in self._request.governors)}")
        chosen = _one("governor", self._request.governors, lambda it: (it[0],), _named([governor])[0][0])
        wish = None if machine is None else path_of("machine", machine)
        of_machine, _ = _one("machine", self._machines, lambda it: it, wish)
        # The log says which machine it was recorded on.
        if of_machine.startswith(_RECORDED + ":"):
            of_machine = _RECORDED
        price = _number("lambda_", lambda_, _LAMBDA_MAX)
        request = replace(self._request, governors=[chosen], machines=[of_machine], lambdas=[price])
        if isinstance(log, Log):
            for _, one in self._logs:
                if key_of(one) == key_of(log):
                    return one.handle, request
            raise ValueError(f"the runs are not of {log!r}")
        # A path means the whole log, and not windows of it.
        whole_log = next((one for _, one in self._logs if log is not None and _is_at(one, log)), None)
        if whole_log is not None:
            return whole_log.handle, request
        _, one = _one("log", self._logs, lambda it: (it[0], it[1].name), log)
        return one.handle, request

    def __repr__(self) -> str:
        governors = ", ".join(name for name, _ in self._request.governors)
        logs, machines = len(self._logs), len(self._machines)
        return f"<idlewise.Runs of {governors}: {logs} logs, {machines} machines>"


def _is_at(log: Log, path: str) -> bool:
    """Whether the log is a whole one, and was opened from this path or URL."""
    if log.part is not None or log.is_bundled:
        return False
    try:
        return log.path in (path, os.path.abspath(path))
    except FileNotFoundError:
        # The working directory is gone, so the path is a relative one.
        return False


def _mean(found: Sequence[float] | None) -> float | None:
    return sum(found) / len(found) if found else None


_T = TypeVar("_T")


def _one(what: str, all: Sequence[_T], names: Callable[[_T], tuple[str, ...]], wish: str | None) -> _T:
    """The one that is named, or the only one."""
    found = [one for one in all if wish is None or wish in names(one)]
    if len(found) == 1:
        return found[0]
    known = ", ".join(names(one)[0] for one in all)
    if found and wish is not None:
        raise ValueError(f"{len(found)} are called '{wish}'; the table calls them {known}")
    raise ValueError(f"the runs have no {what} '{wish}', but {known}" if wish is not None else f"name the {what}: {known}")


def _number(argument: str, number: SupportsFloat, most: float) -> float:
    """A number from 0 on; errors name the argument."""
    try:
        # Texts have no __float__.
        found = float(number.__float__())
    except (AttributeError, TypeError, OverflowError):
        found = -1.0
    if not 0 <= found <= most:
        raise ValueError(f"{argument}: a number from 0 to {most}, not {number!r}")
    return found


def _named(governors: NamedGovernor | Iterable[NamedGovernor]) -> list[tuple[str, Callable[[], Governor] | None]]:
    """Each governor with its name."""
    many = cast("list[object]", [governors] if callable(governors) else listed("governors", governors))
    if not many:
        raise ValueError("governors: none are given")
    named: list[tuple[str, Callable[[], Governor] | None]] = []
    made: Callable[[], Governor] | None
    for governor in many:
        if isinstance(governor, str):
            name, made = governor, None
        elif callable(governor):
            own: Any = getattr(governor, "name", None)
            name = own if isinstance(own, str) else str(getattr(governor, "__name__", repr(governor)))
            made = cast("Callable[[], Governor]", governor)
        else:
            raise TypeError(f"governors: {governor!r} is no name and no class")
        text_of("governors", name)
        if name in (other for other, _ in named):
            how = "leave one out" if made is None else "give one of them a class attribute `name`"
            raise ValueError(f"governors: two are called {name}, and nobody could tell them apart; {how}")
        named.append((name, made))
    return named


def machines() -> list[str]:
    """Returns the ids of the machines that are built in and have idle states."""
    return machine_ids()


def replay(
    logs: Log | Path | Iterable[Log | Path],
    *,
    machines: Path | Sequence[Path] = (),
    governors: NamedGovernor | Sequence[NamedGovernor] = GOVERNORS_DEFAULT,
    lambdas: SupportsFloat | Iterable[SupportsFloat] = (0.0, 0.25, 1.0),
    hz: int | None = None,
    latency_limit_us: int | None = None,
    time_limit_s: float = 10.0,
) -> Runs:
    """Replays logs on machines under governors.

    Args:
        logs: One log or several, or their files. Each counts once.
        machines: Ids, paths of machine files, or "recorded": each log's own idle states. By default "recorded"; logs
            without states are then replayed on six others, with a warning.
        governors: Names, as in `idlewise replay --help`, or Python classes. A class is called without arguments for
            each CPU. Its name in tables is its attribute `name`, or else the class's own.
        lambdas: Prices of delay, in times the power of polling. Each counts once.
        hz: The kernel's CONFIG_HZ; by default the recording's.
        latency_limit_us: The longest exit latency allowed, in microseconds.
        time_limit_s: How long a governor in Python may take for one decision, in seconds. It is looked at twenty times a
            second.

    Raises:
        IdlewiseError: If a name is unknown, or a log is damaged.
        ValueError: If there are no logs, two governors of one name, or a number out of range.
        TypeError: If an argument is something else, or a Python governor lacks a method or returns no index.
        IndexError: If it returns an index that is no state.
        TimeoutError: If a Python governor does not return in time.
        KeyboardInterrupt: After ctrl-c, also within a governor.
        Exception: What a Python governor raises.
    """
    several = opened(logs)
    names = list(dict.fromkeys(text_of("machines", path_of("machines", it)) for it in listed("machines", machines)))
    try:
        prices: list[SupportsFloat] = listed("lambdas", lambdas)
    except TypeError:
        # One number. An array of numpy may have no dimension.
        prices = [cast("SupportsFloat", lambdas)]
    if not prices:
        raise ValueError("lambdas: none are given")
    request = _Request(
        names,
        _named(governors),
        list(dict.fromkeys(_number("lambdas", price, _LAMBDA_MAX) for price in prices)),
        whole("hz", hz, 10, 10_000),
        whole("latency_limit_us", latency_limit_us, 0, 2**32 - 1),
        _number("time_limit_s", time_limit_s, float("inf")),
    )
    rows, (log_names, found), assumed = replayed([log.handle for log in several], request)
    if assumed is not None:
        warnings.warn(assumed.replace("--machine", "machines="), stacklevel=2)
    given = names if len(names) == len(found) else found
    named_logs = list(zip(log_names, several, strict=True))
    return Runs(Table(rows), named_logs, list(zip(given, found, strict=True)), request)
