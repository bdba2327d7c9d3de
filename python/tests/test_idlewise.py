"""The package as a user has it: installed, with polars and pyarrow beside it."""

import ast
import decimal
import fractions
import importlib
import importlib.metadata
import inspect
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import idlewise
import numpy
import polars as pl
import pytest

TRACES = os.path.join(os.path.dirname(__file__), "../../traces")
A_IDLE = os.path.join(TRACES, "a-idle.parquet")


class Deepest:
    """Selects the deepest state whose target residency the next timer allows."""

    def select(self, state: idlewise.State) -> tuple[int, bool]:
        sleep_ns = state.sleep_length_ns
        index = 0
        for candidate, residency_ns in enumerate(state.target_residencies_ns):
            latency_ns = state.exit_latencies_ns[candidate]
            is_allowed = latency_ns <= state.latency_limit_ns and not state.is_disabled(candidate)
            if is_allowed and (sleep_ns is None or residency_ns <= sleep_ns):
                index = candidate
        return index, True

    def reflect(self, residency_ns: int) -> None:
        assert residency_ns >= 0


def first() -> idlewise.Log:
    return idlewise.open(A_IDLE)


def test_a_log_tells_what_it_holds() -> None:
    log = first()
    assert log.name == "a-idle" and log.gap_count == 147
    assert log.metadata()["cpus"] and log.path == os.path.abspath(A_IDLE)
    assert "spr" in idlewise.machines()
    assert len(idlewise.bundled()) == 5


def test_a_log_is_replayed_on_its_own_machine() -> None:
    log = idlewise.open(os.path.join(TRACES, "q-menu-6.12.trace.dat.xz"))

    def rows(machines: Sequence[str] = ()) -> pl.DataFrame:
        return pl.DataFrame(idlewise.replay(log, governors=["menu"], machines=machines, lambdas=[0.25]).table())

    assert rows()["machine"].to_list() == ["recorded"]
    assert rows(machines=["recorded"]).equals(rows())
    assert rows(machines=["recorded", "spr"])["machine"].to_list() == ["recorded", "spr"]
    runs = idlewise.replay(log, governors=["menu"], lambdas=[0.25])
    assert set(pl.DataFrame(runs.gaps("menu"))["chosen_state"].cast(pl.String)) <= {"POLL", "C1", "C1E", "C3", "C6"}


def test_a_log_without_states_warns() -> None:
    with pytest.warns(UserWarning, match="a-idle has no idle states of its own.* on spr, icx"):
        runs = idlewise.replay(first(), governors=["menu"], lambdas=[0.25])
    assert len(runs.table()) == 6
    with pytest.raises(idlewise.IdlewiseError, match="which idle states its machine has"):
        idlewise.replay(first(), machines=["recorded"])


def test_figures_are_those_of_the_command() -> None:
    command = os.environ.get("IDLEWISE")
    if command is None:
        pytest.skip("the command's figures: set IDLEWISE to the binary")
    line = [command, "replay", "--rank", A_IDLE, "--machine", "spr", "--governor", "menu", "--governor", "hazard", "--csv"]
    expected = pl.read_csv(subprocess.check_output(line))
    runs = idlewise.replay(first(), machines=["spr"], governors=["menu", "hazard"])
    found = pl.DataFrame(runs.table())
    for column in ["governor", "lambda", "cost_uj", "oracle_cost_uj", "regret_ratio"]:
        assert found[column].to_list() == expected[column].to_list(), column


def test_a_governor_in_python_is_replayed_like_others() -> None:
    runs = idlewise.replay(first(), machines=["spr"], governors=["menu", Deepest], lambdas=[0])
    frame = pl.DataFrame(runs.table())
    assert frame["governor"].to_list() == ["menu", "Deepest"]
    assert frame["gap_count"][0] == frame["gap_count"][1]
    assert all(regret is not None and regret >= -1e-9 for regret in frame["regret_ratio"])


@pytest.mark.parametrize(
    ("answer", "error", "part"),
    [
        (1.5, TypeError, "select returned 1.5"),
        (None, TypeError, "select returned None"),
        (-1, IndexError, "select returned -1, and the states are 0 to"),
        (99, IndexError, "select returned 99"),
        (2**63, IndexError, "select returned 9223372036854775808"),
        ((1,), TypeError, r"select returned \(1,\); return a state's index, or an index and whether"),
        ((1, True, 2), TypeError, "select returned"),
    ],
)
def test_a_wrong_answer_is_an_exception(answer: object, error: type[Exception], part: str) -> None:
    class Wrong:
        def select(self, state: idlewise.State) -> object:
            return answer

        def reflect(self, residency_ns: int) -> None:
            pass

    with pytest.raises(error, match=part):
        idlewise.replay(first(), machines=["spr"], governors=[Wrong])  # type: ignore[list-item]


