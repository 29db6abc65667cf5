"""An object store on 127.0.0.1: moto's S3 server, and an environment for its clients."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

BUCKET = "bucket"


@contextlib.contextmanager
def s3_server() -> Iterator[dict[str, str]]:
    """Run a server, and yield the environment variables that s3fs needs to find it."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
    finally:
        server.stop()


def names(fs: Any, place: str) -> list[str]:
    """List all objects below a place, relative to it."""
    fs.invalidate_cache()
    return sorted(str(name).partition(f"{place}/")[2] for name in fs.find(place))
