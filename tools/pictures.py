"""The README's picture of a run: python -m tools.pictures --run=miron-results

Arrives: an output folder of eval.  Leaves: docs/images/report.png, by headless Chromium.  It
deliberately does not run a model.  Needs playwright (extra `test`) and Chromium.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from absl import app, flags
from playwright.sync_api import sync_playwright

RUN = flags.DEFINE_string("run", "miron-results", "Output folder of eval with several steps.")
IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
WIDTH, HEIGHT = 1180, 900  # CSS pixels


def main(_: list[str]) -> None:
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        page_file = Path(scratch) / "report.html"
        command = [sys.executable, "-m", "miron_jax", "report", RUN.value, f"--html={page_file}"]
        subprocess.run(command, check=True, capture_output=True)
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        page.goto(page_file.as_uri())
        page.wait_for_timeout(1000)
        page.screenshot(path=IMAGES / "report.png")
        browser.close()


if __name__ == "__main__":
    app.run(main)
