"""Sweeps whose logs and cells are in a bucket, with a real server (`make test-fleet` does the same on a cluster)."""

import hashlib
import os
import pathlib
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator

import idlewise
import pytest
from bucket import PROGRAM, S3, Server, collected, counts

TRACES = (pathlib.Path(__file__).parent / "../../traces").resolve()
MANIFEST = f"""\
logs = ["{TRACES}/a-idle.parquet", "{TRACES}/s-softirq500.parquet"]
machines = ["spr", "milan"]
governors = ["menu"]
"""
# Cells enough that one file is there and something is left when it is interrupted.
MANY = f"""\
logs = ["{TRACES}/a-idle.parquet", "{TRACES}/b-redis.parquet"]
machines = ["spr", "milan", "skx"]
governors = ["menu", "teo", "ladder"]
hz = {list(range(100, 1200, 10))}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if PROGRAM is None:
        pytest.skip(os.environ.get("IDLEWISE_NO_S3_SERVER", "no S3 server: set IDLEWISE_S3_SERVER"))
    server = S3(tmp_path_factory.mktemp("server"))
    try:
        yield server
    finally:
        server.kill()


@pytest.fixture
def bucket(server: Server, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A new bucket, and an environment with credentials for it."""
    if server.process is None:
        server.start()
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    bucket: str = request.node.name.replace("_", "-")[:50].strip("-")
    server.make_bucket(bucket)
    return bucket


def test_a_bucket_has_the_cells_of_a_folder(server: Server, bucket: str, tmp_path: pathlib.Path) -> None:
    manifest = tmp_path / "sweep.toml"
    manifest.write_text(MANIFEST)
    store = f"s3://{bucket}/a/cells"
    assert counts(idlewise.sweep(manifest, store=tmp_path / "cells")) == (0, 16, 0)
    # In parts, the second on its own.
    assert counts(idlewise.sweep(manifest, store=store, shard="1/2")) == (0, 8, 0)
    assert counts(idlewise.sweep(manifest, store=store)) == (8, 8, 0)
    assert counts(idlewise.sweep(manifest, store=store)) == (16, 0, 0)
    assert collected(manifest, store) == collected(manifest, tmp_path / "cells")
    # What is damaged is computed again, and kept.
    objects = server.objects(f"{bucket}/a/cells")
    assert len(objects) == 2
    server.put(f"{bucket}/a/cells/{min(objects)}", b"x" * 4000)
    engine, name = min(objects).split("/")
    objects[f"{engine}/_{name}.{hashlib.sha256(b'x' * 4000).hexdigest()[:8]}.damaged"] = b"x" * 4000
    collected(manifest, store, check=False)
    assert counts(idlewise.sweep(manifest, store=store)) == (8, 8, 0)
    assert server.objects(f"{bucket}/a/cells") == objects
    # The arena takes cells from there.
    arena = idlewise.arena(TRACES / "a-idle.parquet", machine=["spr"], governor=["menu"], store=store)
    assert arena["standings"] and server.objects(f"{bucket}/a/cells") == objects
    # With the table of the logs nothing is listed. The table may be in the bucket too.
    table = f"s3://{bucket}/logs.parquet"
    assert idlewise.command("lab", "sweep", "plan", "-o", table, "--", manifest).startswith(f"{table}: 2 logs, ")
    assert counts(idlewise.sweep(manifest, store=store, logs=table, shard="2/2")) == (8, 0, 0)


def test_a_log_is_opened_from_a_bucket(server: Server, bucket: str) -> None:
    for name in ("a-idle.parquet", "s-softirq500.perf.data.xz"):
        server.put(f"{bucket}/{name}", (TRACES / name).read_bytes())
    url = f"s3://{bucket}/a-idle.parquet"
    log = idlewise.open(url)
    assert (log.name, log.path, log.gap_count) == ("a-idle", url, 147)
    again = pickle.loads(pickle.dumps(log))
    assert len(again.gaps()) == 147
    converted = idlewise.open(f"s3://{bucket}/s-softirq500.perf.data.xz")
    assert converted.gap_count == idlewise.open(TRACES / "s-softirq500.parquet").gap_count
    with pytest.raises(idlewise.IdlewiseError, match=f"s3://{bucket}/none.parquet"):
        idlewise.open(f"s3://{bucket}/none.parquet")


def test_logs_are_read_from_a_bucket(server: Server, bucket: str, tmp_path: pathlib.Path) -> None:
    for name in ("a-idle.parquet", "s-softirq500.perf.data.xz"):
        server.put(f"{bucket}/logs/{name}", (TRACES / name).read_bytes())
    server.put(f"{bucket}/logs/deep/er/b redis%.parquet", (TRACES / "b-redis.parquet").read_bytes())
    server.put(f"{bucket}/logs/notes.txt", b"not a log")
    server.put(f"{bucket}/sweep.toml", b'logs = ["logs/"]\nmachines = ["spr"]\ngovernors = ["menu"]\n')
    # The manifest is in the bucket too, and so are paths in it.
    url = f"s3://{bucket}/sweep.toml"
    assert idlewise.command("sweep", "status", url, check=False).startswith("8 cells: 0 are there, 8 missing")
    assert counts(idlewise.sweep(url)) == (0, 8, 0)
    assert idlewise.command("sweep", "status", url).startswith("8 cells: 8 are there, 0 missing")
    manifest = tmp_path / "sweep.toml"
    logs = [str(TRACES / name) for name in ("a-idle.parquet", "s-softirq500.perf.data.xz", "b-redis.parquet")]
    manifest.write_text(f'logs = {logs}\nmachines = ["spr"]\ngovernors = ["menu"]\n'.replace("'", '"'))
    assert counts(idlewise.sweep(manifest)) == (0, 12, 0)
    assert set(collected(url, f"s3://{bucket}/cells").splitlines()) < set(collected(manifest, tmp_path / "cells").splitlines())
    # A pattern finds what lies deeper, one that is missing fails alone, and cells can stay here.
    pattern = f'logs = ["s3://{bucket}/logs/**/*.parquet", "s3://{bucket}/logs/missing.parquet"]'
    manifest.write_text(f'{pattern}\nmachines = ["spr"]\ngovernors = ["menu"]\n')
    found = idlewise.sweep(manifest, store=tmp_path / "again")
    assert counts(found) == (0, 8, 4)
    assert f"s3://{bucket}/logs/missing.parquet: The specified key does not exist (NoSuchKey)" in found["failures"][0]["reason"]
    # A changed object is another log.
    server.put(f"{bucket}/logs/a-idle.parquet", (TRACES / "h-pingpong.parquet").read_bytes())
    assert counts(idlewise.sweep(url)) == (4, 4, 0)


