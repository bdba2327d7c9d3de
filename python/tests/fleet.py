"""A sweep on Ray while things go wrong: `make test-fleet`.

Two nodes run as processes of this machine, and beside them a server of the S3 protocol with the logs, the manifest and the
cells. While a sweep runs, workers are killed with SIGKILL, the server is killed and started again after some seconds, a node
is added and another is removed with all that runs on it. At the end the bucket has the same bytes as a folder after a run of
the command without faults. Then times are printed; nothing is asserted about them.
"""

import importlib
import json
import os
import pathlib
import random
import signal
import statistics
import sys
import tempfile
import time
from typing import Any

import idlewise
import idlewise.ray
from bucket import S3, cells, files

sys.path.insert(0, str(pathlib.Path(__file__).parent.resolve() / "../benches"))
from figures import long_log

ray: Any = importlib.import_module("ray")
Cluster: Any = importlib.import_module("ray.cluster_utils").Cluster

TRACES = (pathlib.Path(__file__).parent / "../../traces").resolve()
LOGS = ("a-idle", "b-redis", "h-pingpong", "s-softirq500")
MANIFEST = 'logs = [{logs}]\nmachines = ["all"]\ngovernors = ["menu", "teo"]\n'
# Of the sweep's progress: what happens at which of these steps.
STEPS = ("kill", "add", "kill", "server", "remove", "kill")
MEMORY = 100 << 20
# Logs whose parts take seconds.
LONGER_LOG_COUNT, LONGER_GAP_COUNT = 12, 200_000
# How long the server is away: longer than the first retries.
AWAY_S = 5


def workers(root: int) -> list[int]:
    """Ray's workers below a process that run a part of the sweep."""
    parents: dict[int, int] = {}
    parts: list[int] = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            stat = pathlib.Path("/proc", name, "stat").read_text()
            line = pathlib.Path("/proc", name, "cmdline").read_bytes()
        except OSError:
            continue
        parents[int(name)] = int(stat.rpartition(")")[2].split()[1])
        if line.startswith(b"ray::_part"):
            parts.append(int(name))

    def is_ours(process: int) -> bool:
        while process > 1:
            if process == root:
                return True
            process = parents.get(process, 0)
        return False

    return [process for process in parts if is_ours(process)]


def main() -> None:
    chance = random.Random(1)
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
        local = folder / "sweep.toml"
        local.write_text(MANIFEST.format(logs=", ".join(json.dumps(f"{TRACES}/{log}.parquet") for log in LOGS)))

        begun = time.monotonic()
        plain = idlewise.sweep(local, store=folder / "plain", jobs=2)
        plain_s = time.monotonic() - begun
        assert plain["failed_count"] == 0
        expected = files(folder / "plain")

        node = {"num_cpus": 1, "object_store_memory": MEMORY}
        cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
        other = cluster.add_node(**node)
        ray.init(address=cluster.address, log_to_driver=False)
        try:
            # A sweep that the command has begun, in the same bucket.
            begun_here = idlewise.sweep(local, store="s3://fleet/calm", shard="1/8")
            begun = time.monotonic()
            calm = idlewise.ray.sweep(remote, storage="s3://fleet/calm")
            calm_s = time.monotonic() - begun
            assert calm["present_count"] == begun_here["computed_count"] > 0, calm
            assert calm["computed_count"] == plain["computed_count"] - begun_here["computed_count"], calm
            assert cells(server.objects("fleet/calm")) == expected
            # Folders that all nodes see do as well as buckets.
            shared = idlewise.ray.sweep(local, storage=folder / "shared", part_count=4)
            assert shared["computed_count"] == plain["computed_count"]
            assert files(folder / "shared") == expected

            # What Ray costs when parts take seconds, in turns.
            longer = folder / "longer.toml"
            paths: list[pathlib.Path] = []
            for turn in range(LONGER_LOG_COUNT):
                (folder / f"log-{turn}").mkdir()
                paths.append(long_log(folder / f"log-{turn}", LONGER_GAP_COUNT + 10_000 * turn))
            listed = ", ".join(json.dumps(str(path)) for path in paths)
            longer.write_text(f'logs = [{listed}]\nmachines = ["spr", "icx", "milan", "genoa"]\ngovernors = ["menu", "teo"]\n')
            ratios: list[float] = []
            part_s = 0.0
            for turn in range(3):
                begun = time.monotonic()
                idlewise.sweep(longer, store=folder / f"here-{turn}", jobs=2)
                here_s = time.monotonic() - begun
                begun = time.monotonic()
                idlewise.ray.sweep(longer, storage=folder / f"there-{turn}")
                ratios.append((time.monotonic() - begun) / here_s)
                part_s = 2 * here_s / LONGER_LOG_COUNT
            assert files(folder / "here-0") == files(folder / "there-0")

            # Each is done at another point of the sweep.
            unit_count = calm["unit_count"]
            steps = sorted(chance.sample(range(1, unit_count - 2), len(STEPS)))
            killed: list[int] = []

            def disturb(done: int, count: int) -> None:
                nonlocal other
                print(f"  {done} of {count} parts", flush=True)
                match STEPS[steps.index(done)] if done in steps else None:
                    case "add":
                        print("  a node is added", flush=True)
                        cluster.add_node(**node)
                    case "remove":
                        print("  a node is removed", flush=True)
                        cluster.remove_node(other, allow_graceful=False)
                    case "server":
                        print(f"  SIGKILL to the server, which is away for {AWAY_S} s", flush=True)
                        server.kill()
                        time.sleep(AWAY_S)
                        server.start()
                    case "kill":
                        deadline = time.monotonic() + 60
                        while not (found := workers(os.getpid())) and time.monotonic() < deadline:
                            time.sleep(0.01)
                        for victim in found:
                            print(f"  SIGKILL to worker {victim}", flush=True)
                            os.kill(victim, signal.SIGKILL)
                        killed.extend(found)
                    case _:
                        pass

            found = idlewise.ray.sweep(remote, storage="s3://fleet/faults", on_progress=disturb)
            assert killed, "no worker was there to be killed"
            assert found["failed_count"] == 0 and found["cell_count"] == plain["cell_count"]
            # No cell is missing or half-written, and none is left behind.
            assert cells(server.objects("fleet/faults")) == expected
            # And the command goes on where Ray stopped.
            assert idlewise.sweep(remote, store="s3://fleet/faults")["computed_count"] == 0
        finally:
            ray.shutdown()
            cluster.shutdown()
            server.kill()
        print(
            f"{plain['cell_count']} cells in {unit_count} parts: the same bytes in the bucket after {len(killed)} killed workers, "
            f"a server that was killed and away for {AWAY_S} s, a node added and one removed.\n"
            f"Measured here: {plain_s:.1f} s by the command with two workers and a folder, {calm_s:.1f} s by Ray with two nodes of "
            f"one CPU and a bucket (7 of 8 parts). Parts of {part_s:.1f} s, from a folder into a folder: Ray takes "
            f"{statistics.median(ratios):.2f} times the command's time (median of {len(ratios)} pairs, {min(ratios):.2f} to "
            f"{max(ratios):.2f})."
        )


if __name__ == "__main__":
    main()
