"""The app as a visitor meets it: first page of a fresh server, a slider move, resident memory.

Goals: first page within 4 s on idle cores with warm disk caches; a slider move re-renders in under
250 ms (median), of which the server takes under 100 ms; under 800 MB resident after page 3.
"""

import statistics
import tempfile
import time
from pathlib import Path

import psutil
from playwright.sync_api import sync_playwright

from tests import browser
from tests.server import ROOT, serve

SCRIPT_DONE = "[data-testid=stApp][data-test-script-state=notRunning]"


def first_page(running, folder):
    """Seconds until the prediction is visible: from starting the process, and from its answering."""
    start = time.perf_counter()
    with serve(folder / "log.txt") as server:
        answering = time.perf_counter()
        page = running.new_page()
        page.goto(f"{server.url}/Predicting_mask")
        page.wait_for_selector("text=other tokens share", timeout=60_000)
        end = time.perf_counter()
        page.close()
    return end - start, end - answering


def slider_moves(running, server, moves=20):
    """Milliseconds from a key press to the figures of the new position, and the server's share.

    Both passes visit every position; the second finds all results cached, as does a second visitor.
    """
    page = running.new_page(viewport={"width": 1280, "height": 1400})
    page.goto(f"{server.url}/Predicting_mask?p3_position=0")
    page.wait_for_selector("text=Pseudo-perplexity", timeout=60_000)
    page.wait_for_selector(SCRIPT_DONE)
    slider = page.get_by_role("slider", name="Hidden position")
    times = []
    for number in range(moves):
        word = page.locator("[data-testid=stMetricValue]").first
        before = word.inner_text()
        key = "ArrowRight" if number // 6 % 2 == 0 else "ArrowLeft"
        start = time.perf_counter()
        slider.press(key)
        page.wait_for_function(
            "old => document.querySelector('[data-testid=stMetricValue]').innerText !== old",
            arg=before,
            polling=5,
        )
        times.append(1000 * (time.perf_counter() - start))
        page.wait_for_selector(SCRIPT_DONE)
        page.wait_for_timeout(200)
    page.close()
    return times


def script_run():
    """Milliseconds of one run of page 3 on the server, without a browser."""
    from streamlit.testing.v1 import AppTest

    app = AppTest.from_file(ROOT / "streamlit_app.py", default_timeout=60).run()
    app.switch_page("pages/3_Predicting_mask.py").run()
    times = []
    for position in [0, 1, 3, 4, 5, 6, 0, 1, 2, 3]:
        app.slider(key="p3_position").set_value(position)
        start = time.perf_counter()
        app.run()
        times.append(1000 * (time.perf_counter() - start))
    return times


def main():
    folder = Path(tempfile.mkdtemp())
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=browser.find(), args=browser.ARGUMENTS)
        first_page(running, folder)  # warms the disk caches
        times = [first_page(running, folder) for _ in range(3)]
        whole, page = (statistics.median(column) for column in zip(*times, strict=True))
        print(f"first page: {page:.2f} s after the server answers, {whole:.2f} s after its start")
        with serve(folder / "log.txt") as server:
            moves = slider_moves(running, server)
            print(
                f"slider move: median {statistics.median(moves):.0f} ms, worst {max(moves):.0f} ms"
            )
            resident = psutil.Process(server.process.pid).memory_info().rss / 1e6
            print(f"resident memory after page 3: {resident:.0f} MB")
        running.close()
    runs = script_run()
    print(f"one script run on the server: median {statistics.median(runs):.0f} ms")


if __name__ == "__main__":
    main()
