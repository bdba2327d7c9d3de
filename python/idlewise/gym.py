"""An environment for learning agents, in the manner of Gymnasium (`pip install idlewise[gym]`).

A step is one decision: which idle state to enter, and whether to stop the tick. An episode is a number of consecutive
gaps of one CPU of a log; where it begins is drawn. The reward is minus the step's cost in millijoules: its energy, and
at the end of a gap the delay of the event at its price. Replays of `idlewise.replay` follow the same rules, so costs
can be compared with theirs.

Observations are 12 numbers from 0 to 1. Times t in ns become log2(1 + t) / 64, and unknown ones 1:

=====  ==============================================================================
0      time to the next timer
1      time to the next timer or tick
2      longest exit latency that is allowed
3      whether the tick is stopped
4-11   the last eight residencies, exit included, the newest first; 0 before them
=====  ==============================================================================

Actions are numbers below twice the number of states: state, or state + number of states to keep the tick running.
"""

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from ._arguments import Path
from ._logs import Log, opened
from ._native import Lanes

_FIELD_COUNT = 5
_RESIDENCY_COUNT = 8
OBSERVATION_COUNT = _FIELD_COUNT - 1 + _RESIDENCY_COUNT
"""How many numbers an observation has."""

_UJ_PER_REWARD = 1000.0


def _scaled(times_ns: NDArray[np.int64]) -> NDArray[np.float32]:
    """Times from 0 to 1."""
    logs = np.log2(1.0 + np.maximum(times_ns, 0)) / 64.0
    scaled: NDArray[np.float32] = np.where(times_ns < 0, 1.0, logs).astype(np.float32)
    return scaled


