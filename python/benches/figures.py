"""The package's speed and memory, as figures; asserts nothing: `make bench-python`.

    IDLEWISE=path/to/idlewise python figures.py

Figures are measured on the machine that runs this, so say what else it did at that time. Those of one thread are per second of
CPU time.
"""

import importlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any, NamedTuple

import idlewise
import numpy as np
import polars as pl
from idlewise.gym import IdleVectorEnv

sys.path.insert(0, str(pathlib.Path(__file__).parent.resolve() / "../tests"))
from bucket import PROGRAM, S3

pa: Any = importlib.import_module("pyarrow")
parquet: Any = importlib.import_module("pyarrow.parquet")
pa.compute = importlib.import_module("pyarrow.compute")
TRACES = pathlib.Path(__file__).parent.resolve() / "../../traces"
ROUND_COUNT = 5
PAIR_COUNT = 3
# Of the largest sweep.
LOG_COUNT = int(os.environ.get("SWEEP_LOGS", "50"))
GAP_COUNT = 10_000_000
# Of a log that is recorded in a minute or so. The bundled ones have 5,000.
LONGER_GAP_COUNT = 100_000


class Constant:
    """The least that a governor can do."""

    def select(self, state: idlewise.State) -> int:
        return 1

    def reflect(self, residency_ns: int) -> None:
        pass


class Timer(Constant):
    """The example of docs/python.md, with a loop over the states."""

    def select(self, state: idlewise.State) -> int:
        sleep_ns, limit_ns = state.sleep_length_ns, state.latency_limit_ns
        latencies_ns, index = state.exit_latencies_ns, 0
        for candidate, residency_ns in enumerate(state.target_residencies_ns):
            if sleep_ns is not None and residency_ns > sleep_ns or latencies_ns[candidate] > limit_ns:
                break
            index = candidate
        return index


