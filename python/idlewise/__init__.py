"""Replays recorded idle gaps under cpuidle governors, on the idle states of any machine.

Times are integers in nanoseconds, energies are in microjoules and powers in milliwatts. The last part of a column's
name is its unit. docs/python.md of idlewise explains the package, and docs/columns.md the columns.
"""

from ._batches import cell_schema, replay_batch
from ._command import (
    arena,
    command,
    diff,
    import_recording,
    info,
    machine,
    oracle,
    predict,
    record,
    report,
    simulate,
    study,
    sweep,
)
from ._logs import Log, bundled, open
from ._native import IdlewiseError, State, __version__
from ._replay import Governor, Runs, machines, replay
from ._tables import Table

__all__ = [
    "Governor",
    "IdlewiseError",
    "Log",
    "Runs",
    "State",
    "Table",
    "__version__",
    "arena",
    "bundled",
    "cell_schema",
    "command",
    "diff",
    "import_recording",
    "info",
    "machine",
    "machines",
    "open",
    "oracle",
    "predict",
    "record",
    "replay",
    "replay_batch",
    "report",
    "simulate",
    "study",
    "sweep",
]
