"""The page as a browser sees it, at the width of a desk and of a phone."""

import html
import re
import shutil
import subprocess

import pytest

from lmc.report import write_report
from run_folders import confused, lines, summary, write_run

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(BROWSER is None, reason="no chromium, chromium-browser or google-chrome"),
]

# The page within a frame of the size: opened details included, its widths end up in the title.
FRAME = """<!DOCTYPE html><title>not loaded</title>
<iframe srcdoc="{page}" style="border:0;width:{width}px;height:{height}px"></iframe>
<script>
addEventListener("load", () => {{
  const inside = document.querySelector("iframe").contentDocument;
  inside.querySelectorAll("details").forEach(details => {{ details.open = true; }});
  const root = inside.documentElement;
  const tables = [...inside.querySelectorAll(".scroll")].filter(box => box.scrollWidth > box.clientWidth);
  const results = inside.querySelector(".scroll");
  document.title = `${{root.scrollWidth}} of ${{root.clientWidth}}, ${{tables.length}} scroll, `
    + `results ${{results.scrollWidth}} of ${{results.clientWidth}}`;
}});
</script>"""


def browse(file, profile, *options):
    """What a browser prints about a page: its DOM, and its log."""
    done = subprocess.run(
        [
            BROWSER,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            f"--user-data-dir={profile}",
            "--enable-logging=stderr",
            *options,
            "--dump-dom",
            file.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    long = "a_run_whose_name_is_much_longer_than_any_phone_is_wide_and_has_no_space_to_break_it_at"
    runs = []
    for name, level, classes in (("lmc", 0.72, 40), ("gas", 0.7, 12), (long, 0.6, 20)):
        records = lines(30, level, gradient_error=True)
        runs.append(
            write_run(folder / name, records, summary(records, confused(classes, 40_000)), method=name)
        )
    runs.append(write_run(folder / "going", lines(4)))
    return write_report(runs, folder / "report.html")


@pytest.mark.parametrize(("width", "height"), [(1200, 900), (390, 844)])
def test_the_page_fits_its_window_and_logs_nothing(page, tmp_path, width, height):
    wrapper = tmp_path / "frame.html"
    wrapper.write_text(FRAME.format(page=html.escape(page.read_text()), width=width, height=height))
    dom, log = browse(wrapper, tmp_path / "profile", f"--window-size={width + 50},{height + 50}")
    found = re.search(r"<title>(\d+) of (\d+), (\d+) scroll, results (\d+) of (\d+)</title>", dom)
    assert found, dom[:300]
    needed, given, scrolling, table, box = map(int, found.groups())
    assert width - 20 <= given <= width, "the page has the width of the frame, but for a scroll bar"
    assert needed <= given, "the page itself never scrolls sideways"
    assert width > 400 or scrolling >= 3, "wide tables scroll in their own boxes"
    assert width < 1200 or table <= box, "on a desk, all of the results are seen"
    assert "CONSOLE" not in log, log


def test_the_page_by_itself_logs_nothing(page, tmp_path):
    dom, log = browse(page, tmp_path / "profile")
    assert "4 training runs" in dom
    assert "CONSOLE" not in log, log


def test_an_error_would_be_seen_in_the_log(page, tmp_path):
    broken = tmp_path / "broken.html"
    broken.write_text(page.read_text().replace("</main>", "<img src='https://example.org/x.png'></main>"))
    assert "CONSOLE" in browse(broken, tmp_path / "profile")[1], "the page's own policy refuses it"