def test_what_an_answer_raises_arrives() -> None:
    class Odd:
        def __index__(self) -> int:
            raise ValueError("own")

    class Answers(Deepest):
        def select(self, state: idlewise.State) -> object:  # type: ignore[override]
            with pytest.raises(IndexError, match="no state -1; they are 0 to 3"):
                state.is_disabled(-1)
            return Odd()

    with pytest.raises(ValueError, match="own"):
        idlewise.replay(first(), machines=["spr"], governors=[Answers])  # type: ignore[list-item]


def test_what_a_governor_raises_arrives() -> None:
    class Raises(Deepest):
        def reflect(self, residency_ns: int) -> None:
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        idlewise.replay(first(), machines=["spr"], governors=[Raises])


def test_errors_say_where_and_what_to_do() -> None:
    with pytest.raises(idlewise.IdlewiseError, match="/none.parquet"):
        idlewise.open("/none.parquet")
    with pytest.raises(idlewise.IdlewiseError, match="did you mean 'menu'"):
        idlewise.replay(first(), governors=["meun"])
    with pytest.raises(idlewise.IdlewiseError, match="did you mean 'spr'"):
        idlewise.replay(first(), machines=["sprr"])
    with pytest.raises(TypeError, match="governors: 3 is no name and no class"):
        idlewise.replay(first(), governors=[3])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="logs: expected a path, not 3"):
        idlewise.replay([first(), 3])  # type: ignore[list-item]
    with pytest.raises(ValueError, match=r"logs: none are given; open some with idlewise.open\(path\)"):
        idlewise.replay([])
    with pytest.raises(ValueError, match="governors: none are given"):
        idlewise.replay(first(), governors=[])
    with pytest.raises(ValueError, match="two are called menu, and nobody could tell them apart; leave one out"):
        idlewise.replay(first(), governors=["menu", "menu"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"logs": None}, r"logs: what is None\?"),
        ({"machines": None}, r"machines: what is None\?"),
        ({"machines": [5]}, "machines: expected a path, not 5"),
        ({"machines": b"sprr"}, "no machine 'sprr'"),
        ({"governors": None}, r"governors: what is None\?"),
        ({"governors": [int]}, "a governor has no method select"),
        ({"lambdas": None}, "lambdas: a number from 0 to 16, not None"),
        ({"lambdas": ["0.25"]}, "lambdas: a number from 0 to 16, not '0.25'"),
        ({"lambdas": 10**400}, "lambdas: a number from 0 to 16"),
        ({"lambdas": float("nan")}, "lambdas: a number from 0 to 16, not nan"),
        ({"lambdas": []}, "lambdas: none are given"),
        ({"machines": "\udcff"}, r"machines: '\\udcff' is not Unicode"),
        ({"governors": "\udcff"}, r"governors: '\\udcff' is not Unicode"),
        ({"hz": 250.0}, "hz: a whole number from 10 to 10000, not 250.0"),
        ({"hz": 2**32}, "hz: a whole number from 10 to 10000, not 4294967296"),
        ({"latency_limit_us": -1}, "latency_limit_us: a whole number from 0 to 4294967295, not -1"),
        ({"time_limit_s": None}, "time_limit_s: a number from 0 to inf, not None"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, object], message: str) -> None:
    right: dict[str, object] = {"logs": A_IDLE, "machines": "spr", "governors": "menu", "lambdas": 0}
    with pytest.raises((TypeError, ValueError, idlewise.IdlewiseError), match=message):
        idlewise.replay(**{**right, **arguments})  # type: ignore[arg-type]


