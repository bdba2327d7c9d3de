"""The example trains an agent that learns something."""

import importlib.util
import pathlib

import idlewise
import polars as pl

spec = importlib.util.spec_from_file_location("train", pathlib.Path(__file__).parent / "../examples/train.py")
assert spec is not None and spec.loader is not None
train = importlib.util.module_from_spec(spec)
spec.loader.exec_module(train)


def test_the_agent_learns_and_a_seed_repeats_it() -> None:
    logs = [log for log in idlewise.bundled() if log.name == "s-softirq500"]
    table = train.train(logs, 50_000, 1)
    assert (table == train.train(logs, 50_000, 1)).all()
    governors = [train.governor(table), "shallowest", "deepest"]
    runs = idlewise.replay(logs, machines=[train.MACHINE], governors=governors, lambdas=[train.LAMBDA])
    learned, shallowest, deepest = pl.DataFrame(runs.table())["regret_ratio"].to_list()
    assert learned < min(shallowest, deepest) / 2
