"""What is imported when: nothing that takes long before it is needed. Times are in benchmarks/start_up.py."""

import os
import subprocess
import sys

import pytest

HEAVY = ("torch", "numpy", "pandas", "sklearn", "scipy", "matplotlib", "rich", "typer", "pydantic")
COMMAND = (
    "import sys; sys.argv = ['leco', *{words!r}]\nfrom leco.cli.main import main\ntry: main()\nexcept SystemExit: pass"
)
CASES = {
    "import leco": ("import leco", HEAVY),
    "from leco import Method, LecoError": ("from leco import Method, LecoError", HEAVY),
    "leco.Settings": ("import leco; leco.Settings()", ("torch", "numpy", "pandas", "sklearn", "scipy", "matplotlib")),
    "leco --help": (COMMAND.format(words=["--help"]), HEAVY[:-2]),
    "leco --version": (COMMAND.format(words=["--version"]), HEAVY[:-2]),
    "leco run --help": (COMMAND.format(words=["run", "--help"]), HEAVY[:-2]),
    "leco data list --help": (COMMAND.format(words=["data", "list", "--help"]), HEAVY[:-2]),
    "a wrong command": (COMMAND.format(words=["rum"]), HEAVY[:-2]),
}


@pytest.mark.parametrize("case", CASES)
def test_nothing_heavy_is_imported_before_it_is_needed(case):
    code, absent = CASES[case]
    code += f"\nprint('imported:', *sorted(set({absent!r}) & set(sys.modules)))"
    found = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}"], capture_output=True, text=True, timeout=60, check=True
    )
    assert found.stdout.splitlines()[-1].split() == ["imported:"]


def test_every_public_name_can_be_imported():
    import leco

    assert [name for name in leco.__all__ if getattr(leco, name, None) is None] == []
    assert set(leco.__all__) <= set(dir(leco))


AT_TORCH = """
import os, sys
os.getloadavg = lambda: ({load}, 0.0, 0.0)
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            print("torch sees", os.environ.get("OMP_WAIT_POLICY"), flush=True)
            os._exit(0)
sys.meta_path.insert(0, Watch())
"""
BY_MODULE = "import runpy; sys.argv = ['leco', 'models']; runpy.run_module('leco', run_name='__main__')"


@pytest.mark.parametrize("start", [COMMAND.format(words=["models"]), BY_MODULE], ids=["leco", "python -m leco"])
@pytest.mark.parametrize(
    ("own", "load", "seen"), [(None, 3.0, "PASSIVE"), (None, 0.1, None), ("ACTIVE", 3.0, "ACTIVE")]
)
def test_threads_wait_passively_on_a_busy_machine_unless_the_user_says_otherwise(start, own, load, seen):
    others = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    found = subprocess.run(
        [sys.executable, "-c", AT_TORCH.format(load=load) + start],
        env=others | ({} if own is None else {"OMP_WAIT_POLICY": own}),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert found.stdout == f"torch sees {seen}\n"


def test_the_library_leaves_the_threads_of_a_program_as_they_are():
    code = "import os; before = dict(os.environ); import leco; leco.Method(); assert dict(os.environ) == before"
    subprocess.run([sys.executable, "-c", code], timeout=60, check=True)