def test_numbers_of_other_kinds_are_numbers() -> None:
    runs = idlewise.replay(
        A_IDLE,
        machines="spr",
        governors="menu",
        lambdas=[numpy.float32(0.25), decimal.Decimal("0.5"), fractions.Fraction(3, 4), numpy.int64(1)],
        hz=int(numpy.int64(250)),
        time_limit_s=float("inf"),
    )
    assert pl.DataFrame(runs.table())["lambda"].to_list() == [0.25, 0.5, 0.75, 1]
    one: list[Any] = [numpy.float32(1), numpy.array(1.0), [1, 1.0, numpy.float32(1)], {1.0}]
    for lambdas in one:
        assert len(idlewise.replay(A_IDLE, machines="spr", governors="menu", lambdas=lambdas).table()) == 1
    with pytest.raises(ValueError, match="lambda_: a number from 0 to 16, not 17"):
        runs.gaps("menu", lambda_=17)


def test_each_log_and_machine_counts_once() -> None:
    runs = idlewise.replay([A_IDLE, first()], machines=["spr", pathlib.Path("spr")], governors="menu", lambdas=1)
    assert len(runs.table()) == 1 and len(runs.decisions("menu")) == 147


def test_what_was_given_names_it_again(tmp_path: pathlib.Path) -> None:
    places = [tmp_path / "1/server.parquet", tmp_path / "2/server.parquet"]
    for place, name in zip(places, ["a-idle", "b-redis"], strict=True):
        place.parent.mkdir()
        place.write_bytes((pathlib.Path(TRACES) / f"{name}.parquet").read_bytes())
    logs = [idlewise.open(place) for place in places]
    runs = idlewise.replay(logs, machines=["SPR", pathlib.Path("milan")], governors=[Deepest, "menu"], lambdas=1)
    # As in the command, folders tell them apart.
    frame = pl.DataFrame(runs.table())
    assert frame["log"].unique(maintain_order=True).to_list() == ["1/server", "2/server"]
    with pytest.raises(ValueError, match="2 are called 'server'; the table calls them 1/server, 2/server"):
        runs.gaps("menu", log="server", machine="milan")
    for number, log in enumerate(logs, 1):
        ways: list[idlewise.Log | str] = [log, log.path, os.path.relpath(log.path), f"{number}/server"]
        for named in ways:
            assert len(runs.gaps(Deepest, log=named, machine="spr")) == log.gap_count
    assert len(runs.gaps("menu", log=logs[0], machine=pathlib.Path("SPR"))) == 147
    with pytest.raises(ValueError, match="the runs are not of <idlewise.Log a-idle: 147 gaps>"):
        runs.gaps("menu", log=idlewise.bundled()[0], machine="spr")


def test_a_path_is_the_log_and_not_its_window() -> None:
    log = first()
    part = log.window(pl.DataFrame(log.gaps())["start_ns"][9])
    runs = idlewise.replay([log, part], machines="spr", governors="menu", lambdas=1)
    for whole in (log.path, os.path.relpath(log.path), log.name):
        assert len(runs.gaps("menu", log=whole)) == log.gap_count
    assert len(runs.gaps("menu", log=part.name)) == part.gap_count < log.gap_count


def test_a_class_of_other_runs_is_none_of_these() -> None:
    class Other(Deepest):
        name = "Deepest"

    runs = idlewise.replay(first(), machines="spr", governors=Deepest, lambdas=1)
    assert len(runs.decisions(Deepest)) == len(runs.decisions("Deepest"))
    with pytest.raises(ValueError, match="the runs have no governor <class .*Other'>, but Deepest"):
        runs.decisions(Other)


