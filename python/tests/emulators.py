"""Sweeps with buckets of Google's and Azure's protocols: `make test-fleet`.

The servers are emulators, not the services: fake-gcs-server (`IDLEWISE_GS_SERVER`) and Azurite (`IDLEWISE_AZ_SERVER`).
Azurite checks signatures. fake-gcs-server does not, and lacks more, which `Front` adds to it.
"""

import base64
import http.client
import http.server
import importlib
import json
import os
import pathlib
import threading
from collections.abc import Iterator
from typing import Any

import idlewise
import pytest
from bucket import Server, collected, counts, fs

hashes: Any = importlib.import_module("cryptography.hazmat.primitives.hashes")
padding: Any = importlib.import_module("cryptography.hazmat.primitives.asymmetric.padding")
rsa: Any = importlib.import_module("cryptography.hazmat.primitives.asymmetric.rsa")
serialization: Any = importlib.import_module("cryptography.hazmat.primitives.serialization")
InvalidSignature: Any = importlib.import_module("cryptography.exceptions").InvalidSignature

TRACES = (pathlib.Path(__file__).parent / "../../traces").resolve()
LOGS = ("a-idle.parquet", "s-softirq500.perf.data.xz", "deep/er/b redis%.parquet")
SWEEP = 'machines = ["spr", "milan"]\ngovernors = ["menu"]\n'


