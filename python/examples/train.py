"""Trains a small agent in the environment, and replays it as a governor beside those of Linux and ours.

    pip install idlewise[gym] polars
    python python/examples/train.py                 # some seconds
    python python/examples/train.py --decisions 40000000 --learn mine/*.parquet --judge theirs/*.parquet

The agent is a table: for each pair of (time to the next timer, median of the last eight residencies), both in powers of
two, it keeps how much more than the oracle each state has cost there on average, and enters the cheapest. It is judged on
logs that it never saw.
"""

import argparse
import math
import pathlib
import statistics
from collections import deque

import idlewise
import numpy as np
import polars as pl
from idlewise.gym import IdleVectorEnv
from numpy.typing import NDArray

MACHINE = "spr"
LAMBDA = 0.25
RIVALS = ["menu", "teo", "hazard", "timer-only"]
RECORDINGS = pathlib.Path(__file__).parent / "../../recordings"
RESIDENCY_COUNT = 8
# Powers of two of nanoseconds: 1 us to 134 ms, and beyond.
LOWEST, BUCKET_COUNT = 10, 18
LANE_COUNT = 256
EXPLORED = 0.2
# How often each state must have been tried for its mean to count.
ENOUGH = 20


def train(logs: list[idlewise.Log], decision_count: int, seed: int) -> NDArray[np.int64]:
    """Returns a table of states."""
    random = np.random.default_rng(seed)
    env = IdleVectorEnv(logs, num_envs=LANE_COUNT, machine=MACHINE, lambda_=LAMBDA, episode_gap_count=500)
    state_count = len(env.states)
    excess = np.zeros((BUCKET_COUNT, BUCKET_COUNT, state_count))
    counts = np.zeros((BUCKET_COUNT, BUCKET_COUNT, state_count))
    observations, _ = env.reset(seed=seed)
    lanes = np.arange(LANE_COUNT)
    where = np.zeros((2, LANE_COUNT), np.int64)
    actions = np.zeros(LANE_COUNT, np.int64)
    spent_uj = np.zeros(LANE_COUNT)
    is_new = np.ones(LANE_COUNT, bool)
    for _ in range(decision_count // LANE_COUNT):
        # A state is selected at a gap's beginning, and kept until the gap is over.
        median = np.median(observations[:, 4 : 4 + RESIDENCY_COUNT], axis=1)
        buckets = np.stack([observations[:, 0], median]) * 64
        buckets = np.clip(buckets.astype(np.int64) - LOWEST, 0, BUCKET_COUNT - 1)
        where = np.where(is_new, buckets, where)
        # What was never tried is tried first.
        best = np.where(counts[where[0], where[1]] > 0, excess[where[0], where[1]], -np.inf).argmin(axis=1)
        tried = np.where(random.random(LANE_COUNT) < EXPLORED, random.integers(state_count, size=LANE_COUNT), best)
        actions = np.where(is_new, tried, actions)
        observations, rewards, _, truncated, infos = env.step(actions)
        spent_uj -= rewards * 1000
        oracle_uj = infos["gap_oracle_cost_uj"]
        is_over = infos["_gap_oracle_cost_uj"]
        done = lanes[is_over]
        place = where[0, done], where[1, done], actions[done]
        np.add.at(counts, place, 1)
        # A mean over all that was seen.
        np.add.at(excess, place, (spent_uj[done] - oracle_uj[done] - excess[place]) / counts[place])
        # An episode's end comes with a gap's; the step after it begins the next.
        is_new = is_over | truncated
        spent_uj[is_over] = 0
    # Where too little was tried, what was learned at that median with any timer; otherwise at any.
    sums = excess * counts
    by_median: NDArray[np.float64] = sums.sum(axis=0) / np.maximum(counts.sum(axis=0), 1)
    by_median = np.where(counts.sum(axis=(0, 2))[:, None] > 0, by_median, sums.sum(axis=(0, 1)) / counts.sum())
    is_known = counts.min(axis=2, keepdims=True) >= ENOUGH
    table: NDArray[np.int64] = np.where(is_known, excess, by_median[None]).argmin(axis=2)
    return table


def governor(table: NDArray[np.int64]) -> type:
    """Returns a governor that does what the table says."""
    states: list[list[int]] = table.tolist()

    def bucket(time_ns: int) -> float:
        return math.log2(1 + time_ns)

    class Learned:
        def __init__(self) -> None:
            self.residencies = deque([0.0] * RESIDENCY_COUNT, RESIDENCY_COUNT)

        def select(self, state: idlewise.State) -> int:
            sleep_ns = state.sleep_length_ns
            sleep = 64.0 if sleep_ns is None else bucket(sleep_ns)
            places = [int(power) - LOWEST for power in (sleep, statistics.median(self.residencies))]
            row, column = (min(max(place, 0), BUCKET_COUNT - 1) for place in places)
            index = states[row][column]
            while index > 0 and (state.exit_latencies_ns[index] > state.latency_limit_ns or state.is_disabled(index)):
                index -= 1
            return index

        def reflect(self, residency_ns: int) -> None:
            self.residencies.append(bucket(residency_ns))

    return Learned


def judged(learn: list[pathlib.Path], judge: list[pathlib.Path], decision_count: int, seed: int = 1) -> pl.DataFrame:
    """A row for each log that it is judged on: how much more than the oracle each governor costs there."""
    learned = governor(train([idlewise.open(path) for path in learn], decision_count, seed))
    rows: list[dict[str, object]] = []
    for path in judge:
        runs = idlewise.replay(path, machines=MACHINE, governors=[learned, *RIVALS], lambdas=LAMBDA)
        frame = pl.DataFrame(runs.table())
        rows.append({"log": frame["log"][0], **dict(zip(frame["governor"], frame["regret_ratio"], strict=True))})
    return pl.DataFrame(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--decisions", type=int, default=4_000_000, help="how many to learn from")
    for name, folder in [("learn", "made-with"), ("judge", "kept-apart")]:
        logs = sorted((RECORDINGS / folder).glob("*.parquet"))
        parser.add_argument(f"--{name}", type=pathlib.Path, nargs="+", default=logs, help=f"logs; default: recordings/{folder}")
    options = parser.parse_args()
    if not options.learn or not options.judge:
        parser.error("there are no logs: name some with --learn and --judge")
    found = judged(options.learn, options.judge, options.decisions)
    print(f"Regret against the oracle on logs that the agent never saw ({MACHINE}, λ = {LAMBDA}, simulated):")
    mean = found.select(pl.lit("mean").alias("log"), pl.exclude("log").mean())
    with pl.Config(tbl_hide_dataframe_shape=True, tbl_hide_column_data_types=True, tbl_rows=-1):
        print(pl.concat([found, mean]).with_columns(pl.exclude("log").round(3)))
    for rival in RIVALS:
        print(f"better than {rival} on {(found['Learned'] < found[rival]).sum()} of {found.height}")


if __name__ == "__main__":
    main()
