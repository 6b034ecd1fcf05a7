"""What is imported when: nothing that takes long before it is needed. Times are in benchmarks/start_up.py."""

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