def cell_count(server: Server, bucket: str) -> int:
    # Where the server keeps them, which disturbs nothing.
    return sum(1 for _ in (server.folder / "objects" / bucket).rglob("*.parquet"))


def begin(server: Server, bucket: str, manifest: pathlib.Path) -> subprocess.Popen[str]:
    """A sweep into the bucket with one worker, when it has written something more than was there."""
    line = [sys.executable, "-m", "idlewise", "lab", "sweep", "--jobs", "1", "--store", f"s3://{bucket}/cells", str(manifest)]
    before = cell_count(server, bucket)
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=os.environ, text=True)
    while process.poll() is None and cell_count(server, bucket) == before:
        pass
    return process


def test_the_server_and_the_sweep_are_killed(server: Server, bucket: str, tmp_path: pathlib.Path) -> None:
    manifest = tmp_path / "sweep.toml"
    manifest.write_text(MANY)
    count = idlewise.sweep(manifest, store=tmp_path / "cells")["computed_count"]
    with begin(server, bucket, manifest) as process:
        process.send_signal(signal.SIGKILL)
    with begin(server, bucket, manifest) as process:
        server.kill()
        server.start()
        process.communicate()
    assert process.returncode == 0
    assert counts(idlewise.sweep(manifest, store=f"s3://{bucket}/cells")) == (count, 0, 0)
    assert collected(manifest, f"s3://{bucket}/cells") == collected(manifest, tmp_path / "cells")


def test_a_bucket_that_is_removed_ends_the_sweep(server: Server, bucket: str, tmp_path: pathlib.Path) -> None:
    manifest = tmp_path / "sweep.toml"
    manifest.write_text(MANY)
    count = idlewise.sweep(manifest, store=tmp_path / "cells")["computed_count"]
    there, away = server.folder / "objects" / bucket, tmp_path / "away"
    with begin(server, bucket, manifest) as process:
        # While the server is down: it would make the folder again for what it is just writing.
        server.kill()
        there.rename(away)
        server.start()
        _, said = process.communicate()
    assert process.returncode == 2, said
    last = said.splitlines()[-1]
    assert f"s3://{bucket}/cells" in last and "there is no such bucket (NoSuchBucket)" in last, said
    # What it had written is whole, and serves when the bucket is back.
    away.rename(there)
    done, computed, _ = counts(idlewise.sweep(manifest, store=f"s3://{bucket}/cells"))
    assert 0 < done < count and computed == count - done
    assert collected(manifest, f"s3://{bucket}/cells") == collected(manifest, tmp_path / "cells")


def test_what_is_missing_is_said_in_one_line(
    server: Server, bucket: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IDLEWISE_RETRY_S", "0")
    manifest = tmp_path / "sweep.toml"
    manifest.write_text(MANIFEST)

    def said(store: str) -> str:
        with pytest.raises(idlewise.IdlewiseError) as error:
            idlewise.sweep(manifest, store=store)
        assert "\n" not in str(error.value), error.value
        return str(error.value)

    assert "cannot list s3://nowhere-to-be-found/cells/" in (text := said("s3://nowhere-to-be-found/cells"))
    assert "there is no such bucket (NoSuchBucket)" in text
    assert "no such kind of storage" in said("s4://bucket/cells")
    assert "cannot be kept on a web server" in said("https://localhost/cells")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    wrong = "(SignatureDoesNotMatch); check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    assert wrong in said(f"s3://{bucket}/cells")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert f"s3://{bucket}/cells: no credentials: AWS_SECRET_ACCESS_KEY is not set" in said(f"s3://{bucket}/cells")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "localhost:9000")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    assert "AWS_ENDPOINT_URL: 'localhost:9000' is not a URL such as" in said(f"s3://{bucket}/cells")
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.environment["AWS_ENDPOINT_URL"])
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    # A log without credentials fails alone.
    manifest.write_text(MANIFEST.replace("logs = [", f'logs = ["s3://{bucket}/x.parquet", '))
    found = idlewise.sweep(manifest, store=tmp_path / "cells")
    assert counts(found) == (0, 16, 8)
    assert "AWS_SECRET_ACCESS_KEY is not set" in found["failures"][0]["reason"]
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.environment["AWS_SECRET_ACCESS_KEY"])
    server.kill()
    assert "Connection refused" in said(f"s3://{bucket}/cells")
