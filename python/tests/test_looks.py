"""What one looks at closely: windows of logs, what else a recording says, notebooks' tables and charts."""

import importlib
import lzma
import os
import pathlib
import pickle
import re
import shutil
from html.parser import HTMLParser
from typing import Any

import idlewise
import polars as pl
import pytest

HERE = pathlib.Path(__file__).parent
TRACES = HERE / "../../traces"
B_REDIS = os.fspath(TRACES / "b-redis.parquet")
RUN = HERE / "../../crates/idlewise-trace/tests/causes"

# Two CPUs of a phone; a task that another one follows, and frequencies that one CPU sets for another.
PHONE = """\
# tracer: nop
#
#           TASK-PID     CPU#  ||||   TIMESTAMP  FUNCTION
          <idle>-0     [000] d..2    10.000000: cpu_idle: state=1 cpu_id=0
          <idle>-0     [000] d..2    10.001000: cpu_idle: state=4294967295 cpu_id=0
          <idle>-0     [000] d..2    10.001010: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=a <b> next_pid=7 next_prio=120
             a b-7     [000] d..2    10.001015: cpu_frequency: state=1800000 cpu_id=1
             a b-7     [000] d..2    10.001030: sched_switch: prev_comm=a <b> prev_pid=7 prev_prio=120 prev_state=S ==> next_comm=c next_pid=8 next_prio=120
               c-8     [000] d..2    10.001060: sched_switch: prev_comm=c prev_pid=8 prev_prio=120 prev_state=R ==> next_comm=swapper/0 next_pid=0 next_prio=120
          <idle>-0     [000] d..2    10.001061: cpu_idle: state=1 cpu_id=0
          <idle>-0     [000] d..2    10.003000: cpu_idle: state=4294967295 cpu_id=0
          <idle>-0     [000] d..2    10.003005: cpu_frequency: state=600000 cpu_id=0
          <idle>-0     [000] d..2    10.003010: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=d next_pid=9 next_prio=120
"""


@pytest.fixture
def phone(tmp_path: pathlib.Path) -> idlewise.Log:
    path = tmp_path / "phone.txt"
    path.write_text(PHONE)
    return idlewise.open(path)


