"""Tables."""

from typing import Any, final

from . import _shown
from ._arguments import number
from ._native import Batches


@final
class Table:
    """A table in Arrow's memory, which polars.DataFrame(), pyarrow.table(), pandas.DataFrame.from_arrow() and DuckDB
    take as it is."""

    def __init__(self, batches: Batches) -> None:
        """For the package itself."""
        self._batches = batches

    @property
    def row_count(self) -> int:
        """The number of rows."""
        return len(self._batches)

    @property
    def column_names(self) -> list[str]:
        """The columns."""
        return self._batches.column_names

    def __len__(self) -> int:
        return len(self._batches)

    def rows(self, count: int | None = None) -> list[dict[str, Any]]:
        """The first rows, or all, each as a dictionary. For long tables take polars, pyarrow or pandas."""
        names = self.column_names
        columns = self._batches.columns(len(self) if count is None else number("count", count, 0, 2**63 - 1))
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def _repr_html_(self) -> str:
        rows = self.rows(_shown.ROW_COUNT)
        shown = f"{len(rows)} of {len(self)} rows; polars.DataFrame(table) has all" if len(self) > len(rows) else ""
        return _shown.table(self.column_names, (list(row.values()) for row in rows), shown)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Arrow's PyCapsule interface. The columns are shared, not copied. A requested schema is not obeyed."""
        return self._batches.__arrow_c_stream__()

    def __repr__(self) -> str:
        return f"<idlewise.Table: {self.row_count} rows, {len(self.column_names)} columns>"

    def __reduce__(self) -> tuple[object, ...]:
        return _of_bytes, (self._batches.bytes(),)


def _of_bytes(stream: bytes) -> Table:
    return Table(Batches.of_bytes(stream))