def test_without_threads_it_is_an_error(tmp_path: pathlib.Path) -> None:
    """As where a container limits its processes."""
    if os.geteuid() != 0:
        pytest.skip("another user is needed, one without processes")
    script = f"""
import os, resource
import idlewise
os.setgid(54321); os.setuid(54321)
resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
try:
    idlewise.open({os.path.abspath(A_IDLE)!r})
except idlewise.IdlewiseError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("cannot start a thread: ") and "ulimit -u" in done.stdout, done


def test_a_folder_that_is_gone_is_an_error(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    with pytest.raises(idlewise.IdlewiseError, match="x.parquet: the working directory was removed"):
        idlewise.open("x.parquet")
    # What is open already is found by its name and its path.
    log = first()
    runs = idlewise.replay(log, machines="spr", governors="menu", lambdas=1)
    for named in (None, log.name, log.path):
        assert len(runs.gaps("menu", log=named)) == log.gap_count
    with pytest.raises(ValueError, match="the runs have no log 'other.parquet', but a-idle"):
        runs.gaps("menu", log="other.parquet")


@pytest.mark.parametrize(
    ("column", "kind"),
    [("gap_ns", "time64"), ("start_ns", "timestamp"), ("gap_ns", "decimal"), ("next_tick_ns", "date32")],
)
def test_a_column_in_another_unit_is_refused(tmp_path: pathlib.Path, column: str, kind: str) -> None:
    pa: Any = importlib.import_module("pyarrow")
    parquet: Any = importlib.import_module("pyarrow.parquet")
    table = parquet.read_table(A_IDLE)
    kinds = {
        "time64": lambda: pa.time64("us"),
        "timestamp": lambda: pa.timestamp("us", "UTC"),
        "decimal": lambda: pa.decimal128(18, 3),
        "date32": pa.date32,
    }
    at = table.column_names.index(column)
    one: Any = decimal.Decimal(1) if kind == "decimal" else 1
    field = pa.field(column, kinds[kind](), nullable=table.schema.field(column).nullable)
    values = pa.array([None if value is None else one for value in table[column].to_pylist()], field.type)
    table = table.set_column(at, field, values)
    options = {"store_decimal_as_integer": True} if kind == "decimal" else {}
    parquet.write_table(table, tmp_path / "log.parquet", compression="zstd", **options)
    with pytest.raises(idlewise.IdlewiseError, match=f"column {column} has another type"):
        idlewise.open(tmp_path / "log.parquet")


@pytest.mark.parametrize("column", ["gap_ns", "sleep_length_ns", "next_tick_ns", "latency_limit_ns", "recorded_idle_ns"])
def test_a_negative_time_is_refused(tmp_path: pathlib.Path, column: str) -> None:
    pa: Any = importlib.import_module("pyarrow")
    parquet: Any = importlib.import_module("pyarrow.parquet")
    table = parquet.read_table(A_IDLE)
    field = table.schema.field(column)
    kind = {pa.uint64(): pa.int64(), pa.uint32(): pa.int32()}[field.type]
    values = pa.array([-1] * len(table), kind)
    at = table.column_names.index(column)
    table = table.set_column(at, pa.field(column, kind, nullable=field.nullable), values)
    parquet.write_table(table, tmp_path / "log.parquet", compression="zstd")
    with pytest.raises(idlewise.IdlewiseError, match=f"{column}"):
        idlewise.open(tmp_path / "log.parquet").gaps()


def test_a_log_outlives_a_change_of_the_folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(TRACES)
    log = idlewise.open("a-idle.parquet")
    monkeypatch.chdir(tmp_path)
    assert len(log.gaps()) == 147


def test_one_needs_no_list_and_a_log_no_opening() -> None:
    one = idlewise.replay(A_IDLE, machines="spr", governors="menu", lambdas=0.25)
    several = idlewise.replay([first()], machines=["spr"], governors=["menu"], lambdas=[0.25])
    assert len(one.table()) == 1 and pl.DataFrame(one.table()).equals(pl.DataFrame(several.table()))
    assert repr(one) == "<idlewise.Runs of menu: 1 logs, 1 machines>"


def test_governors_of_one_name_need_others() -> None:
    def made(limit: int) -> type[Deepest]:
        class Limited(Deepest):
            def select(self, state: idlewise.State) -> tuple[int, bool]:
                return min(super().select(state)[0], limit), True

        return Limited

    low, high = made(0), made(9)
    with pytest.raises(ValueError, match="two are called Limited.*give one of them a class attribute `name`"):
        idlewise.replay(first(), machines="spr", governors=[low, high])
    low.name, high.name = "low", "high"  # type: ignore[attr-defined]
    runs = idlewise.replay(first(), machines="spr", governors=[low, high], lambdas=0)
    frame = pl.DataFrame(runs.table())
    assert frame["governor"].to_list() == ["low", "high"] and frame["cost_uj"][0] > frame["cost_uj"][1]
    assert set(pl.DataFrame(runs.gaps("low"))["chosen_state"].cast(pl.String)) == {"POLL"}


def test_help_says_what_everything_is() -> None:
    for name in idlewise.__all__:
        thing = getattr(idlewise, name)
        assert name == "__version__" or inspect.getdoc(thing), name
        if isinstance(thing, type):
            for member in vars(thing):
                assert member.startswith("_") or inspect.getdoc(getattr(thing, member)), f"{name}.{member}"
    defaults = {name: one.default for name, one in inspect.signature(idlewise.replay).parameters.items()}
    assert defaults["machines"] == () and "hazard" in defaults["governors"] and defaults["lambdas"] == (0, 0.25, 1)


def test_the_compiled_parts_types_have_its_texts() -> None:
    """`_native.pyi` is what editors show, and `help()` shows the compiled module's own texts."""
    (stub,) = [file for file in importlib.metadata.files("idlewise") or [] if file.name == "_native.pyi"]
    module = ast.parse(pathlib.Path(str(stub.locate())).read_text())
    (state,) = [node for node in module.body if isinstance(node, ast.ClassDef) and node.name == "State"]
    assert ast.get_docstring(state) == idlewise.State.__doc__
    members = [node for node in state.body if isinstance(node, ast.FunctionDef)]
    assert len(members) == 8
    for member in members:
        assert ast.get_docstring(member) == getattr(idlewise.State, member.name).__doc__, member.name


