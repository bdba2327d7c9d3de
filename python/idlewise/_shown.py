"""What notebooks show: tables as HTML, and charts."""

from __future__ import annotations

import html
import importlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._logs import Log
    from ._tables import Table

ROW_COUNT = 10
# Of a bin of Log.gap_counts().
_BIN_WIDTH = 2**0.25


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], below: str = "") -> str:
    """A table in HTML; numbers stand to the right."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    body = "".join("<tr>" + "".join(_cell(value) for value in row) + "</tr>" for row in rows)
    note = f"<p>{html.escape(below)}</p>" if below else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}"


def _cell(value: object) -> str:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    text = "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
    return f'<td style="text-align: {"right" if is_number else "left"}">{html.escape(text)}</td>'


def altair() -> Any:
    """Altair, or how to get it."""
    try:
        return importlib.import_module("altair")
    except ImportError as error:
        raise ImportError("plots need Altair: pip install 'idlewise[plot]'") from error


def plot_of_log(log: Log) -> Any:
    """A chart of a log's gaps: how many there are of each length, and how much idle time they are."""
    alt = altair()
    rows = log.gap_counts().rows()
    count, idle_ns = (max(1, sum(row[name] for row in rows)) for name in ("gap_count", "idle_ns"))
    bins = [
        {
            "from_us": row["gap_ns"] / 1e3,
            "to_us": row["gap_ns"] * _BIN_WIDTH / 1e3,
            "ended by": row["wake_reason"],
            "share of gaps": row["gap_count"] / count,
            "share of idle time": row["idle_ns"] / idle_ns,
        }
        for row in rows
    ]
    length = alt.X("from_us:Q", bin="binned", scale=alt.Scale(type="log"), title="length of the gap in µs")
    machine: dict[str, Any] = log.metadata().get("machine") or {}
    states = [
        {"state": state["name"], "from_us": state["target_residency_us"]}
        for state in machine.get("states", [])
        if state["target_residency_us"] > 0
    ]
    rules = alt.Chart(alt.Data(values=states)).mark_rule(strokeDash=[4, 3]).encode(x="from_us:Q", tooltip=["state:N", "from_us:Q"])
    names = rules.mark_text(align="left", dx=3, baseline="top").encode(text="state:N", y=alt.value(2))
    charts: list[Any] = []
    for share in ("share of gaps", "share of idle time"):
        bars = (
            alt.Chart(alt.Data(values=bins), title=f"{log.name}: {share}" if not charts else share)
            .mark_bar()
            .encode(
                x=length,
                x2="to_us:Q",
                y=alt.Y(f"{share}:Q", axis=alt.Axis(format="%"), title=None),
                color=alt.Color("ended by:N"),
                tooltip=["from_us:Q", "to_us:Q", "ended by:N", alt.Tooltip(f"{share}:Q", format=".2%")],
            )
            .properties(width=560, height=150)
        )
        charts.append(bars + rules + names if states else bars)
    return alt.vconcat(*charts)


def plot_of_runs(runs: Table, lambda_: float) -> Any:
    """A chart of what governors cost on all logs together: power and delay, a panel for each machine."""
    alt = altair()
    sums: dict[tuple[str, str], dict[str, float]] = {}
    for row in runs.rows():
        # A governor that needs no price has the same figures at each.
        if row["lambda"] == lambda_:
            one = sums.setdefault((row["machine"], row["governor"]), dict.fromkeys(_SUMMED, 0.0))
            for name in _SUMMED:
                one[name] += row[name]
    if not sums:
        raise ValueError(f"lambda_: the runs have no price {lambda_}")
    points: list[dict[str, Any]] = [
        {
            "machine": machine,
            "governor": governor,
            "delay_us": one["delay_sum_ns"] / one["gap_count"] / 1e3,
            "power_mw": one["energy_uj"] / one["gap_sum_ns"] * 1e6,
            "regret": one["cost_uj"] / one["oracle_cost_uj"] - 1,
        }
        for (machine, governor), one in sums.items()
        if one["gap_count"] and one["oracle_cost_uj"]
    ]
    names = sorted({point["governor"] for point in points})
    panels = [
        alt.Chart(alt.Data(values=[point for point in points if point["machine"] == machine]), title=machine)
        .mark_point(filled=True, size=90, opacity=0.8)
        .encode(
            # A state without delay is at 0.
            x=alt.X("delay_us:Q", title="mean delay of a wake-up in µs (simulated)", scale=alt.Scale(type="symlog")),
            y=alt.Y("power_mw:Q", title="mean power while idle in mW", scale=alt.Scale(type="log", nice=True)),
            color=alt.Color("governor:N", scale=alt.Scale(domain=names)),
            shape=alt.Shape("governor:N", scale=alt.Scale(domain=names)),
            tooltip=[
                "governor:N",
                alt.Tooltip("delay_us:Q", format=".4g"),
                alt.Tooltip("power_mw:Q", format=".4g"),
                alt.Tooltip("regret:Q", format=".1%", title=f"regret at λ = {lambda_:g}"),
            ],
        )
        .properties(width=280, height=220)
        for machine in dict.fromkeys(point["machine"] for point in points)
    ]
    return alt.concat(*panels, columns=3)


_SUMMED = ("delay_sum_ns", "gap_count", "energy_uj", "gap_sum_ns", "cost_uj", "oracle_cost_uj")
