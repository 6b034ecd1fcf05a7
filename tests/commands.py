"""The command `leco`, called as a user would."""

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import torch

from leco.cli.main import main


def leco(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Call it in this process, since a new one takes seconds to import torch; what leaves `main` is a traceback."""
    command = ["leco", *map(str, arguments)]
    out, errors = io.StringIO(), io.StringIO()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # two would add numbers in another order
    try:
        with (
            patch.object(sys, "argv", command),
            contextlib.chdir(cwd or Path.cwd()),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(errors),
        ):
            main()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        torch.set_num_threads(threads)
    return subprocess.CompletedProcess(command, status, out.getvalue(), errors.getvalue())


def leco_process(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run it in a process of its own, on one thread."""
    command = [sys.executable, "-m", "leco", *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=300, env=environment)


def leco_processes(number: int, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run it in so many processes of `torchrun`, each on one thread."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={number}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    leco = ["-m", "leco", *map(str, arguments)]
    return subprocess.run([*command, *leco], capture_output=True, text=True, timeout=300, env=environment)


def assert_refused(arguments: list[object], message: str, folder: Path) -> None:
    """A wrong call gives one message and exit code 2, and writes nothing."""
    before = sorted(folder.iterdir())
    result = leco(*arguments, cwd=folder)
    assert result.returncode == 2
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert sorted(folder.iterdir()) == before
