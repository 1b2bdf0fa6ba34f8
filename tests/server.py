"""The app as a user starts it: a server process of its own on a free port."""

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent


@dataclass
class Server:
    url: str
    process: subprocess.Popen
    log: Path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url + "/_stcore/health", timeout=1) as answer:
            return answer.status == 200
    except OSError:
        return False


@contextlib.contextmanager
def serve(log: Path, *options: str, **environment: str) -> Iterator[Server]:
    """Start the app and wait until it answers; stop it at the end."""
    port = free_port()
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "streamlit", "run", "streamlit_app.py",
             "--server.port", str(port), "--server.address", "127.0.0.1", *options],
            cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **environment},
        )  # fmt: skip
        url = f"http://127.0.0.1:{port}"
        try:
            for _ in range(600):
                if _answers(url):
                    break
                if process.poll() is not None:
                    raise RuntimeError(f"The server ended: {log.read_text()}")
                time.sleep(0.05)
            yield Server(url, process, log)
        finally:
            process.terminate()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
