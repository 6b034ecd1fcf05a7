"""A store of made-up stages, and its report."""

from pathlib import Path

import pytest
from tests.stores import make_stages, write_store

from leco.reports.report import Report, make_report
from leco.reports.stored import read_store


@pytest.fixture(scope="session")
def runs(tmp_path_factory) -> Path:
    return write_store(tmp_path_factory.mktemp("runs"), make_stages(range(3)))


@pytest.fixture(scope="session")
def report(runs) -> Report:
    return make_report(read_store(runs))
