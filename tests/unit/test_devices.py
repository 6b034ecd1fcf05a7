import ctypes
import subprocess
import sys

import pytest

ROUNDS = """
import resource, torch
from leco.devices import keep_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def step():
    return len([torch.ones(2**21) for _ in range(10)])

keep_memory()
step(), step()
before = faults()
for _ in range(5):
    step()
print(faults() - before)
"""


@pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallopt"), reason="only glibc can be told to keep memory"
)
def test_a_run_keeps_the_memory_that_its_next_step_asks_for():
    child = subprocess.run([sys.executable, "-c", ROUNDS], capture_output=True, text=True, check=True)
    pages_of_a_step = 10 * 4 * 2**21 // 4096
    assert int(child.stdout) < pages_of_a_step  # given back, they would come anew in each of the five steps