class Front(http.server.BaseHTTPRequestHandler):
    """What Google's XML API does and fake-gcs-server does not, as Google documents it. It

    - refuses requests without a token that the account's key has signed,
    - takes uploads that are not signed URLs, and answers with an entity tag,
    - says of a bucket that does not exist that it is the bucket.
    """

    protocol_version = "HTTP/1.1"
    google: "Google"

    def answer(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def refuse(self, status: int, code: str, message: str) -> None:
        xml = f"<?xml version='1.0' encoding='UTF-8'?><Error><Code>{code}</Code><Message>{message}</Message></Error>"
        self.answer(status, xml.encode(), {"Content-Type": "application/xml"})

    def ask(self, method: str, target: str, body: bytes = b"") -> tuple[int, bytes, dict[str, str]]:
        emulator = http.client.HTTPConnection("127.0.0.1", self.google.port)
        emulator.request(method, target, body)
        answer = emulator.getresponse()
        content = answer.read()
        emulator.close()
        kept = ("Content-Type", "ETag", "Last-Modified", "Content-Length" if method == "HEAD" else "Content-Type")
        return answer.status, content, {name: answer.headers[name] for name in kept if name in answer.headers}

    def relay(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if not self.google.has_signed(self.headers.get("Authorization", "").removeprefix("Bearer ")):
            return self.refuse(401, "AuthenticationRequired", "Authentication required.")
        bucket = self.path.split("?")[0].split("/")[1]
        if self.ask("GET", f"/storage/v1/b/{bucket}")[0] == 404:
            return self.refuse(404, "NoSuchBucket", "The specified bucket does not exist.")
        if self.command != "PUT":
            return self.answer(*self.ask(self.command, self.path, body))
        status, content, _ = self.ask("PUT", f"{self.path}?X-Goog-Algorithm=none", body)
        self.answer(status, b"", {"ETag": json.dumps(json.loads(content).get("etag"))})

    do_GET = do_HEAD = do_PUT = do_DELETE = relay

    def log_message(self, format: str, *args: object) -> None:
        pass


class Google(Server):
    """fake-gcs-server, with a front, and an account with a key."""

    scheme = "gs"

    def __init__(self, folder: pathlib.Path) -> None:
        super().__init__(folder)
        self.key = rsa.generate_private_key(65537, 2048)
        handler = type("GoogleFront", (Front,), {"google": self})
        self.front = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self.front.serve_forever, daemon=True).start()
        self.environment = {
            "GOOGLE_SERVICE_ACCOUNT_KEY": self.account(self.key),
            # The slash at its end does no harm.
            "GOOGLE_BASE_URL": f"http://127.0.0.1:{self.front.server_port}/",
        }
        # Another key, no key, and what is then said.
        self.wrong = {"GOOGLE_SERVICE_ACCOUNT_KEY": self.account(rsa.generate_private_key(65537, 2048))}
        self.wrong_said = "Authentication required (AuthenticationRequired); check GOOGLE_SERVICE_ACCOUNT_KEY"
        self.missing = "GOOGLE_SERVICE_ACCOUNT_KEY"
        self.missing_said = "no credentials: GOOGLE_APPLICATION_CREDENTIALS is not set"
        self.no_bucket_said = "there is no such bucket (NoSuchBucket)"
        self.start()

    @staticmethod
    def account(key: Any) -> str:
        form = serialization.PrivateFormat.PKCS8
        pem = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()
        return json.dumps({"private_key": pem, "private_key_id": "1", "client_email": "idlewise@example.invalid"})

    def has_signed(self, token: str) -> bool:
        message, _, signature = token.rpartition(".")
        try:
            signed = base64.urlsafe_b64decode(signature + "==")
            self.key.public_key().verify(signed, message.encode(), padding.PKCS1v15(), hashes.SHA256())
        except InvalidSignature:
            return False
        return True

    def line(self) -> list[str]:
        line = [os.environ["IDLEWISE_GS_SERVER"], "-scheme", "http", "-host", "127.0.0.1", "-port", str(self.port)]
        return [*line, "-public-host", f"127.0.0.1:{self.port}", "-backend", "memory"]

    def client(self) -> Any:
        endpoint = f"127.0.0.1:{self.port}"
        return fs.GcsFileSystem(anonymous=True, scheme="http", endpoint_override=endpoint, project_id="idlewise")


class Azure(Server):
    """Azurite, with an account of its own."""

    scheme = "az"

    def __init__(self, folder: pathlib.Path) -> None:
        super().__init__(folder)
        self.key = base64.b64encode(b"only-for-tests").decode()
        self.environment = {
            "AZURE_STORAGE_ACCOUNT_NAME": "idlewise",
            "AZURE_STORAGE_ACCOUNT_KEY": self.key,
            "AZURE_STORAGE_ENDPOINT": f"http://127.0.0.1:{self.port}/idlewise",
            # The emulator's own.
            "AZURITE_ACCOUNTS": f"idlewise:{self.key}",
        }
        self.wrong = {"AZURE_STORAGE_ACCOUNT_KEY": base64.b64encode(b"wrong").decode()}
        self.wrong_said = "(AuthorizationFailure); check AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY"
        self.missing = "AZURE_STORAGE_ACCOUNT_KEY"
        self.missing_said = "no credentials: AZURE_STORAGE_ACCOUNT_KEY is not set"
        self.no_bucket_said = "there is no such bucket (ContainerNotFound)"
        self.start()

    def line(self) -> list[str]:
        # It would send its author what it is used for. Clients may be newer than it.
        line = [os.environ["IDLEWISE_AZ_SERVER"], "--disableTelemetry", "--skipApiVersionCheck", "--inMemoryPersistence"]
        return [*line, "--blobHost", "127.0.0.1", "--blobPort", str(self.port)]

    def client(self) -> Any:
        return fs.AzureFileSystem(
            "idlewise",
            account_key=self.key,
            blob_storage_authority=f"127.0.0.1:{self.port}",
            blob_storage_scheme="http",
            dfs_storage_authority=f"127.0.0.1:{self.port}",
            dfs_storage_scheme="http",
        )


Emulator = Google | Azure


@pytest.fixture(scope="module", params=[Google, Azure])
def started(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    server: Emulator = request.param(tmp_path_factory.mktemp("server"))
    try:
        yield server
    finally:
        server.kill()


@pytest.fixture
def server(started: Emulator, monkeypatch: pytest.MonkeyPatch) -> Emulator:
    """With credentials in the environment."""
    for name, value in started.environment.items():
        monkeypatch.setenv(name, value)
    return started


def test_everything_is_in_the_bucket(server: Emulator, tmp_path: pathlib.Path) -> None:
    server.make_bucket("whole")
    for name in LOGS:
        trace = TRACES / name.rpartition("/")[2].replace("b redis%", "b-redis")
        server.put(f"whole/logs/{name}", trace.read_bytes())
    root = f"{server.scheme}://whole"
    server.put("whole/folder.toml", f'logs = ["logs/"]\n{SWEEP}'.encode())
    server.put("whole/pattern.toml", f'logs = ["{root}/logs/**/*.parquet", "{root}/logs/missing.parquet"]\n{SWEEP}'.encode())
    manifest = tmp_path / "here.toml"
    logs = [str(TRACES / name) for name in ("a-idle.parquet", "s-softirq500.perf.data.xz", "b-redis.parquet")]
    manifest.write_text(f"logs = {json.dumps(logs)}\n{SWEEP}")
    assert counts(idlewise.sweep(manifest)) == (0, 24, 0)
    here = collected(manifest, tmp_path / "cells")

    # The logs directly in the folder, in two parts.
    folder = f"{root}/folder.toml"
    assert idlewise.command("lab", "sweep", "status", folder, check=False).startswith("16 cells: 0 are there, 16 missing")
    assert counts(idlewise.sweep(folder, shard="1/2")) == (0, 8, 0)
    assert counts(idlewise.sweep(folder)) == (8, 8, 0)
    assert counts(idlewise.sweep(folder)) == (16, 0, 0)
    assert idlewise.command("lab", "sweep", "status", folder).startswith("16 cells: 16 are there, 0 missing")
    assert set(collected(folder, f"{root}/cells").splitlines()) < set(here.splitlines())
    # A pattern finds what lies deeper, and a log that is missing fails alone.
    found = idlewise.sweep(f"{root}/pattern.toml")
    assert counts(found) == (8, 8, 8)
    # In each server's own words.
    assert f"cannot read {root}/logs/missing.parquet: " in found["failures"][0]["reason"]
    # A table from there is the folder's, if the logs are the same.
    assert counts(idlewise.sweep(manifest, store=f"{root}/cells")) == (24, 0, 0)
    assert collected(manifest, f"{root}/cells") == here
    # A changed object is another log.
    server.put("whole/logs/a-idle.parquet", (TRACES / "h-pingpong.parquet").read_bytes())
    assert counts(idlewise.sweep(folder)) == (8, 8, 0)
    # A file that is damaged.
    left = server.objects("whole/cells")
    server.put(f"whole/cells/{min(left)}", b"x" * 4000)
    collected(folder, f"{root}/cells", check=False)
    idlewise.sweep(folder)
    assert server.objects("whole/cells").keys() >= left.keys()


def test_what_is_missing_is_said_in_one_line(
    server: Emulator, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IDLEWISE_RETRY_S", "0")
    server.make_bucket("there")
    manifest = tmp_path / "sweep.toml"
    manifest.write_text(f'logs = ["{TRACES}/a-idle.parquet"]\n{SWEEP}')

    def said(bucket: str) -> str:
        store = f"{server.scheme}://{bucket}/cells"
        with pytest.raises(idlewise.IdlewiseError) as error:
            idlewise.sweep(manifest, store=store)
        text = str(error.value)
        assert "\n" not in text and store in text, text
        return text

    assert server.no_bucket_said in said("nowhere")
    for name, value in server.wrong.items():
        monkeypatch.setenv(name, value)
    assert server.wrong_said in said("there")
    monkeypatch.delenv(server.missing)
    assert server.missing_said in said("there")
