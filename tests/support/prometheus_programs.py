"""Prometheus and its exporters as processes, and their answers."""

import json
import re
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from waiting import PATIENCE_S, wait_for


@contextmanager
def listening(command: Sequence[str], log: Path) -> Iterator[str]:
    """A program of Prometheus's family on a free port; its address, as it says it in its log."""
    with (
        log.open("w") as file,
        subprocess.Popen([*command, "--web.listen-address=127.0.0.1:0"], stderr=file) as process,
    ):
        try:

            def address() -> str:
                assert process.poll() is None, log.read_text()
                found = re.search(r'"Listening on".*address=(127\.0\.0\.1:[1-9]\d*)', log.read_text())
                return found[1] if found else ""

            yield wait_for(address)
        finally:
            process.terminate()


def fetch(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        return json.load(answer)


def is_ready(url: str) -> bool:
    """Whether a Prometheus answers queries: for a while after it listens it reads its log and answers 503."""
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=PATIENCE_S):
            return True
    except urllib.error.HTTPError as error:
        error.close()
        return False


def query(url: str, expression: str) -> list[Any]:
    """Series with a number, of a Prometheus at a URL."""
    told = fetch(f"{url}/api/v1/query?{urllib.parse.urlencode({'query': expression})}")
    assert told["status"] == "success", told
    return [one for one in told["data"]["result"] if one["value"][1] != "NaN"]
