"""What the command does, from Python."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys

import idlewise
import pytest

HERE = pathlib.Path(__file__).parent
A_IDLE = HERE / "../../traces/a-idle.parquet"


def test_each_function_returns_the_commands_json() -> None:
    log = idlewise.open(A_IDLE)
    assert idlewise.info(log)["schema"] >= 1
    assert idlewise.machine("spr")["schema"] >= 1
    differences = idlewise.diff(log, "menu", "teo", machine="spr")
    assert differences["schema"] >= 1
    assert idlewise.oracle(log, machine="spr")["schema"] >= 1
    assert idlewise.arena(log, machine=["spr", "milan"], governor=["menu", "teo"])["schema"] >= 1
    simulated = idlewise.simulate("spr", "periodic", duration_ms=20, governor="menu", seed=3)
    assert simulated["seed"] == 3 and simulated["runs"]
    recording = HERE / "../../recordings/causes/made-with/pool.parquet"
    predicted = idlewise.predict(recording, governor=["menu", "teo"], machine="spr", replicates=1)
    assert len(predicted["runs"]) == 3


def test_logs_that_the_command_cannot_open() -> None:
    with pytest.raises(ValueError, match="logs: an empty list"):
        idlewise.diff([])
    with pytest.raises(ValueError, match="logs: a-idle is built in and has no file"):
        idlewise.info(idlewise.bundled()[0])
    with pytest.raises(TypeError, match="logs: expected a path, not 3"):
        idlewise.oracle([3])  # type: ignore[list-item]


def test_figures_are_those_of_the_command_line() -> None:
    command = os.environ.get("IDLEWISE")
    if command is None:
        pytest.skip("the command's JSON: set IDLEWISE to the binary")
    line = [command, "replay", "--compare", str(A_IDLE), "--governor", "menu", "--governor", "teo", "--machine", "spr", "--json"]
    assert json.loads(subprocess.check_output(line)) == idlewise.diff(A_IDLE, "menu", "teo", machine="spr")


def test_files_are_written(tmp_path: pathlib.Path) -> None:
    page = idlewise.report(tmp_path / "page.html", A_IDLE)
    assert "<html" in pathlib.Path(page).read_text()
    recording = HERE / "../../traces/s-softirq500.perf.data.xz"
    found = idlewise.import_recording(recording, tmp_path / "log.parquet")
    assert found["schema"] >= 1
    assert idlewise.open(tmp_path / "log.parquet").gap_count == idlewise.open(recording).gap_count


def test_errors_are_what_the_command_says() -> None:
    with pytest.raises(idlewise.IdlewiseError, match="no governor 'meun'; did you mean 'menu'"):
        idlewise.diff(A_IDLE, "meun", "teo")
    with pytest.raises(idlewise.IdlewiseError, match="--durationms"):
        idlewise.simulate("spr", "periodic", durationms=1)
    with pytest.raises(idlewise.IdlewiseError, match=r"none\.parquet"):
        idlewise.info("none.parquet")
    # A file's name is never an option.
    with pytest.raises(idlewise.IdlewiseError, match="cannot read --help"):
        idlewise.info("--help")


def test_a_governors_c_file_runs_in_a_process_of_its_own() -> None:
    if subprocess.run(["cc", "--version"], capture_output=True, check=False).returncode:
        pytest.skip("a governor's C file: needs a C compiler (apt-get install gcc)")
    source = HERE / "../../crates/idlewise-plugin/examples/break_even.c"
    differences = idlewise.diff(A_IDLE, "menu", os.fspath(source), machine="spr")
    assert "break_even.c" in json.dumps(differences)


def test_the_command_is_installed_with_the_package() -> None:
    ran = subprocess.run([sys.executable, "-m", "idlewise"], capture_output=True, text=True, check=False)
    assert ran.returncode == 2 and "To begin" in ran.stdout
    command = pathlib.Path(sys.executable).with_name("idlewise")
    version = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert version.stdout.startswith("idlewise ")
    refused = subprocess.run([command, "set", "quiet", "--", "true"], capture_output=True, text=True, check=False)
    assert refused.returncode == 2 and "the Python package does not have this command" in refused.stderr


def open_files(pid: int) -> list[str]:
    """What a process has open at the moment."""
    folder, found = f"/proc/{pid}/fd", list[str]()
    for name in os.listdir(folder):
        # It may be closed before we look.
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(os.path.join(folder, name)))
    return found


def test_ctrl_c_ends_a_command_and_leaves_no_file(tmp_path: pathlib.Path) -> None:
    output = tmp_path / "long.parquet"
    line = [sys.executable, "-m", "idlewise", "lab", "simulate", "spr", "poisson", "--governor", "menu"]
    line += ["--duration-ms", "100000000", "--trace", str(output)]
    process = subprocess.Popen(line, cwd=tmp_path)
    # It makes its files first. Python itself reads the folder when it starts.
    while not any(f"{tmp_path}/" in path for path in open_files(process.pid)):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait() == -signal.SIGINT
    assert not list(tmp_path.iterdir())


def test_a_simulation_takes_a_log() -> None:
    log = idlewise.open(A_IDLE)
    assert idlewise.simulate("spr", log, duration_ms=20)["runs"] == idlewise.simulate("spr", A_IDLE, duration_ms=20)["runs"]


def test_a_wrong_option_is_one_line() -> None:
    with pytest.raises(idlewise.IdlewiseError) as caught:
        idlewise.diff(idlewise.open(A_IDLE), bogus=1)
    assert str(caught.value) == "unexpected argument '--bogus' found"
    with pytest.raises(TypeError, match="log: expected a path, not None"):
        idlewise.info(None)  # type: ignore[arg-type]


def test_an_interrupt_leaves_no_zombie() -> None:
    script = """
import os, signal, threading, time, idlewise
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    idlewise.command("record", "--help") and [idlewise.command("lab", "simulate", "spr", "periodic", "--duration-ms", "100000")]
except KeyboardInterrupt:
    pass
stat = [open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split() for pid in os.listdir("/proc") if pid.isdigit() and os.path.exists(f"/proc/{pid}/stat")]
print([fields[0] for fields in stat if int(fields[1]) == os.getpid()])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n", done