class IdleVectorEnv(VectorEnv[NDArray[np.float32], NDArray[np.int64], NDArray[Any]]):
    """Many lanes, each a CPU that decides by itself.

    A lane whose episode is over begins another with the next step, whose action is ignored (Gymnasium's
    `AutoresetMode.NEXT_STEP`). `infos` have `gap_oracle_cost_uj`: what the oracle spends in the gap that the step ended, a
    baseline that no action changes. Lanes whose gap goes on have none, and `_gap_oracle_cost_uj` is False there. When an
    episode ends, they have its `cost_uj` and `oracle_cost_uj`.
    """

    def __init__(
        self,
        logs: Log | Path | Sequence[Log | Path],
        *,
        num_envs: int = 16,
        machine: str = "spr",
        lambda_: float = 0.25,
        episode_gap_count: int = 1000,
        hz: int | None = None,
        latency_limit_us: int | None = None,
    ) -> None:
        """Reads the logs' gaps, which stay in memory.

        Args:
            logs: One log or several.
            num_envs: How many lanes.
            machine: An id, or a machine file.
            lambda_: The price of delay, in times the power of polling.
            episode_gap_count: How many gaps an episode has at most.
            hz: The kernel's CONFIG_HZ; by default the recording's.
            latency_limit_us: The longest exit latency allowed, in microseconds.

        Raises:
            IdlewiseError: If a name is unknown, or a log is damaged.
            ValueError: If a number is not positive.
        """
        if num_envs < 1 or episode_gap_count < 1:
            raise ValueError("num_envs and episode_gap_count: 1 or more")
        self._lanes = Lanes(
            [log.handle for log in opened(logs)],
            machine=machine,
            lambda_=lambda_,
            lane_count=num_envs,
            hz=hz,
            latency_limit_us=latency_limit_us,
        )
        self.states = self._lanes.states
        """Name, exit latency in ns and target residency in ns of each state, the shallowest first."""
        self._gap_counts = np.array(self._lanes.gap_counts)
        self._episode_gap_count = episode_gap_count
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        observation, action = gym.spaces.Box(0.0, 1.0, (OBSERVATION_COUNT,), np.float32), gym.spaces.Discrete(2 * len(self.states))
        self.single_observation_space, self.single_action_space = observation, action
        self.observation_space, self.action_space = batch_space(observation, num_envs), batch_space(action, num_envs)
        self._fields = np.zeros((num_envs, _FIELD_COUNT), np.int64)
        self._residencies_ns = np.zeros((num_envs, _RESIDENCY_COUNT), np.int64)
        self._is_over = np.ones(num_envs, bool)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begins an episode in each lane. `seed` draws where; lane i has the random numbers of seed + i."""
        if seed is not None:
            self._randoms = [np.random.default_rng(seed + lane) for lane in range(self.num_envs)]
        elif not hasattr(self, "_randoms"):
            self._randoms = [np.random.default_rng() for _ in range(self.num_envs)]
        for lane in range(self.num_envs):
            self._begin(lane)
        return self._observations(), {}

    def _begin(self, lane: int) -> None:
        random = self._randoms[lane]
        # Each gap is as likely as any other.
        source = int(random.choice(len(self._gap_counts), p=self._gap_counts / self._gap_counts.sum()))
        start = int(random.integers(max(1, self._gap_counts[source] - self._episode_gap_count + 1)))
        self._fields[lane] = self._lanes.reset(lane, source, start, self._episode_gap_count)
        self._residencies_ns[lane] = 0
        self._is_over[lane] = False

    def _observations(self) -> NDArray[np.float32]:
        found = np.empty((self.num_envs, OBSERVATION_COUNT), np.float32)
        found[:, :3] = _scaled(self._fields[:, :3])
        found[:, 3] = self._fields[:, 3]
        found[:, 4:] = _scaled(self._residencies_ns)
        return found

    def step(
        self, actions: NDArray[np.int64]
    ) -> tuple[NDArray[np.float32], NDArray[Any], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Carries out one decision in each lane.

        Raises:
            ValueError: If an action is none of the action space.
        """
        if not hasattr(self, "_randoms"):
            raise gym.error.ResetNeeded("call reset() first")
        actions = np.asarray(actions)
        is_whole = np.issubdtype(actions.dtype, np.integer)
        if not is_whole or actions.shape != (self.num_envs,) or actions.min() < 0 or actions.max() >= 2 * len(self.states):
            raise ValueError(f"actions: {self.num_envs} numbers from 0 to {2 * len(self.states) - 1}")
        begins = self._is_over.copy()
        count = len(self.states)
        states, ticks = (actions % count).astype(np.uint8), (actions < count).astype(np.uint8)
        questions, costs_uj, oracles_uj, over = self._lanes.step(states.tobytes(), ticks.tobytes())
        fields = np.frombuffer(questions, np.int64).reshape(self.num_envs, _FIELD_COUNT)
        rewards = -np.frombuffer(costs_uj, np.float64) / _UJ_PER_REWARD
        self._is_over = np.frombuffer(over, np.uint8).astype(bool) & ~begins
        # The last question of an episode stays, for want of another.
        goes_on = ~begins & ~self._is_over
        self._residencies_ns[goes_on] = np.roll(self._residencies_ns[goes_on], 1, axis=1)
        self._residencies_ns[goes_on, 0] = fields[goes_on, 4]
        self._fields[goes_on] = fields[goes_on]
        gap_oracle_uj = np.frombuffer(oracles_uj, np.float64)
        infos: dict[str, Any] = {"gap_oracle_cost_uj": gap_oracle_uj, "_gap_oracle_cost_uj": ~np.isnan(gap_oracle_uj)}
        if self._is_over.any():
            costs = [self._lanes.costs_uj(lane) if over else (0.0, 0.0) for lane, over in enumerate(self._is_over)]
            infos |= {
                "cost_uj": np.array([own for own, _ in costs]),
                "_cost_uj": self._is_over.copy(),
                "oracle_cost_uj": np.array([oracle for _, oracle in costs]),
                "_oracle_cost_uj": self._is_over.copy(),
            }
        truncated = self._is_over.copy()
        for lane in np.flatnonzero(begins):
            self._begin(int(lane))
        # Nothing about the agent ends an episode; the number of gaps does.
        return self._observations(), rewards, np.zeros(self.num_envs, np.bool_), truncated, infos


class IdleEnv(gym.Env[NDArray[np.float32], np.int64]):
    """One lane, with Gymnasium's plain interface. It takes the arguments of `IdleVectorEnv`, but `num_envs`."""

    metadata = {"render_modes": []}

    def __init__(self, logs: Log | Path | Sequence[Log | Path], **options: Any) -> None:
        self._one = IdleVectorEnv(logs, num_envs=1, **options)
        self.states = self._one.states
        self.observation_space = gym.spaces.Box(0.0, 1.0, (OBSERVATION_COUNT,), np.float32)
        self.action_space = gym.spaces.Discrete(2 * len(self.states))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Begins an episode."""
        super().reset(seed=seed)
        observations, _ = self._one.reset(seed=seed)
        return observations[0], {}

    def step(self, action: np.int64) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Carries out one decision."""
        observations, rewards, _, truncated, infos = self._one.step(np.array([action]))
        info = {name: float(values[0]) for name, values in infos.items() if not name.startswith("_") and infos["_" + name][0]}
        return observations[0], float(rewards[0]), False, bool(truncated[0]), info
