"""What is packed."""

import importlib.metadata
import os
import pathlib
import re
import tarfile
import zipfile

import idlewise
import pytest

WHEELS = os.environ.get("WHEELS", "")


def test_the_wheel_says_its_licence_and_has_types() -> None:
    metadata = importlib.metadata.metadata("idlewise")
    assert metadata["License-Expression"] == "GPL-2.0-only"
    assert metadata["Requires-Python"] == ">=3.10"
    assert metadata["Version"] == idlewise.__version__
    # Nothing else is needed to run.
    required = importlib.metadata.requires("idlewise") or []
    assert all("extra ==" in one for one in required)
    files = {str(file) for file in importlib.metadata.files("idlewise") or []}
    assert {"idlewise/py.typed", "idlewise/_native.pyi"} <= files
    assert any(file.endswith("licenses/LICENSE-GPL-2.0") for file in files)


def test_the_reference_has_what_is_public() -> None:
    pages = pathlib.Path(__file__).parent / "../docs"
    text = (pages / "index.md").read_text() + (pages / "batches.md").read_text()
    listed = re.findall(r"members: \[(.*)\]", text)
    described = {name for names in listed for name in names.split(", ")}
    of_command = {name for name in idlewise.__all__ if getattr(getattr(idlewise, name), "__module__", "") == "idlewise._command"}
    assert described | of_command | {"__version__"} == set(idlewise.__all__)


@pytest.mark.skipif(not WHEELS, reason="scripts/test-python sets WHEELS")
def test_one_wheel_serves_every_python_and_the_source_is_whole() -> None:
    (wheel,) = pathlib.Path(WHEELS).glob("*.whl")
    assert "-cp310-abi3-linux" in wheel.name
    assert zipfile.ZipFile(wheel).testzip() is None
    (sdist,) = pathlib.Path(WHEELS).glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
        for file in [
            "Cargo.lock",
            "python/src/lib.rs",
            "crates/idlewise-lab/bundled/a-idle.parquet",
            "crates/idlewise-machine/machines/spr.toml",
            "crates/idlewise-plugin/include/idlewise_governor.h",
        ]:
            assert file in names, file
        log = archive.extractfile(f"{sdist.name.removesuffix('.tar.gz')}/crates/idlewise-lab/bundled/a-idle.parquet")
        # A file, not a link that leads nowhere.
        assert log is not None and log.read(4) == b"PAR1"
