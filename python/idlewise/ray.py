"""Sweeps on a Ray cluster (`pip install idlewise[ray]`).

A thin layer: each of Ray's tasks computes parts of a manifest with `idlewise lab sweep --shard`, and puts results where all
nodes see them: into a bucket or a shared folder. Manifest and cells are the command's, so a sweep can begin on a laptop, move
to a cluster and be collected anywhere. Nothing but counts goes through the driver.
"""

import importlib
import json
import os
from collections.abc import Callable
from os import PathLike
from typing import Any

from ._command import command
from ._command import sweep as _sweep_here
from ._native import IdlewiseError

# It is not needed for anything else, and not installed everywhere that checks types.
try:
    ray: Any = importlib.import_module("ray")
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"{error}: pip install idlewise[ray]") from None

_RETRY_COUNT = 3


def _part(manifest: str, storage: str, index: int, count: int) -> dict[str, Any]:
    done = _sweep_here(manifest, store=storage, shard=f"{index}/{count}", jobs=1)
    return {name: done[name] for name in ("code", "cell_count", "present_count", "computed_count", "failures")}


def sweep(
    manifest: str | PathLike[str],
    *,
    storage: str | PathLike[str],
    part_count: int | None = None,
    in_flight_count: int | None = None,
    on_progress: Callable[[int, int], object] | None = None,
) -> dict[str, Any]:
    """Computes what is missing of a sweep, on the cluster that this process is connected to (`ray.init`).

    A worker that dies is replaced: its part is computed again, at most three times, and what it had finished is there.
    After ctrl-c, tasks are cancelled and what was finished is kept; the same call goes on.

    Args:
        manifest: The manifest, a path or a URL. Every node sees it, and the logs that it names, under this name.
        storage: Where cells are kept: a bucket (`s3://bucket/folder`, `gs://`, `az://`), or a folder which every node sees
            under this path. Credentials for a bucket come from the environment of each node, not from this process.
        part_count: Into how many parts the sweep is divided; by default as many as possible. A unit, up to 256 cells of a
            log, is the smallest part.
        in_flight_count: How many parts Ray knows at once; by default two for each CPU of the cluster.
        on_progress: Called with the numbers of parts done and of all parts.

    Returns:
        The document of `idlewise lab sweep --json` (docs/schemas/sweep.json) for the whole sweep.

    Raises:
        IdlewiseError: If the manifest is wrong, if a part failed as a whole, such as on a full disk, or if nodes have
            different versions of idlewise.
    """
    manifest, storage = _named(manifest), _named(storage)
    found = _status(manifest, storage)
    count = max(1, min(part_count or found["unit_count"], found["unit_count"]))
    cpus = ray.cluster_resources().get("CPU", 1.0)
    allowed = in_flight_count or max(2, int(2 * cpus))
    # Errors of a part itself are not retried; the death of its worker is.
    run: Any = ray.remote(num_cpus=1, max_retries=_RETRY_COUNT)(_part)
    waiting = iter(range(1, count + 1))
    running: list[Any] = []
    results: list[dict[str, Any]] = []
    try:
        while True:
            while len(running) < allowed and (index := next(waiting, None)) is not None:
                running.append(run.remote(manifest, storage, index, count))
            if not running:
                break
            done, running = ray.wait(running, num_returns=1)
            results += ray.get(done)
            if on_progress is not None:
                on_progress(len(results), count)
    except ray.exceptions.RayTaskError as error:
        raise IdlewiseError(str(error.cause)) from error
    except ray.exceptions.RayError as error:
        raise IdlewiseError(f"a part of the sweep was lost {_RETRY_COUNT + 1} times: {error}; run it again") from error
    finally:
        for one in running:
            ray.cancel(one, force=True)
    codes = {result["code"] for result in results}
    if codes != {found["code"]}:
        raise IdlewiseError(f"nodes have different versions of idlewise: {', '.join(sorted(codes | {found['code']}))}")
    failures = sorted((failure for result in results for failure in result["failures"]), key=lambda it: it["cell"])
    return {
        "schema": found["schema"],
        "code": found["code"],
        "cell_count": sum(result["cell_count"] for result in results),
        "unit_count": found["unit_count"],
        "present_count": sum(result["present_count"] for result in results),
        "computed_count": sum(result["computed_count"] for result in results),
        "failed_count": len(failures),
        "missing_count": 0,
        "other_version_cell_count": found["other_version_cell_count"],
        "failures": failures,
    }


def _named(place: str | PathLike[str]) -> str:
    """A name that every node understands: a URL, or an absolute path."""
    place = os.fspath(place)
    return place if "://" in place else os.path.abspath(place)


def _status(manifest: str, storage: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(
        command("lab", "sweep", "status", "--json", "--store", storage, "--", manifest, check=False)
    )
    return document