def cpu_seconds(work: Any) -> float:
    """CPU time of this process, all threads, so that others' load matters little."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def decisions() -> None:
    logs = idlewise.bundled()
    for governor in (Constant, Timer):
        rates: list[float] = []
        for _ in range(ROUND_COUNT):
            begun = time.process_time()
            runs = idlewise.replay(logs, machines=["spr"], governors=[governor], lambdas=[0])
            spent = time.process_time() - begun
            rates.append(int(pl.DataFrame(runs.table())["decision_count"].sum()) / spent)
        print(f"governor in Python ({governor.__name__}): {statistics.median(rates):,.0f} decisions per CPU second (whole replay)")
    env = IdleVectorEnv(logs, num_envs=1024)
    env.reset(seed=1)
    actions = np.ones(1024, np.int64)
    spent = cpu_seconds(lambda: [env.step(actions) for _ in range(500)])
    print(f"environment, 1024 lanes: {500 * 1024 / spent:,.0f} steps per CPU second")


class Spent(NamedTuple):
    """What a process needed, from its start to its end."""

    wall_s: float
    cpu_s: float
    peak_bytes: int


def spent_by(line: list[str], environment: dict[str, str] | None = None) -> Spent:
    begun = time.monotonic()
    process = subprocess.Popen(
        line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **(environment or {})}
    )
    _, status, used = os.wait4(process.pid, 0)
    wall_s = time.monotonic() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, line
    return Spent(wall_s, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)


REPLAY = """
import idlewise
idlewise.replay(idlewise.bundled(), machines=idlewise.machines(), governors=["menu", "teo"])
"""


def replays(command: str) -> None:
    """Paired runs of the same cells by the command and by the package, alternating, each a whole process."""
    machines = idlewise.machines()
    line = [command, "replay", "--rank", "--json", "--governor", "menu", "--governor", "teo"]
    line += [word for machine in machines for word in ("--machine", machine)]
    theirs: list[float] = []
    ratios: list[float] = []
    for _ in range(ROUND_COUNT):
        theirs.append(spent_by(line).cpu_s)
        ratios.append(spent_by([sys.executable, "-c", REPLAY]).cpu_s / theirs[-1])
    print(
        f"5 bundled logs x {len(machines)} machines x 2 governors x 3 prices: `idlewise replay --rank` takes "
        f"{statistics.median(theirs):.2f} s of CPU time, the package {statistics.median(ratios):.3f} times that "
        f"(median of {ROUND_COUNT} pairs, {min(ratios):.3f} to {max(ratios):.3f})"
    )


GOVERNORS = (
    *("menu", "menu-6.1", "menu-7.2", "menu+min", "menu+safe-range", "teo", "teo-6.1", "ladder"),
    *("timer-only", "deepest", "shallowest", "hazard"),
)


def another_log(name: str, turn: int, path: pathlib.Path) -> int:
    """A bundled log with other bytes and the same gaps, some time later. Returns the number of its gaps."""
    table = parquet.read_table(TRACES / f"{name}.parquet")
    later_ns = turn * 1_000_000_000
    about = json.loads(table.schema.metadata[b"idlewise"])
    for cpu in about["cpus"]:
        for edge in ("first_at_ns", "last_at_ns"):
            cpu[edge] = cpu[edge] and cpu[edge] + later_ns
    schema = table.schema.with_metadata({**table.schema.metadata, b"idlewise": json.dumps(about).encode()})
    column = schema.get_field_index("start_ns")
    moved = pa.compute.add(table["start_ns"], later_ns)
    parquet.write_table(table.set_column(column, schema.field("start_ns"), moved).cast(schema), path, compression="zstd")
    return int(table.num_rows)


def sweeps(command: str) -> None:
    """Cells of a sweep beside the same replays without a store, of one worker and of two, in a folder and in a bucket."""
    names = ("a-idle", "b-redis", "e-hackbench", "h-pingpong", "s-softirq500")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        logs = folder / "logs"
        logs.mkdir()
        paths = [logs / f"{turn}.parquet" for turn in range(LOG_COUNT)]
        gaps = [another_log(names[turn % len(names)], turn, path) for turn, path in enumerate(paths)]
        log_bytes = sum(path.stat().st_size for path in paths)
        manifest = folder / "sweep.toml"

        def write(count: int) -> None:
            listed = ", ".join(f'"{path}"' for path in paths[:count])
            manifest.write_text(f'logs = [{listed}]\nmachines = ["all"]\ngovernors = {json.dumps(GOVERNORS)}\n')

        def sweep(store: str, jobs: int, environment: dict[str, str] | None = None) -> Spent:
            return spent_by([command, "lab", "sweep", "--jobs", str(jobs), "--store", store, str(manifest)], environment)

        few = len(names)
        write(few)
        machines = idlewise.machines()
        arena = [command, "replay", "--rank", "--csv", *map(str, paths[:few])]
        arena += [word for machine in machines for word in ("--machine", machine)]
        arena += [word for governor in GOVERNORS for word in ("--governor", governor)]
        runs: list[tuple[Spent, Spent, Spent]] = []
        for turn in range(PAIR_COUNT):
            # They are removed at the end: file systems are slow to make files where some have just been removed.
            stores = [folder / f"one-{turn}", folder / f"two-{turn}"]
            runs.append((spent_by(arena), sweep(str(stores[0]), 1), sweep(str(stores[1]), 2)))
        overheads = [one.cpu_s / bare.cpu_s for bare, one, _ in runs]
        speedups = [one.wall_s / two.wall_s for _, one, two in runs]
        bare, one, _ = runs[-1]
        cells = sum(1 for _ in (folder / "one-0").rglob("*.parquet"))
        cell_bytes = sum(path.stat().st_size for path in (folder / "one-0").rglob("*.parquet"))
        per_log = cells / few
        lane_ns = 1e9 * one.cpu_s / (per_log * sum(gaps[:few]))
        print(
            f"sweep: {few} logs x {len(machines)} machines x {len(GOVERNORS)} governors x 3 prices = {cells} cells of "
            f"{cell_bytes / cells:,.0f} bytes: {one.cpu_s:.1f} s of CPU time with one worker, {cells / one.cpu_s:,.0f} cells per CPU second, "
            f"{lane_ns:.1f} ns for each gap of a cell, peak memory {one.peak_bytes / 1e6:.0f} MB"
        )
        print(
            f"  the same replays by `idlewise replay --rank`, which keeps nothing: {bare.cpu_s:.1f} s; the sweep takes "
            f"{statistics.median(overheads):.3f} times that (median of {PAIR_COUNT} pairs, {min(overheads):.3f} to {max(overheads):.3f})"
        )
        print(
            f"  two workers are {statistics.median(speedups):.2f} times as fast as one by the clock ({min(speedups):.2f} to "
            f"{max(speedups):.2f}; {os.getloadavg()[0]:.1f} processes ran here)"
        )
        again = sweep(str(folder / "one-0"), 1)
        status = spent_by([command, "lab", "sweep", "status", "--store", str(folder / "one-0"), str(manifest)])
        print(f"  when all is there: sweep {again.cpu_s:.2f} s of CPU time, status {status.cpu_s:.2f} s")
        if PROGRAM is not None:
            (folder / "server").mkdir()
            server = S3(folder / "server")
            try:
                server.make_bucket("figures")
                there = sweep("s3://figures/cells", 1, server.environment)
                again = sweep("s3://figures/cells", 1, server.environment)
            finally:
                server.kill()
            print(
                f"  into a bucket on this machine: {there.cpu_s:.1f} s of CPU time, {there.wall_s:.1f} s by the clock (folder: "
                f"{one.wall_s:.1f} s); {1e6 * (there.cpu_s - one.cpu_s) / cells:.0f} us of CPU time for each cell; when all is there "
                f"{again.cpu_s:.2f} s"
            )
        listed = f'"{long_log(folder, LONGER_GAP_COUNT)}"'
        manifest.write_text(f'logs = [{listed}]\nmachines = ["all"]\ngovernors = {json.dumps(GOVERNORS)}\n')
        arena[3 : 3 + few] = [str(folder / "long.parquet")]
        longer = [(spent_by(arena), sweep(str(folder / f"longer-{turn}"), 1)) for turn in range(PAIR_COUNT)]
        overheads = [one.cpu_s / bare.cpu_s for bare, one in longer]
        print(
            f"  of a log of {LONGER_GAP_COUNT:,} gaps: the sweep takes {statistics.median(overheads):.3f} times the arena's CPU time "
            f"(median of {PAIR_COUNT} pairs, {min(overheads):.3f} to {max(overheads):.3f}; {longer[-1][1].cpu_s:.1f} s)"
        )
        write(LOG_COUNT)
        all_of_them = sweep(str(folder / "all"), 2)
        cells = sum(1 for _ in (folder / "all").rglob("*.parquet"))
        print(
            f"sweep: {LOG_COUNT} logs ({log_bytes / 1e6:.0f} MB, {sum(gaps):,} gaps): {cells} cells, {all_of_them.wall_s:.0f} s by the clock "
            f"with two workers, {cells / all_of_them.cpu_s:,.0f} cells per second and core, peak memory "
            f"{all_of_them.peak_bytes / 1e6:.0f} MB"
        )


def long_log(folder: pathlib.Path, gap_count: int) -> pathlib.Path:
    """A log of at least so many gaps: a bundled one's, again and again."""
    table = parquet.read_table(TRACES / "s-softirq500.parquet")
    cpus: list[Any] = table["cpu"].unique().to_pylist()
    times = -(-gap_count // table.num_rows)
    starts = table["start_ns"].to_numpy()
    span_ns = int(starts.max() - starts.min()) + 1_000_000_000
    path = folder / "long.parquet"
    metadata = {**table.schema.metadata}
    about = json.loads(metadata[b"idlewise"])
    for cpu in about["cpus"]:
        cpu["gap_count"] *= times
        cpu["last_at_ns"] += span_ns * (times - 1)
    metadata[b"idlewise"] = json.dumps(about).encode()
    schema = table.schema.with_metadata(metadata)
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for cpu in sorted(cpus):
            rows = table.filter(pa.compute.equal(table["cpu"], cpu))
            column = rows.schema.get_field_index("start_ns")
            for turn in range(times):
                moved = pa.compute.add(rows["start_ns"], turn * span_ns)
                writer.write_table(rows.set_column(column, schema.field("start_ns"), moved).cast(schema))
    return path


MEMORY = """
import sys, idlewise, polars as pl, pyarrow as pa
def peak(): return next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith("VmHWM")) * 1024
# The libraries' own memory, and threads' stacks.
warm = idlewise.replay(idlewise.bundled()[0], machines=["spr"], governors=["menu"])
pl.DataFrame(warm.gaps("menu"))
before = peak()
log = idlewise.open(sys.argv[1])
runs = idlewise.replay(log, machines=["spr"], governors=["menu"])
table = runs.gaps("menu")
frame = pl.DataFrame(table)
spent = peak() - before
# Afterwards, because polars does not need this library.
print(frame.height, pa.table(table).nbytes, spent)
"""


def memory() -> None:
    with tempfile.TemporaryDirectory() as name:
        path = long_log(pathlib.Path(name), GAP_COUNT)
        words = subprocess.check_output([sys.executable, "-c", MEMORY, path], text=True).split()
        rows, table_bytes, peak_bytes = map(int, words)
        print(
            f"{rows:,} gaps ({path.stat().st_size / 1e6:.0f} MB), replayed and handed to polars: table {table_bytes / 1e6:,.0f} MB, "
            f"peak {peak_bytes / 1e6:,.0f} MB, {peak_bytes / table_bytes:.2f} x"
        )


def main() -> None:
    decisions()
    command = os.environ.get("IDLEWISE")
    if command:
        replays(command)
        sweeps(command)
    memory()


if __name__ == "__main__":
    main()
