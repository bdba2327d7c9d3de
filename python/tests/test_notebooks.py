"""The notebooks run from beginning to end, and are kept without what they print."""

import os
import pathlib
from typing import Any, cast

import nbclient
import nbformat
import pytest

PYTHON = pathlib.Path(__file__).parent.parent.resolve()
NOTEBOOKS = sorted((PYTHON / "notebooks").glob("*.ipynb"))


def test_there_are_notebooks() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["first_look", "judge_a_patch", "write_a_governor"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = cast(Any, nbformat).read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in code)
    monkeypatch.setenv("IDLEWISE_SOURCE", os.fspath(PYTHON.parent))
    # It needs no terminal and nobody's settings.
    monkeypatch.setenv("IPYTHONDIR", os.fspath(tmp_path))
    client = nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": os.fspath(tmp_path)}})
    client.execute()
    assert all(cell.execution_count for cell in code)
