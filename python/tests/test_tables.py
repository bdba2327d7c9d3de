"""Tables reach polars, pyarrow, pandas and DuckDB with the same values, and without a copy where one can look."""

import importlib
import json
import operator
import os
from typing import Any

import idlewise
import polars as pl
import pytest

# They have no types.
pa: Any = importlib.import_module("pyarrow")
pd: Any = importlib.import_module("pandas")
duckdb: Any = importlib.import_module("duckdb")

TRACES = os.path.join(os.path.dirname(__file__), "../../traces")
A_IDLE = os.path.join(TRACES, "a-idle.parquet")
S_SOFTIRQ = os.path.join(TRACES, "s-softirq500.parquet")


def runs() -> idlewise.Runs:
    return idlewise.replay(idlewise.open(S_SOFTIRQ), machines=["spr", "milan"], governors=["menu", "teo"])


def test_each_takes_the_table() -> None:
    table = runs().table()
    arrow = pa.table(table)
    assert len(table) == table.row_count == arrow.num_rows == 2 * 2 * 3
    expected = arrow["regret_ratio"].to_pylist()
    frame = pl.DataFrame(table)
    assert frame.columns == table.column_names == arrow.schema.names
    assert frame["regret_ratio"].to_list() == expected
    assert frame["gap_count"].dtype == pl.UInt64
    pandas = pd.DataFrame.from_arrow(table)
    assert list(pandas["regret_ratio"]) == expected
    # DuckDB finds it by its name here.
    runs_table = table
    rows = duckdb.sql("SELECT regret_ratio FROM runs_table").fetchall()
    del runs_table
    assert [row[0] for row in rows] == expected
    # A table can be taken more than once.
    assert pl.DataFrame(table).equals(frame)


def test_nobody_copies_a_column() -> None:
    gaps = runs().gaps("menu", machine="spr")
    chunks = pa.table(gaps)["gap_ns"].chunks
    address = chunks[0].buffers()[1].address
    # The same memory each time.
    assert pa.table(gaps)["gap_ns"].chunks[0].buffers()[1].address == address
    of_polars = pa.chunked_array(pl.DataFrame(gaps)["gap_ns"])
    assert of_polars.chunks[0].buffers()[1].address == address
    pandas = pa.table(gaps).to_pandas(types_mapper=pd.ArrowDtype)
    assert pandas["gap_ns"].array.__arrow_array__().chunks[0].buffers()[1].address == address
    # DuckDB does not tell where it reads.
    assert duckdb.sql("SELECT sum(gap_ns) FROM gaps").fetchall()[0][0] == sum(pl.DataFrame(gaps)["gap_ns"])


def test_gaps_add_up_to_the_runs() -> None:
    ran = runs()
    whole = pl.DataFrame(ran.table()).filter(pl.col("lambda") == 0.25)
    for machine in ["spr", "milan"]:
        for governor in ["menu", "teo"]:
            row = whole.row(by_predicate=(pl.col("governor") == governor) & (pl.col("machine") == machine), named=True)
            gaps = pl.DataFrame(ran.gaps(governor, machine=machine, lambda_=0.25))
            assert gaps.height == row["gap_count"]
            assert gaps["delay_ns"].sum() == row["delay_sum_ns"]
            assert abs(gaps["cost_uj"].sum() / row["cost_uj"] - 1) < 1e-9
            assert abs(gaps["right_cost_uj"].sum() / row["oracle_cost_uj"] - 1) < 1e-9
            # In its own gap nothing is cheaper than the oracle.
            assert (gaps["cost_uj"] >= gaps["right_cost_uj"] * (1 - 1e-9)).all()
            assert set(gaps["verdict"].cast(pl.String)) <= {"fit", "too_deep", "too_shallow"}


def test_a_governor_is_told_the_price_of_its_gaps() -> None:
    ran = idlewise.replay(idlewise.open(S_SOFTIRQ), machines="spr", governors="hazard", lambdas=[0, 4])
    for row in pl.DataFrame(ran.table()).iter_rows(named=True):
        gaps = pl.DataFrame(ran.gaps("hazard", lambda_=row["lambda"]))
        assert gaps["delay_ns"].sum() == row["delay_sum_ns"]
    delays = pl.DataFrame(ran.table())["delay_sum_ns"]
    assert delays[0] != delays[1]


