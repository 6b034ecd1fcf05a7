"""The command `leco`, run as a user would."""

import os
import subprocess
import sys
from pathlib import Path


def leco(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run it in a process of its own, on one thread: two would add numbers in another order."""
    command = [sys.executable, "-m", "leco", *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=300, env=environment)


def assert_refused(arguments: list[object], message: str, folder: Path) -> None:
    """A wrong call gives one message and exit code 2, and writes nothing."""
    before = sorted(folder.iterdir())
    result = leco(*arguments, cwd=folder)
    assert result.returncode == 2
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert sorted(folder.iterdir()) == before
