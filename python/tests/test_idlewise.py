"""The package as a user has it: installed, with polars and pyarrow beside it."""

import ast
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

import idlewise
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
    with pytest.raises(TypeError, match="logs: 3 is no log and no path"):
        idlewise.replay([first(), 3])  # type: ignore[list-item]
    with pytest.raises(ValueError, match=r"logs: none are given; open some with idlewise.open\(path\)"):
        idlewise.replay([])
    with pytest.raises(ValueError, match="governors: none are given"):
        idlewise.replay(first(), governors=[])
    with pytest.raises(ValueError, match="two are called menu, and nobody could tell them apart; leave one out"):
        idlewise.replay(first(), governors=["menu", "menu"])


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
    copy.write_bytes((pathlib.Path(TRACES) / "b-redis.parquet").read_bytes())
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
