"""A sweep's logs in batches, for whoever places work: Ray Data, Spark, Daft, or a pool of processes."""

import functools
import importlib
import json
import pathlib
import subprocess
import tempfile
from typing import Any

from ._arguments import Path, path_of
from ._command import NEGATIVE, failed, ran
from ._native import IdlewiseError

# How a program in Rust ends that finds a fault in itself.
_PANICKED = 101
# What `idlewise lab sweep --logs` reads of the table that `idlewise lab sweep plan` makes.
_COLUMNS = ("log", "url", "log_sha256", "failure")


def replay_batch(logs: Any, manifest: Path) -> Any:
    """Replays a batch of a sweep's logs, and returns its cells. It keeps nothing, and can be pickled by its name.

    Each call runs `idlewise lab sweep --jobs 1` in a process of its own, so memory that a log takes is returned. If that
    process is killed, for instance because memory is short, the batch is tried again log by log, and only the log that is
    to blame fails.

    Args:
        logs: Rows of the table that `idlewise lab sweep plan` makes: a table or a record batch of pyarrow, or what
            pyarrow.table() takes.
        manifest: The sweep's manifest (TOML): a path or a URL, or its text, if there is a line break in it. Paths in a
            text must be absolute. Its `logs` and `store` are not used.

    Returns:
        A table of pyarrow with a row for each cell (docs/columns.md, a shard of cells). Counts are int64. A cell that could
        not be computed has the reason in `failure`. So has a log that could not be read, in a row without a cell.

    Raises:
        IdlewiseError: If the manifest is wrong, or the disk is full.
    """
    pa: Any = importlib.import_module("pyarrow")
    table = pa.Table.from_batches([logs]) if isinstance(logs, pa.RecordBatch) else pa.table(logs)
    text = pa.string()
    if twice := sorted(name for name in _COLUMNS if table.column_names.count(name) > 1):
        raise ValueError(f"logs: two columns are called {twice[0]!r}")
    columns = {name: table[name].cast(text) for name in _COLUMNS if name in table.column_names}
    if missing := {"log", "url", "log_sha256"} - columns.keys():
        raise ValueError(f"logs: no column {sorted(missing)[0]!r}; `idlewise lab sweep plan` makes the table")
    return _replayed(pa, pa.table(columns), path_of("manifest", manifest))


def cell_schema() -> Any:
    """The schema of what `replay_batch` returns, of pyarrow. Spark wants to know it in advance."""
    return _schema()


def _replayed(pa: Any, logs: Any, manifest: str) -> Any:
    parquet: Any = importlib.import_module("pyarrow.parquet")
    with tempfile.TemporaryDirectory(prefix="idlewise-") as name:
        folder = pathlib.Path(name)
        parquet.write_table(logs, folder / "logs.parquet", compression="zstd")
        place = manifest
        if "\n" in place:
            (folder / "sweep.toml").write_text(place)
            place = str(folder / "sweep.toml")
        done, cells = _swept(folder, place, "--logs", folder / "logs.parquet")
        if done.returncode < 0 or done.returncode == _PANICKED:
            return _halved(pa, logs, manifest, done.returncode)
    known = {row for part in cells for row in part["log_sha256"].to_pylist()}
    reasons = {failure["log"]: failure["reason"] for failure in json.loads(done.stdout)["failures"]}
    unread = [
        (row["log_sha256"], reasons.get(row["log"]) or row.get("failure") or "it has no cells")
        for row in logs.to_pylist()
        if row["log_sha256"] is None or row["log_sha256"] not in known
    ]
    # To know the schema costs a sweep.
    return pa.concat_tables([*cells, _failures(pa, unread)] if unread or not cells else cells)


def _swept(folder: pathlib.Path, manifest: str, *options: Path) -> tuple[subprocess.CompletedProcess[str], list[Any]]:
    """Sweeps into a folder of its own. Returns what the command said, unless it was killed, and the cells."""
    pa: Any = importlib.import_module("pyarrow")
    parquet: Any = importlib.import_module("pyarrow.parquet")
    done = ran("lab", "sweep", "--json", "--jobs", "1", "--store", folder / "cells", *options, "--", manifest)
    if done.returncode not in (0, NEGATIVE, _PANICKED) and done.returncode >= 0:
        # The files of this folder are what was given.
        said = str(failed(done)).replace(f"{folder}/sweep.toml", "manifest").replace(f"{folder}/", "")
        raise IdlewiseError(said)
    # Each file's own columns, without what folders' names say. Spark has no numbers without a sign.
    types = {pa.uint64(): pa.int64(), pa.large_string(): pa.string()}

    def cells(path: pathlib.Path) -> Any:
        found = parquet.ParquetFile(path).read()
        fields = [pa.field(field.name, types.get(field.type, field.type)) for field in found.schema]
        return found.cast(pa.schema(fields))

    return done, [cells(path) for path in sorted(folder.glob("cells/*/*.parquet"))]


def _halved(pa: Any, logs: Any, manifest: str, status: int) -> Any:
    """Without the log that ends the process, which becomes a failed row."""
    if len(logs) > 1:
        half = len(logs) // 2
        return pa.concat_tables([_replayed(pa, part, manifest) for part in (logs[:half], logs[half:])])
    reason = f"signal {-status} ended its replay; a system that is short of memory sends 9"
    if status == _PANICKED:
        reason = "a fault in idlewise ended its replay; please report it"
    return _failures(pa, [(logs["log_sha256"][0].as_py(), reason)])


def _failures(pa: Any, rows: list[tuple[str | None, str]]) -> Any:
    values = {"log_sha256": [row[0] for row in rows], "failure": [row[1] for row in rows]}
    schema = _schema()
    return pa.table([pa.array(values.get(field.name, [None] * len(rows)), field.type) for field in schema], schema=schema)


@functools.cache
def _schema() -> Any:
    """As the command writes it, of built-in logs."""
    with tempfile.TemporaryDirectory(prefix="idlewise-") as name:
        folder = pathlib.Path(name)
        (folder / "sweep.toml").write_text('machines = "spr"\ngovernors = "menu"\nlambda = 0\n')
        return _swept(folder, str(folder / "sweep.toml"))[1][0].schema
