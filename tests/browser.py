"""Find or bring a browser for the tests: `python -m tests.browser`.

One that is installed, else Playwright's own, else Debian's chromium where we are root. Where none can
be had, that is said, and the browser tests are left out; with CLOZE_REQUIRE_BROWSER=1 they fail.
"""

import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = [
    "--no-sandbox",  # tests run as root in containers
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def find() -> str | None:
    """Path of a browser that Playwright can drive."""
    for name in NAMES:
        if path := shutil.which(name):
            return path
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if os.path.exists(path) else None


def _try(*command: str) -> bool:
    try:
        subprocess.run(command, check=True, timeout=600)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"{' '.join(command)} failed: {error}", file=sys.stderr)
        return False
    return True


def bring() -> str | None:
    if path := find():
        return path
    _try(sys.executable, "-m", "playwright", "install", "chromium")
    if path := find():
        return path
    if os.geteuid() == 0 and shutil.which("apt-get"):
        _try("apt-get", "update")
        _try("apt-get", "install", "--yes", "--no-install-recommends", "chromium")
    return find()


if __name__ == "__main__":
    browser = bring()
    print(f"Browser tests use {browser}." if browser else "No browser: browser tests are left out.")
    if browser is None and os.environ.get("CLOZE_REQUIRE_BROWSER"):
        sys.exit(1)
