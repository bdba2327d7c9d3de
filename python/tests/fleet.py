"""A sweep placed by Ray and by Spark while things go wrong: `make test-fleet`.

Ray's two nodes run as processes of this machine, Spark in its local mode. Beside them is a server of the S3 protocol with the
logs, the manifest, the table of logs and cells. While they work, their workers are killed with SIGKILL, the server is killed
and started again after some seconds, a node is added and another is removed with all that runs on it. At the end there are
the cells that the command computes without faults. Then times are printed; nothing is asserted about them.
"""

import functools
import importlib
import json
import os
import pathlib
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import idlewise
from bucket import S3, collected

sys.path.insert(0, str(pathlib.Path(__file__).parent.resolve() / "../benches"))
from figures import long_log

pa: Any = importlib.import_module("pyarrow")
parquet: Any = importlib.import_module("pyarrow.parquet")
ray: Any = importlib.import_module("ray")
Cluster: Any = importlib.import_module("ray.cluster_utils").Cluster

TRACES = (pathlib.Path(__file__).parent / "../../traces").resolve()
LOGS = ("a-idle", "b-redis", "h-pingpong", "s-softirq500")
MANIFEST = 'logs = [{logs}]\nmachines = ["all"]\ngovernors = ["menu", "teo"]\n'
MEMORY = 100 << 20
# Logs whose batches take several seconds: starting Python for a batch takes a third of one.
LONGER_LOG_COUNT, LONGER_GAP_COUNT = 8, 4_000_000
# How long the server is away: longer than the first retries.
AWAY_S = 5
KILL_COUNT = 3


def ours(word: bytes) -> list[int]:
    """Processes below this one with a word in their command line."""
    parents: dict[int, int] = {}
    found: list[int] = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            stat = pathlib.Path("/proc", name, "stat").read_text()
            line = pathlib.Path("/proc", name, "cmdline").read_bytes()
        except OSError:
            continue
        parents[int(name)] = int(stat.rpartition(")")[2].split()[1])
        if word in line:
            found.append(int(name))

    def is_ours(process: int) -> bool:
        while process > 1:
            if process == os.getpid():
                return True
            process = parents.get(process, 0)
        return False

    return [process for process in found if is_ours(process)]


class Killer(threading.Thread):
    """Kills some of the workers that are at work, one after the other."""

    def __init__(self, word: bytes) -> None:
        super().__init__(daemon=True)
        self.word, self.killed, self.is_over = word, 0, False

    def run(self) -> None:
        while not self.is_over and self.killed < KILL_COUNT:
            # Those that have begun a batch.
            if ours(b"\0lab\0sweep\0") and (workers := ours(self.word)):
                os.kill(workers[0], signal.SIGKILL)
                self.killed += 1
                print(f"  SIGKILL to worker {workers[0]}", flush=True)
                time.sleep(2)
            time.sleep(0.02)

    def __enter__(self) -> "Killer":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.is_over = True
        self.join()
        assert self.killed, "no worker was there to be killed"


def timed(work: Callable[[], object]) -> float:
    begun = time.monotonic()
    work()
    return time.monotonic() - begun


def rows(cells: Any) -> list[dict[str, Any]]:
    """Cells in order, each once."""
    found = {row["cell"]: row for row in cells.to_pylist()}
    return [found[cell] for cell in sorted(found)]


def kept(folder: pathlib.Path) -> list[dict[str, Any]]:
    """The cells of a store."""
    types = {pa.uint64(): pa.int64()}

    def part(path: pathlib.Path) -> Any:
        found = parquet.ParquetFile(path).read()
        return found.cast(pa.schema([pa.field(field.name, types.get(field.type, field.type)) for field in found.schema]))

    return rows(pa.concat_tables([part(path) for path in sorted(folder.glob("*/*.parquet"))]))


