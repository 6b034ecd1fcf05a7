from pathlib import Path

import pytest
from tests.manifests import write_image


@pytest.fixture
def folder(tmp_path) -> Path:
    for number, name in enumerate("abcd"):
        write_image(tmp_path / f"{name}.png", number)
    return tmp_path