def test_a_window_has_the_gaps_that_begin_in_it() -> None:
    log = idlewise.open(B_REDIS)
    gaps = pl.DataFrame(log.gaps())
    starts = gaps["start_ns"].sort()
    begin, end = int(starts[len(starts) // 4]), int(starts[len(starts) // 2])
    window = log.window(begin, end, cpus=0)
    expected = gaps.filter((pl.col("cpu") == 0) & (pl.col("start_ns") >= begin) & (pl.col("start_ns") < end))
    assert 0 < expected.height < gaps.height and pl.DataFrame(window.gaps()).equals(expected)
    assert window.gap_count == expected.height and window.name == f"b-redis@{begin}..{end}/0"
    assert [(cpu["cpu"], cpu["gap_count"]) for cpu in window.metadata()["cpus"]] == [(0, expected.height)]
    assert any("a window of a longer log" in doubt for doubt in window.metadata()["doubts"])
    # Both in one replay, and each once.
    runs = idlewise.replay([log, window, window], machines="spr", governors="menu", lambdas=0)
    assert [row["gap_count"] for row in runs.table().rows()] == [gaps.height, expected.height]
    assert pl.DataFrame(pickle.loads(pickle.dumps(window)).gaps()).equals(expected)
    assert pl.DataFrame(log.window().gaps()).equals(gaps)


def test_windows_that_are_none() -> None:
    log = idlewise.open(B_REDIS)
    with pytest.raises(idlewise.IdlewiseError, match="b-redis: no gap begins in that window; the log is from [0-9]+ to"):
        log.window(4, 5)
    with pytest.raises(ValueError, match="end_ns: 4 is not after start_ns, 5"):
        log.window(5, 4)
    with pytest.raises(idlewise.IdlewiseError, match="b-redis: it has no CPU 77"):
        log.window(cpus=[0, 77])
    wrong: list[dict[str, Any]] = [{"start_ns": 1.5}, {"cpus": "0"}, {"cpus": [-1]}, {"cpus": [None]}, {"end_ns": 2**63}]
    for arguments in wrong:
        with pytest.raises(ValueError, match=f"{[*arguments][0]}: a whole number"):
            log.window(**arguments)
    with pytest.raises(ValueError, match="it is a window already"):
        log.window(cpus=0).window()


def test_tasks_and_frequencies_of_a_text(phone: idlewise.Log) -> None:
    columns = ("cpu", "start_ns", "run_ns", "task", "name", "ended_by")
    assert [tuple(row[name] for name in columns) for row in phone.tasks().rows()] == [
        (0, 10_001_010_000, 20_000, 7, "a <b>", "waits"),
        (0, 10_001_030_000, 30_000, 8, "c", "runnable"),
        (0, 10_003_010_000, None, 9, "d", None),
    ]
    assert phone.frequencies().rows() == [
        {"cpu": 0, "at_ns": 10_003_005_000, "frequency_khz": 600_000},
        {"cpu": 1, "at_ns": 10_001_015_000, "frequency_khz": 1_800_000},
    ]


def test_tasks_are_those_that_the_text_names() -> None:
    """A second reading of a recording by a few lines of Python."""
    expected: list[tuple[int, int, int | None, int]] = []
    runs: dict[int, tuple[int, int]] = {}
    line = re.compile(r"\[(\d+)\] +(\d+)\.(\d{6}): sched_switch: .*:(\d+) \[\d+\] \S+ ==> .*:(\d+) \[")
    with lzma.open(RUN / "pingpong.txt.xz", "rt") as text:
        for found in filter(None, map(line.search, text)):
            cpu, seconds, micros, prev, task = map(int, found.groups())
            at_ns = (seconds * 1_000_000 + micros) * 1_000
            start_ns, ran = runs.pop(cpu, (0, 0))
            if ran:
                assert ran == prev
                expected.append((cpu, start_ns, at_ns - start_ns, ran))
            if task:
                runs[cpu] = (at_ns, task)
    expected += [(cpu, start_ns, None, task) for cpu, (start_ns, task) in runs.items()]
    rows = idlewise.open(RUN / "pingpong.txt.xz").tasks().rows()
    assert len(expected) > 100 and sorted((row["cpu"], row["start_ns"], row["run_ns"], row["task"]) for row in rows) == sorted(
        expected, key=lambda row: row[:2]
    )


def test_two_recorders_saw_the_same_tasks() -> None:
    frames = [pl.DataFrame(idlewise.open(RUN / f"one-run.{kind}.xz").tasks()) for kind in ("perf.data", "trace.dat")]
    names = [set(frame["name"].to_list()) for frame in frames]
    assert len(names[0] & names[1]) > 2
    for frame in frames:
        assert frame["run_ns"].null_count() <= 4 and frame.height > 50


def test_a_recording_for_gaps_tells_no_lengths() -> None:
    tasks = idlewise.open(TRACES / "q-menu-6.12.trace.dat.xz").tasks()
    assert len(tasks) > 100 and all(row["run_ns"] is None for row in tasks.rows())


def test_who_has_no_tasks_says_so(tmp_path: pathlib.Path, phone: idlewise.Log) -> None:
    with pytest.raises(idlewise.IdlewiseError, match="b-redis.parquet: an idle log has gaps only; open the recording"):
        idlewise.open(B_REDIS).tasks()
    with pytest.raises(idlewise.IdlewiseError, match="an idle log has gaps only"):
        idlewise.bundled()[0].frequencies()
    with pytest.raises(idlewise.IdlewiseError, match=r"a window has gaps only; call tasks\(\) of the log"):
        phone.window(cpus=0).tasks()
    pathlib.Path(phone.path).write_text(PHONE.replace("10.", "11."))
    with pytest.raises(idlewise.IdlewiseError, match="phone.txt"):
        phone.tasks()


def test_lengths_are_counted() -> None:
    log = idlewise.open(B_REDIS)
    gaps = pl.DataFrame(log.gaps())
    counts = pl.DataFrame(log.gap_counts())
    assert counts["gap_count"].sum() == log.gap_count and counts["idle_ns"].sum() == gaps["gap_ns"].sum()
    reasons = gaps.group_by(pl.col("wake_reason").cast(pl.String)).agg(pl.len())
    for reason, count in reasons.rows():
        assert counts.filter(pl.col("wake_reason") == reason)["gap_count"].sum() == count
    # A gap of no length is in the first bin.
    bins = counts.filter(pl.col("gap_ns") > 1).with_columns(mean=pl.col("idle_ns") / pl.col("gap_count"))
    assert bins.filter((pl.col("mean") < pl.col("gap_ns")) | (pl.col("mean") > pl.col("gap_ns") * 1.2)).is_empty()


def test_rows_are_those_of_polars() -> None:
    log = idlewise.open(B_REDIS)
    runs = idlewise.replay(log, machines="spr", governors=["menu"])
    for table in (log.gaps(), log.cpus_idle(), runs.table(), runs.decisions("menu")):
        assert table.rows(7) == pl.DataFrame(table).head(7).to_dicts()
        assert len(table.rows()) == len(table) and table.rows(0) == []
        for wrong in ("a", -1, 2**64):
            with pytest.raises(ValueError, match="count: a whole number from 0 to"):
                table.rows(wrong)  # type: ignore[arg-type]


def test_a_scan_reads_the_same_gaps(phone: idlewise.Log) -> None:
    for log in (idlewise.open(B_REDIS), phone, phone.window(cpus=0), idlewise.bundled()[0]):
        lazy: pl.LazyFrame = log.scan()
        assert isinstance(lazy, pl.LazyFrame)
        assert lazy.select(pl.col("gap_ns").sum()).collect().item() == pl.DataFrame(log.gaps())["gap_ns"].sum()
        assert lazy.collect_schema() == pl.DataFrame(log.gaps()).schema
    log, wanted = idlewise.open(B_REDIS), (pl.col("cpu") == 1) & (pl.col("gap_ns") > 1_000_000)
    gaps = pl.DataFrame(log.gaps())
    assert log.scan().collect().equals(gaps)
    assert log.scan().filter(wanted).select("start_ns", "wake_reason").collect().equals(
        gaps.filter(wanted).select("start_ns", "wake_reason")
    )
    assert log.scan().head(3).collect().equals(gaps.head(3))
    both = pl.concat([log.scan(), log.window(cpus=0).scan()]).collect()
    assert len(both) == len(gaps) + len(log.window(cpus=0).gaps())
    # What is not asked for is not read.
    plan = log.scan().filter(wanted).select("start_ns").explain()
    assert "PROJECT" in plan and "start_ns" in plan, plan


def test_a_scan_is_of_its_file_only(tmp_path: pathlib.Path) -> None:
    # A name that polars takes for a pattern.
    log = idlewise.open(shutil.copy(B_REDIS, tmp_path / "q?.parquet"))
    shutil.copy(TRACES / "a-idle.parquet", tmp_path / "q1.parquet")
    assert len(log.scan().collect()) == log.gap_count
    bare = idlewise.open(os.fsdecode(shutil.copy(os.fsencode(B_REDIS), os.fsencode(tmp_path) + b"/\xff.parquet")))
    assert len(bare.scan().collect()) == bare.gap_count
    # A file that is replaced is another log.
    before = log.scan()
    os.replace(tmp_path / "q1.parquet", tmp_path / "q?.parquet")
    for use in (before.collect, log.scan, lambda: idlewise.info(log), lambda: idlewise.oracle(log, machine="spr")):
        with pytest.raises(Exception, match="it changed while it was in use"):
            use()


class Cells(HTMLParser):
    """The cells of a table in HTML."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def shown(thing: Any) -> Cells:
    return Cells(thing._repr_html_())


def test_notebooks_show_tables(phone: idlewise.Log) -> None:
    tasks = shown(phone.tasks())
    assert "a <b>" in tasks.texts and "b" not in tasks.tags and tasks.tags.count("tr") == 1 + 3
    long = shown(idlewise.open(B_REDIS).gaps())
    assert long.tags.count("tr") == 11 and any(text.startswith("10 of ") for text in long.texts)
    log = shown(idlewise.open(B_REDIS))
    assert "b-redis" in log.texts and str(idlewise.open(B_REDIS).gap_count) in log.texts
    runs = idlewise.replay(idlewise.bundled()[:2], machines=["spr", "milan"], governors=["menu", "teo"], lambdas=[0, 1])
    page = shown(runs)
    assert page.tags.count("tr") == 1 + 4 and "regret at λ = 1" in page.texts
    found = [row["regret_ratio"] for row in runs.table().rows() if (row["machine"], row["governor"], row["lambda"]) == ("spr", "teo", 1)]
    assert len(found) == 2 and f"{sum(found) / 2:.6g}" in page.texts


def test_charts_show_the_figures() -> None:
    # What draws them without a browser.
    draw: Any = importlib.import_module("vl_convert")
    log = idlewise.open(B_REDIS)
    chart = log.plot()
    document = chart.to_dict()
    bars = document["vconcat"][0]["layer"][0] if "layer" in document["vconcat"][0] else document["vconcat"][0]
    shares = [value["share of gaps"] for value in bars["data"]["values"]]
    assert abs(sum(shares) - 1) < 1e-9
    assert "length of the gap in µs" in draw.vegalite_to_svg(document)
    # Of a log with states: the shortest gap for which each pays.
    document = idlewise.open(TRACES / "c-nginx.trace.dat.xz").plot().to_dict()
    _, rules, names = document["vconcat"][0]["layer"]
    assert rules["data"]["values"] == [{"state": "C1", "from_us": 2}, {"state": "C6", "from_us": 300}]
    assert names["encoding"]["text"]["field"] == "state" and ">C6<" in draw.vegalite_to_svg(document)
    runs = idlewise.replay(idlewise.bundled()[:2], machines=["spr", "milan"], governors=["menu", "teo"], lambdas=[0, 0.25])
    document = runs.plot(lambda_=0.25).to_dict()
    panels = document["concat"]
    assert [panel["title"] for panel in panels] == ["spr", "milan"]
    points = {(it["machine"], it["governor"]): it for panel in panels for it in panel["data"]["values"]}
    rows = [row for row in runs.table().rows() if (row["machine"], row["governor"], row["lambda"]) == ("spr", "teo", 0.25)]
    sums = {name: sum(row[name] for row in rows) for name in ("delay_sum_ns", "gap_count", "energy_uj", "gap_sum_ns")}
    assert len(points) == 4
    assert points["spr", "teo"]["delay_us"] == pytest.approx(sums["delay_sum_ns"] / sums["gap_count"] / 1e3)
    assert points["spr", "teo"]["power_mw"] == pytest.approx(sums["energy_uj"] / sums["gap_sum_ns"] * 1e6)
    assert all(name in draw.vegalite_to_svg(document) for name in ("milan", "teo"))
    with pytest.raises(ValueError, match="lambda_: the runs have no price 0.5"):
        runs.plot(lambda_=0.5)


def test_without_altair_one_learns_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(importlib.import_module("sys").modules, "altair", None)
    with pytest.raises(ImportError, match=r"pip install 'idlewise\[plot\]'"):
        idlewise.open(B_REDIS).plot()
