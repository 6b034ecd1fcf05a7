"""The report in a real browser: it fits a phone and a desk, loads nothing, and follows light and dark."""

import json
import re
import shutil
import subprocess
from html import escape, unescape

import pytest
from tests.stores import make_stages, write_store

from leco.reports.page import to_html
from leco.reports.report import make_report
from leco.reports.stored import read_store

_BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(_BROWSER is None, reason="no Chromium is installed")

# The page has no scripts, so a frame around it measures it; its own policy forbids the frame nothing.
_FRAME = """<!doctype html><body>
<iframe id="page" style="border:0;width:{width}px;height:900px" srcdoc="{page}"></iframe>
<pre id="found"></pre><script>
window.addEventListener("load", () => {{
  const frame = document.getElementById("page"), inside = frame.contentDocument, root = inside.documentElement;
  inside.querySelectorAll("details").forEach(d => d.open = true);
  const images = [...inside.images];
  document.getElementById("found").textContent = JSON.stringify({{
    width: root.clientWidth, scroll: root.scrollWidth, tables: inside.querySelectorAll("table").length,
    wide: [...inside.querySelectorAll(".scroll")].filter(d => d.scrollWidth > d.clientWidth).length,
    broken: images.filter(i => !i.complete || !i.naturalWidth).length, images: images.length,
    loaded: frame.contentWindow.performance.getEntriesByType("resource").map(e => e.name.slice(0, 40)),
    background: frame.contentWindow.getComputedStyle(inside.body).backgroundColor,
    alerts: inside.scripts.length,
  }});
}});
</script>"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    runs = tmp_path_factory.mktemp("runs")
    write_store(runs, make_stages(range(3)))
    write_store(runs, make_stages(range(2), batches={"steps": 80}))
    return to_html(make_report(read_store(runs)))


def measure(page, folder, width, dark=False):
    path = folder / "frame.html"
    path.write_text(_FRAME.format(width=width, page=escape(page)))
    command = [_BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
    command += ["--disable-background-networking", f"--user-data-dir={folder / 'profile'}"]
    command += [f"--blink-settings=preferredColorScheme={0 if dark else 1}", "--window-size=1400,1000"]
    command += ["--virtual-time-budget=10000", "--dump-dom", path.as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    found = re.search(r'<pre id="found">(.*?)</pre>', shown, re.DOTALL)
    return json.loads(unescape(found[1]))


@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_fits_and_loads_nothing(page, tmp_path, width):
    found = measure(page, tmp_path, width)
    assert found["scroll"] <= found["width"] <= width
    assert found["tables"] >= 8
    assert found["images"] >= 8
    assert found["broken"] == 0
    assert all(name.startswith("data:") for name in found["loaded"])
    assert found["alerts"] == 0
    if width == 390:
        assert found["wide"] > 0  # tables scroll inside their own boxes


def test_the_page_follows_light_and_dark(page, tmp_path):
    light, dark = (measure(page, tmp_path, 800, dark)["background"] for dark in (False, True))
    assert light == "rgb(255, 255, 255)"
    assert dark != light
