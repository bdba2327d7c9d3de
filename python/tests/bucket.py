"""Real servers of buckets on this machine, for tests, which `scripts/bucket-server` installs.

`IDLEWISE_S3_SERVER` names versitygw; the others are in emulators.py. pyarrow, another client of the protocols, makes buckets
and looks at what is in them.
"""

import abc
import importlib
import os
import pathlib
import signal
import socket
import subprocess
import time
from typing import Any

import idlewise

fs: Any = importlib.import_module("pyarrow.fs")

PROGRAM = os.environ.get("IDLEWISE_S3_SERVER")
KEY, SECRET = "idlewise", "only-for-tests"


class Server(abc.ABC):
    """A server, on a free port, with its objects in a folder. It can be ended and started again."""

    scheme: str

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.process: subprocess.Popen[bytes] | None = None
        self.environment: dict[str, str] = {}

    @abc.abstractmethod
    def line(self) -> list[str]:
        """The command that starts it."""

    @abc.abstractmethod
    def client(self) -> Any:
        """pyarrow's file system of its buckets."""

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(self.line(), stdout=log, stderr=log, env={**os.environ, **self.environment})
        while True:
            assert self.process.poll() is None, (self.folder / "log").read_text()
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.01)

    def kill(self) -> None:
        """Ends it in the middle of whatever it does."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def make_bucket(self, bucket: str) -> None:
        self.client().create_dir(bucket)

    def put(self, name: str, content: bytes) -> None:
        """Writes an object: bucket, slash, name."""
        with self.client().open_output_stream(name) as stream:
            stream.write(content)

    def objects(self, folder: str) -> dict[str, bytes]:
        """All objects below a folder, by their names in it."""
        client = self.client()
        found = client.get_file_info(fs.FileSelector(folder, recursive=True, allow_not_found=True))
        files = [info.path for info in found if info.type == fs.FileType.File]
        return {path.removeprefix(folder + "/"): client.open_input_file(path).readall() for path in sorted(files)}


class S3(Server):
    """versitygw, whose buckets are folders."""

    scheme = "s3"

    def __init__(self, folder: pathlib.Path) -> None:
        super().__init__(folder)
        for name in ("objects", "sidecar"):
            (folder / name).mkdir()
        # It keeps what it knows of an object in the file's extended attributes, where there are any.
        self.options: list[str] = []
        try:
            os.setxattr(folder / "objects", "user.idlewise", b"1")
        except OSError:
            self.options = ["--sidecar", str(folder / "sidecar")]
        self.environment = {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_REGION": "us-east-1",
        }
        self.start()

    def line(self) -> list[str]:
        assert PROGRAM is not None
        line = [PROGRAM, "--quiet", "--port", f"127.0.0.1:{self.port}", "--access", KEY, "--secret", SECRET]
        return [*line, "posix", *self.options, str(self.folder / "objects")]

    def client(self) -> Any:
        return fs.S3FileSystem(
            access_key=KEY,
            secret_key=SECRET,
            endpoint_override=f"127.0.0.1:{self.port}",
            scheme="http",
            region="us-east-1",
            allow_bucket_creation=True,
            allow_bucket_deletion=True,
        )


def collected(manifest: str | pathlib.Path, store: str | pathlib.Path, check: bool = True) -> str:
    """All cells of a sweep, as text."""
    return idlewise.command("lab", "sweep", "collect", "--store", store, "--", manifest, check=check)


def counts(document: dict[str, Any]) -> tuple[int, int, int]:
    return document["present_count"], document["computed_count"], document["failed_count"]