@pytest.mark.parametrize("governor", ["menu", "teo", "shallowest", "hazard:lambda=0.25"])
@pytest.mark.parametrize("machine", ["spr", "milan"])
def test_decisions_add_up_to_the_commands_counts(governor: str, machine: str) -> None:
    log = idlewise.open(A_IDLE)
    ran = idlewise.replay(log, machines=machine, governors=governor, lambdas=0.25)
    rows = pl.DataFrame(ran.decisions(governor))
    (whole,) = pl.DataFrame(ran.table()).iter_rows(named=True)
    counts = dict(rows["verdict"].cast(pl.String).value_counts().iter_rows())
    said = json.loads(idlewise.command("replay", "--json", "--machine", machine, "--governor", governor, "--", A_IDLE))
    (told,) = said["rows"]
    assert rows.height == told["decision_count"]
    for verdict in ["too_deep", "too_shallow"]:
        assert counts.get(verdict, 0) == sum(state[f"{verdict}_count"] for state in said["states"]), verdict
    assert rows["delay_ns"].sum() == told["delay_sum_ns"] == whole["delay_sum_ns"]
    assert rows["delay_ns"].is_not_null().sum() == whole["gap_count"]
    assert abs(rows["energy_uj"].sum() / whole["energy_uj"] - 1) < 1e-9
    gaps = pl.DataFrame(ran.gaps(governor))
    assert rows.group_by("cpu", "start_ns").len()["len"].sum() == gaps["stay_count"].sum() == rows.height
    # It has more than one decision in some gaps, or this would show nothing.
    assert governor != "shallowest" or rows.height > 100 * gaps.height


def test_decisions_of_what_has_none() -> None:
    ran = idlewise.replay(idlewise.open(A_IDLE), machines="spr", governors="ski-random")
    with pytest.raises(idlewise.IdlewiseError, match="ski-random moves down while the CPU is idle, and has no decisions"):
        ran.decisions("ski-random")


def test_gaps_of_a_governor_in_python() -> None:
    class Shallowest:
        def select(self, state: idlewise.State) -> int:
            return 0

        def reflect(self, residency_ns: int) -> None:
            pass

    log = idlewise.open(S_SOFTIRQ)
    ran = idlewise.replay(log, machines=["spr"], governors=[Shallowest, "menu"])
    gaps = pl.DataFrame(ran.gaps("Shallowest"))
    assert gaps["chosen_state"].cast(pl.String).unique().to_list() == ["POLL"]
    try:
        ran.gaps("teo")
    except ValueError as error:
        assert str(error) == "the runs have no governor 'teo', but Shallowest, menu"
    else:
        raise AssertionError


def test_a_logs_own_columns_are_those_of_its_file() -> None:
    found = pa.table(idlewise.open(S_SOFTIRQ).gaps()).to_pylist()
    expected = importlib.import_module("pyarrow.parquet").read_table(S_SOFTIRQ).to_pylist()
    key = operator.itemgetter("cpu", "start_ns")
    found.sort(key=key)
    expected.sort(key=key)
    assert found == [{name: row[name] for name in found[0]} for row in expected]


def test_lisas_columns() -> None:
    log = idlewise.open(S_SOFTIRQ)
    frame = pd.DataFrame.from_arrow(log.cpus_idle()).set_index("Time").sort_index()
    assert list(frame.columns) == ["cpu", "state"]
    gaps = pl.DataFrame(log.gaps()).filter(pl.col("recorded_state").is_not_null())
    assert len(frame) == 2 * gaps.height
    # LISA's df_cpu_idle_state_residency: the time in each state is the sum of what follows its rows.
    one = frame[frame["cpu"] == gaps["cpu"][0]]
    idle_s = (one.index.to_series().shift(-1) - one.index)[one["state"] >= 0].sum()
    own = gaps.filter(pl.col("cpu") == gaps["cpu"][0])
    expected_s = sum(own["recorded_idle_ns"]) / 1e9
    assert abs(idle_s / expected_s - 1) < 1e-3
