"""The environment: Gymnasium's own checker, and the replay as a judge of its costs."""

import os
import warnings

import gymnasium
import idlewise
import numpy as np
import polars as pl
import pytest
from gymnasium.utils.env_checker import check_env
from idlewise.gym import OBSERVATION_COUNT, IdleEnv, IdleVectorEnv

S_SOFTIRQ = os.path.join(os.path.dirname(__file__), "../../traces/s-softirq500.parquet")


def log() -> idlewise.Log:
    return idlewise.open(S_SOFTIRQ)


def test_gymnasiums_checker_accepts_it() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # It has no registered name, so it has no spec.
        warnings.filterwarnings("ignore", message=".*spec.*")
        check_env(IdleEnv(log(), episode_gap_count=50), skip_render_check=True)


def test_a_seed_repeats_everything() -> None:
    def run(seed: int) -> list[object]:
        lanes = IdleVectorEnv(log(), num_envs=3, episode_gap_count=20)
        actions = np.random.default_rng(1)
        found: list[object] = [lanes.reset(seed=seed)[0].tolist()]
        for _ in range(100):
            stepped = lanes.step(actions.integers(2 * len(lanes.states), size=3))
            found.append([part.tolist() for part in stepped[:4]])
        return found

    assert run(7) == run(7) != run(8)


def test_lanes_are_single_environments_side_by_side() -> None:
    many = IdleVectorEnv(log(), num_envs=3, episode_gap_count=20)
    ones = [IdleEnv(log(), episode_gap_count=20) for _ in range(3)]
    observations, _ = many.reset(seed=5)
    singles = [one.reset(seed=5 + lane)[0] for lane, one in enumerate(ones)]
    assert observations.dtype == np.float32 and observations.shape == (3, OBSERVATION_COUNT)
    assert np.array_equal(observations, np.array(singles))
    actions = np.random.default_rng(2)
    ended = np.zeros(3, bool)
    for _ in range(200):
        chosen = actions.integers(2 * len(many.states), size=3)
        observations, rewards, _, truncated, infos = many.step(chosen)
        for lane, one in enumerate(ones):
            if ended[lane]:
                # The vector begins the next episode with the step after the last.
                assert rewards[lane] == 0 and not truncated[lane]
                single = one.reset()[0]
                ended[lane] = False
            else:
                single, reward, _, ended[lane], info = one.step(chosen[lane])
                assert reward == rewards[lane] and ended[lane] == truncated[lane]
                # What the oracle spends is known when the gap is over, and only then.
                assert ("gap_oracle_cost_uj" in info) == infos["_gap_oracle_cost_uj"][lane]
            assert np.array_equal(single, observations[lane])


class Deepest:
    def select(self, state: idlewise.State) -> int:
        return len(state.target_residencies_ns) - 1

    def reflect(self, residency_ns: int) -> None:
        pass


def test_costs_are_those_of_a_replay() -> None:
    one_cpu = IdleEnv(log(), episode_gap_count=1 << 40, lambda_=1.0)
    row = pl.DataFrame(idlewise.replay(log(), machines=["spr"], governors=[Deepest], lambdas=[1]).table()).row(0, named=True)
    lanes = IdleVectorEnv(log(), num_envs=1, episode_gap_count=1 << 40, lambda_=1.0)
    cost_uj = oracle_cost_uj = 0.0
    # Every CPU of the log once: an episode of all its gaps. Which one is drawn, so ask by number.
    native = lanes._lanes  # pyright: ignore[reportPrivateUsage]
    deepest = bytes([len(lanes.states) - 1])
    for source, gap_count in enumerate(native.gap_counts):
        native.reset(0, source, 0, gap_count)
        while native.step(deepest, b"\1")[3] == b"\0":
            pass
        own, oracle = native.costs_uj(0)
        cost_uj += own
        oracle_cost_uj += oracle
    assert abs(cost_uj / row["cost_uj"] - 1) < 1e-9
    assert abs(oracle_cost_uj / row["oracle_cost_uj"] - 1) < 1e-9
    # Rewards are costs.
    one_cpu.reset(seed=1)
    total = 0.0
    while True:
        _, reward, _, is_over, info = one_cpu.step(np.int64(len(one_cpu.states) - 1))
        total -= reward
        if is_over:
            break
    assert abs(total * 1000 / info["cost_uj"] - 1) < 1e-9 and info["oracle_cost_uj"] <= info["cost_uj"] * (1 + 1e-9)


def test_wrong_actions_and_numbers_are_errors() -> None:
    lanes = IdleVectorEnv(log(), num_envs=2)
    lanes.reset(seed=1)
    for actions in ([0], [0, -1], [0, 2 * len(lanes.states)]):
        with pytest.raises(ValueError, match="actions: 2 numbers from 0 to"):
            lanes.step(np.array(actions))
    with pytest.raises(ValueError, match="num_envs"):
        IdleVectorEnv(log(), num_envs=0)
    with pytest.raises(idlewise.IdlewiseError, match="did you mean 'spr'"):
        IdleVectorEnv(log(), machine="sprr")
    assert isinstance(IdleEnv(log()).action_space, gymnasium.spaces.Discrete)