def test_what_a_replay_returns_can_be_pickled(tmp_path: pathlib.Path) -> None:
    copy = tmp_path / "copy.parquet"
    copy.write_bytes(pathlib.Path(A_IDLE).read_bytes())
    runs = idlewise.replay([*idlewise.bundled()[:1], idlewise.open(copy)], machines="spr", governors=["teo", Deepest])
    again = pickle.loads(pickle.dumps(runs))
    assert pl.DataFrame(again.table()).equals(pl.DataFrame(runs.table()))
    assert pl.DataFrame(again.gaps("Deepest", log="copy")).equals(pl.DataFrame(runs.gaps("Deepest", log="copy")))
    pickled = pickle.dumps(idlewise.open(copy))
    # The same metadata.
    parquet: Any = importlib.import_module("pyarrow.parquet")
    table = parquet.read_table(copy)
    changed = table.set_column(table.schema.get_field_index("ran_task"), table.schema.field("ran_task"), [[True] * len(table)])
    parquet.write_table(changed, copy, compression="zstd")
    with pytest.raises(idlewise.IdlewiseError, match="copy.parquet: not the log that was pickled; it was replaced"):
        pickle.loads(pickled)
    # A table without rows keeps its columns.
    empty = idlewise.open(A_IDLE).cpus_idle()
    assert pickle.loads(pickle.dumps(empty)).column_names == ["Time", "cpu", "state"]


class Endless(Deepest):
    """Never answers."""

    def select(self, state: idlewise.State) -> tuple[int, bool]:
        while True:
            pass


def test_ctrl_c_ends_a_replay() -> None:
    thread_count = threading.active_count()
    threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        idlewise.replay(first(), machines=["spr"], governors=[Endless])
    # The governor's endless loop has ended too.
    while threading.active_count() > thread_count:
        time.sleep(0.01)


def test_a_governor_that_never_returns_meets_its_time_limit() -> None:
    with pytest.raises(TimeoutError, match=r"the governor did not return within 0.2 s; time_limit_s"):
        idlewise.replay(first(), machines=["spr"], governors=[Endless], time_limit_s=0.2)
    # Another replay is not concerned.
    assert len(idlewise.replay(first(), machines=["spr"], governors=[Deepest], lambdas=[0]).table()) == 1


def test_a_class_that_cannot_be_called_is_an_exception() -> None:
    class NeedsMore(Deepest):
        def __init__(self, wish: int) -> None:
            pass

    with pytest.raises(TypeError, match="wish"):
        idlewise.replay(first(), machines=["spr"], governors=[NeedsMore])  # type: ignore[list-item]


def test_a_damaged_recording_says_its_file_and_offset(tmp_path: pathlib.Path) -> None:
    whole = subprocess.check_output(["xz", "-dc", os.path.join(TRACES, "s-softirq500.perf.data.xz")])
    cut = tmp_path / "cut.perf.data"
    cut.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(idlewise.IdlewiseError, match=r"cut\.perf\.data.*\d"):
        idlewise.open(cut)


def test_other_threads_run_during_a_replay() -> None:
    counted = 0
    is_done = threading.Event()

    def count() -> None:
        nonlocal counted
        while not is_done.is_set():
            counted += 1
            time.sleep(0)

    thread = threading.Thread(target=count)
    thread.start()
    before = counted
    idlewise.replay(idlewise.bundled(), machines=["spr", "milan"])
    after = counted
    is_done.set()
    thread.join()
    assert after > before, sys.version