def by_ray_data(table: pathlib.Path, manifest: str, batch_size: int) -> Any:
    """As docs/sweep.md has it."""
    logs = ray.data.from_arrow(parquet.read_table(table)).repartition(-(-parquet.read_metadata(table).num_rows // batch_size))
    batches = logs.map_batches(functools.partial(idlewise.replay_batch, manifest=manifest), batch_format="pyarrow", batch_size=batch_size)
    return pa.concat_tables([part for part in ray.get(batches.to_arrow_refs()) if part.num_rows])


def by_spark(spark: Any, table: pathlib.Path, manifest: str, part_count: int) -> Any:
    """As docs/sweep.md has it."""
    from_arrow: Any = importlib.import_module("pyspark.sql.pandas.types").from_arrow_schema
    schema = from_arrow(idlewise.cell_schema())

    def part(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield from idlewise.replay_batch(batch, manifest).to_batches()

    logs = spark.read.parquet(str(table)).select("log", "url", "log_sha256").repartition(part_count)
    return logs.mapInArrow(part, schema).toArrow()


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "server").mkdir()
        server = S3(folder / "server")
        # Nodes have the environment that they are started in.
        os.environ.update(server.environment)
        server.make_bucket("fleet")
        for log in LOGS:
            server.put(f"fleet/logs/{log}.parquet", (TRACES / f"{log}.parquet").read_bytes())
        remote = "s3://fleet/sweep.toml"
        server.put("fleet/sweep.toml", MANIFEST.format(logs='"logs/"').encode())
        idlewise.command("lab", "sweep", "plan", remote, "-o", "s3://fleet/logs.parquet")
        local = folder / "sweep.toml"
        local.write_text(MANIFEST.format(logs=", ".join(json.dumps(f"{TRACES}/{log}.parquet") for log in LOGS)))
        plain_s = timed(lambda: idlewise.sweep(local, store=folder / "plain", jobs=2))
        expected = collected(local, folder / "plain")
        cell_count = idlewise.sweep(local, store=folder / "plain")["present_count"]

        longer = folder / "longer.toml"
        paths: list[pathlib.Path] = []
        for turn in range(LONGER_LOG_COUNT):
            (folder / f"log-{turn}").mkdir()
            paths.append(long_log(folder / f"log-{turn}", LONGER_GAP_COUNT + 10_000 * turn))
        listed = ", ".join(json.dumps(str(path)) for path in paths)
        sweep = 'machines = ["spr", "icx", "milan", "genoa"]\ngovernors = ["menu", "teo"]\n'
        longer.write_text(f"logs = [{listed}]\n{sweep}")
        table = folder / "longer.parquet"
        idlewise.command("lab", "sweep", "plan", longer, "-o", table)
        idlewise.cell_schema()

        node = {"num_cpus": 1, "object_store_memory": MEMORY}
        cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
        other = cluster.add_node(**node)
        ray.init(address=cluster.address, log_to_driver=False)
        ratios: dict[str, list[float]] = {"Ray Data": [], "Spark": []}
        try:
            # What engines cost when batches take seconds, in turns. In-process first calls are not counted.
            by_ray_data(table, sweep, 1)
            for turn in range(3):
                store = folder / f"here-{turn}"
                here_s = timed(lambda store=store: idlewise.sweep(longer, store=store, logs=table, jobs=2))  # type: ignore[misc]
                there = by_ray_data(table, sweep, 1)
                ratios["Ray Data"].append(timed(lambda: by_ray_data(table, sweep, 1)) / here_s)
                assert rows(there) == kept(store)
            with Killer(b"ray::MapBatches") as killer:
                assert rows(by_ray_data(table, sweep, 1)) == kept(folder / "here-0")
            print(f"Ray Data: the same cells after {killer.killed} killed workers", flush=True)

            # Parts into a bucket, as tasks. Each is tried again when its worker dies.
            def part(index: int) -> dict[str, Any]:
                return idlewise.sweep(remote, store="s3://fleet/faults", logs="s3://fleet/logs.parquet", shard=f"{index}/40", jobs=1)

            task: Any = ray.remote(num_cpus=1, max_retries=3)(part)

            with Killer(b"ray::part") as killer:
                running = [task.remote(index) for index in range(1, 41)]
                done_count = 0
                while running:
                    done, running = ray.wait(running, num_returns=1)
                    ray.get(done)
                    done_count += 1
                    if done_count == 8:
                        print("  a node is added", flush=True)
                        cluster.add_node(**node)
                    if done_count == 16:
                        print(f"  SIGKILL to the server, which is away for {AWAY_S} s", flush=True)
                        server.kill()
                        time.sleep(AWAY_S)
                        server.start()
                    if done_count == 24:
                        print("  a node is removed", flush=True)
                        cluster.remove_node(other, allow_graceful=False)
            assert collected(local, "s3://fleet/faults") == expected
            print(f"Ray's tasks, a bucket: the same {cell_count} cells after {killer.killed} killed workers", flush=True)
        finally:
            ray.shutdown()
            cluster.shutdown()
            server.kill()

        # Spark's workers fork from a daemon, of the Python that it is told.
        os.environ["PYSPARK_PYTHON"] = sys.executable
        sql: Any = importlib.import_module("pyspark.sql")
        builder = sql.SparkSession.builder.master("local[2,8]").config("spark.ui.enabled", "false")
        spark = builder.config("spark.driver.memory", "1g").config("spark.sql.shuffle.partitions", "4").getOrCreate()
        try:
            by_spark(spark, table, sweep, LONGER_LOG_COUNT)
            for turn in range(3):
                store = folder / f"here-s{turn}"
                here_s = timed(lambda store=store: idlewise.sweep(longer, store=store, logs=table, jobs=2))  # type: ignore[misc]
                ratios["Spark"].append(timed(lambda: by_spark(spark, table, sweep, LONGER_LOG_COUNT)) / here_s)
            with Killer(b"pyspark.daemon") as killer:
                assert rows(by_spark(spark, table, sweep, LONGER_LOG_COUNT)) == kept(folder / "here-0")
            print(f"Spark: the same cells after {killer.killed} killed workers", flush=True)
        finally:
            spark.stop()
        print(f"Measured here: {plain_s:.1f} s for {cell_count} cells by the command with two workers.")
        for engine, of_engine in ratios.items():
            middle = statistics.median(of_engine)
            print(f"{engine}: {middle:.2f} times the command's time, batches of one log ({min(of_engine):.2f} to {max(of_engine):.2f}).")


if __name__ == "__main__":
    main()
