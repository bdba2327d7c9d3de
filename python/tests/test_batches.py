"""Batches of a sweep's logs, and cells read by data engines as they are kept."""

import functools
import importlib
import json
import pathlib
import pickle
import re
import resource
import sys
from typing import Any

import duckdb
import idlewise
import polars as pl
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent.resolve() / "../benches"))
from figures import long_log

pa: Any = importlib.import_module("pyarrow")
parquet: Any = importlib.import_module("pyarrow.parquet")
TRACES = (pathlib.Path(__file__).parent / "../../traces").resolve()
LOGS = ("a-idle.parquet", "b-redis.parquet", "s-softirq500.perf.data.xz")
SWEEP = 'machines = ["spr", "milan"]\ngovernors = ["menu", "teo", "hazard"]\nshape = ["default", "flat"]\n'


def planned(folder: pathlib.Path, *logs: str | pathlib.Path) -> Any:
    """A manifest in a folder, and the table of its logs."""
    paths = [str(TRACES / log) for log in logs]
    (folder / "sweep.toml").write_text(f"logs = {json.dumps(paths)}\n{SWEEP}")
    idlewise.command("lab", "sweep", "plan", "-o", folder / "logs.parquet", "--", folder / "sweep.toml", check=False)
    return parquet.read_table(folder / "logs.parquet")


def kept(folder: pathlib.Path) -> list[dict[str, Any]]:
    """The cells of a store."""
    rows = pl.read_parquet(sorted(folder.glob("cells/*/*.parquet")), hive_partitioning=False).to_dicts()
    return sorted(rows, key=lambda row: row["cell"])


def test_a_batch_has_the_cells_of_a_sweep(tmp_path: pathlib.Path) -> None:
    logs = planned(tmp_path, *LOGS)
    assert logs["gap_count"].to_pylist() == [147, idlewise.open(TRACES / LOGS[1]).gap_count, None]
    # Engines pickle the function, and give parts of the table as they like.
    part = pickle.loads(pickle.dumps(functools.partial(idlewise.replay_batch, manifest=SWEEP)))
    batches = [part(logs[:1]), part(logs[1:].to_batches()[0]), part(logs[:0])]
    assert [batch.schema for batch in batches] == [idlewise.cell_schema()] * 3
    idlewise.sweep(tmp_path / "sweep.toml")
    cells = sorted(pa.concat_tables(batches).to_pylist(), key=lambda row: row["cell"])
    assert cells == kept(tmp_path)
    assert len(cells) == 3 * 2 * (2 + 3 + 2 * 3)


def test_what_cannot_be_read_is_a_failed_row(tmp_path: pathlib.Path) -> None:
    (tmp_path / "broken.parquet").write_bytes((TRACES / "a-idle.parquet").read_bytes()[:4000])
    (tmp_path / "changes.parquet").write_bytes((TRACES / "a-idle.parquet").read_bytes())
    logs = planned(tmp_path, "b-redis.parquet", tmp_path / "broken.parquet", tmp_path / "changes.parquet", tmp_path / "none.parquet")
    (tmp_path / "changes.parquet").write_bytes((TRACES / "h-pingpong.parquet").read_bytes())
    cells = idlewise.replay_batch(logs, tmp_path / "sweep.toml").to_pylist()
    failed = {row["failure"] for row in cells if row["cell"] is None}
    assert len([row for row in cells if row["failure"] is None]) == 2 * (2 + 3 + 2 * 3)
    for part in ("broken.parquet", "changes.parquet: it has changed since it was hashed", "none.parquet: No such file"):
        assert len([reason for reason in failed if part in reason]) == 1, (part, failed)
    assert len(failed) == 3
    # The message says which line of the text, and nothing of the file that it was kept in.
    with pytest.raises(idlewise.IdlewiseError, match="^manifest:1: unknown key 'machine'"):
        idlewise.replay_batch(logs, 'machine = "spr"\n')
    with pytest.raises(idlewise.IdlewiseError, match=r"^(?!.*idlewise-).*none\.toml"):
        idlewise.replay_batch(logs, 'machines = "./none.toml"\n')
    with pytest.raises(ValueError, match="no column 'url'"):
        idlewise.replay_batch(pa.table({"log": ["a"], "log_sha256": ["0"]}), SWEEP)


def test_a_wrong_row_of_a_batch_fails_alone(tmp_path: pathlib.Path) -> None:
    rows = planned(tmp_path, *LOGS).to_pylist()
    rows[0]["url"] = ""
    rows[1]["log_sha256"] = "0123"
    cells = idlewise.replay_batch(pa.Table.from_pylist(rows), SWEEP).to_pylist()
    assert len([row for row in cells if row["failure"] is None]) == 2 * (2 + 3 + 2 * 3)
    assert {row["log_sha256"]: row["failure"] for row in cells if row["failure"] is not None} == {
        rows[0]["log_sha256"]: "a-idle, row 1 of the table of logs: url is empty",
        "0123": "b-redis, row 2 of the table of logs: log_sha256 is not a SHA-256, which has 64 digits from 0 to 9 and a to f",
    }


def test_a_log_that_ends_the_process_fails_alone(tmp_path: pathlib.Path) -> None:
    """Here it takes more CPU time than it may. Too much memory ends a process by a signal, too."""
    long = long_log(tmp_path, 1_000_000)
    logs = planned(tmp_path, "a-idle.parquet", long, "b-redis.parquet")
    idlewise.cell_schema()
    own, hard = resource.getrusage(resource.RUSAGE_SELF), resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (int(own.ru_utime + own.ru_stime) + 3, hard))
    try:
        manifest = SWEEP + "hz = [" + ", ".join(str(100 + 10 * step) for step in range(20)) + "]\n"
        if own.ru_utime + own.ru_stime > 10:
            pytest.skip("this process itself has taken too long for the limit to be short")
        cells = idlewise.replay_batch(logs, manifest).to_pylist()
    finally:
        resource.setrlimit(resource.RLIMIT_CPU, (hard, hard))
    failed = [row for row in cells if row["failure"] is not None]
    assert [row["log_sha256"] for row in failed] == [row["log_sha256"] for row in logs.to_pylist() if row["url"] == str(long)]
    assert failed[0]["failure"].startswith("signal ")
    assert len(cells) - 1 == 20 * 2 * 2 * (2 + 3 + 2 * 3)


def query() -> str:
    """What docs/sweep.md has."""
    (text,) = re.findall(r"```sql\n(.*?)```", (TRACES / "../docs/sweep.md").read_text(), re.DOTALL)
    return str(text)


def test_data_engines_say_what_collect_says(tmp_path: pathlib.Path) -> None:
    planned(tmp_path, *LOGS)
    with (tmp_path / "sweep.toml").open("a") as manifest:
        manifest.write("latency_limit_us = [3, 500]\n")
    idlewise.sweep(tmp_path / "sweep.toml")
    idlewise.command("lab", "sweep", "collect", tmp_path / "sweep.toml", "-o", tmp_path / "all.parquet")
    collected = pl.read_parquet(tmp_path / "all.parquet").filter(pl.col("shape") == "default")

    def by_cell(frame: pl.DataFrame, regret: str) -> dict[tuple[str, ...], tuple[float, float]]:
        rows = frame.to_dicts()
        name: dict[str, str] = {"menu-6.12": "menu", "teo-6.12": "teo"}

        def key(row: dict[str, Any]) -> tuple[str, ...]:
            governor = str(row["governor"]).partition(":")[0]
            place = (str(row["log"]), str(row["machine"]), str(row["latency_limit_us"]))
            return *place, str(float(row["lambda"])), name.get(governor, governor)

        return {key(row): (row["cost_uj"], row[regret]) for row in rows}

    expected = by_cell(collected, "regret_ratio")
    assert len(expected) == 3 * 2 * 2 * 3 * 3
    means: dict[tuple[str, str], list[float]] = {}
    for (*_, price, governor), (_, regret) in expected.items():
        means.setdefault((governor, price), []).append(regret)
    connection = duckdb.connect()
    connection.sql(f"SET file_search_path = '{tmp_path}'")
    found_means = {
        (governor.partition("-")[0].partition(":")[0], str(float(price))): regret
        for governor, price, regret in connection.sql(query()).fetchall()
    }
    assert found_means.keys() - {("oracle", str(price)) for price in (0.0, 0.25, 1.0)} == means.keys()
    for place, regrets in means.items():
        assert found_means[place] == pytest.approx(sum(regrets) / len(regrets), rel=1e-9, abs=1e-12), place

    # pyarrow reads the store as a folder, without what was not ours there.
    (tmp_path / "cells/engine=3/_1.parquet.damaged").write_text("notes")
    dataset: Any = importlib.import_module("pyarrow.dataset")
    whole = dataset.dataset(tmp_path / "cells", partitioning="hive").to_table()
    assert set(whole["engine"].to_pylist()) == {3} and len(whole) == 3 * 2 * 2 * (2 + 3 + 2 * 3)

    # Polars, lazily.
    cells = pl.scan_parquet(tmp_path / "cells/engine=3/*.parquet").filter(pl.col("failure").is_null()).unique("cell")
    cost = pl.col("energy_uj") + pl.col("lambda") * pl.col("polling_mw") * pl.col("delay_sum_ns") / 1e6
    inputs = ["log_sha256", "machine_sha256", "hz", "tick_work_ns", "latency_limit_us"]
    oracle = cells.filter((pl.col("governor") == "oracle") & (pl.col("shape") == "default"))
    oracle = oracle.with_columns(least_uj=cost).select(*inputs, "lambda", "least_uj")
    menu = cells.filter(pl.col("governor") == "menu-6.12").drop("lambda").join(oracle, on=inputs)
    logs = pl.scan_parquet(tmp_path / "logs.parquet").select("log", "log_sha256")
    frame = menu.with_columns(cost_uj=cost).with_columns(regret=pl.col("cost_uj") / pl.col("least_uj") - 1)
    found = by_cell(frame.join(logs, on="log_sha256").collect(), "regret")
    assert len(found) == 3 * 2 * 2 * 3
    for cell, figures in found.items():
        assert figures == pytest.approx(expected[cell], rel=1e-9, abs=1e-12), cell


def test_a_log_that_cannot_be_makes_a_failed_row(tmp_path: pathlib.Path) -> None:
    """It says that its kernel had 0 ticks a second."""
    bad = parquet.read_table(TRACES / "a-idle.parquet")
    about = json.loads(bad.schema.metadata[b"idlewise"]) | {"hz": 0}
    parquet.write_table(bad.replace_schema_metadata({b"idlewise": json.dumps(about)}), tmp_path / "bad.parquet", compression="zstd")
    table = planned(tmp_path, tmp_path / "bad.parquet", "b-redis.parquet")
    cells = pl.DataFrame(idlewise.replay_batch(table, 'machines = "spr"\ngovernors = ["menu"]\n'))
    failed = cells.filter(pl.col("failure").is_not_null())
    assert len(cells) > len(failed) == 1
    assert "hz is 0, where kernels have 10 to 10000" in failed["failure"][0]
    with pytest.raises(idlewise.IdlewiseError, match="damaged idle log: metadata: hz is 0"):
        idlewise.open(tmp_path / "bad.parquet")


def test_a_fault_in_the_command_costs_one_log(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch whose process panics is tried again in halves."""
    batches: Any = importlib.import_module("idlewise._batches")
    ran = batches.ran

    def panicking(*words: Any, **options: Any) -> Any:
        done = ran(*words, **options)
        if "--logs" in words and "a-idle" in str(parquet.read_table(words[words.index("--logs") + 1])["url"].to_pylist()):
            done.returncode = 101
        return done

    table = planned(tmp_path, "a-idle.parquet", "b-redis.parquet")
    monkeypatch.setattr(batches, "ran", panicking)
    cells = pl.DataFrame(idlewise.replay_batch(table, 'machines = "spr"\ngovernors = ["menu"]\n'))
    failed = cells.filter(pl.col("failure").is_not_null())
    assert len(cells) > len(failed) == 1 and "please report it" in failed["failure"][0]


def test_wrong_arguments_of_a_batch(tmp_path: pathlib.Path) -> None:
    table = planned(tmp_path, "a-idle.parquet")
    with pytest.raises(TypeError, match="manifest: expected a path, not None"):
        idlewise.replay_batch(table, None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="logs: two columns are called 'url'"):
        idlewise.replay_batch(table.append_column("url", table["url"]), tmp_path / "sweep.toml")
