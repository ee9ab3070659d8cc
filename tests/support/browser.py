"""A real headless Chromium, and what it says about a page."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--hide-scrollbars", "--force-device-scale-factor=1", "--disable-dev-shm-usage",
)  # fmt: skip
PATIENCE_S = 60
"""The longest that a page may take to answer."""


def missing() -> str | None:
    """Return why no browser can be used; None where one can."""
    for program in ("chromium", "chromedriver"):
        if shutil.which(program) is None:
            return f"{program} is not installed (Debian: chromium, chromium-driver)"
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "selenium is not installed"
    return None


class Browser:
    """One window, whose size and colour scheme can be set."""

    def __init__(self, folder: Path) -> None:
        from selenium.webdriver import Chrome
        from selenium.webdriver.chrome.options import Options
        from selenium.webdriver.chrome.service import Service

        options = Options()
        for flag in (*FLAGS, f"--user-data-dir={folder}"):
            options.add_argument(flag)
        options.binary_location = str(shutil.which("chromium"))
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = Chrome(options, Service(shutil.which("chromedriver"), log_output=os.devnull))
        self.driver.command_executor.client_config.timeout = PATIENCE_S

    def close(self) -> None:
        """End the browser, even if its page never ends: its driver would wait for that, and leave it running."""
        os.kill(self.driver.capabilities["goog:processID"], signal.SIGKILL)
        self.driver.quit()

    def size(self, width: int, height: int) -> None:
        """Set the size of the page in points."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def scheme(self, name: str) -> None:
        """Set the colour scheme, `light` or `dark`."""
        features = [{"name": "prefers-color-scheme", "value": name}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def open(self, page: Path) -> None:
        """Open a file, and forget what was said before."""
        self.driver.get("about:blank")
        self.driver.get_log("browser")
        self.driver.get_log("performance")
        self.driver.get(page.resolve().as_uri())

    def complaints(self) -> list[str]:
        """Return what the console has said: errors, warnings, violations."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """Return what was asked for besides the page itself."""
        asked = []
        for entry in self.driver.get_log("performance"):
            event = json.loads(entry["message"])["message"]
            if event["method"] == "Network.requestWillBeSent":
                asked.append(event["params"]["request"]["url"])
        return [url for url in asked if not url.startswith(("file://", "about:"))]

    def run(self, script: str, *values: Any) -> Any:
        """Return what a function body returns in the page."""
        return self.driver.execute_script(script, *values)

    def wait(self, script: str, seconds: float = 10) -> None:
        """Wait until a function body returns something true in the page."""
        end = time.monotonic() + seconds
        while not self.run(script) and time.monotonic() < end:
            time.sleep(0.01)

    def all(self, selector: str) -> list[Any]:
        """Return the elements that fit a selector."""
        return self.driver.find_elements("css selector", selector)

    def one(self, selector: str) -> Any:
        """Return the first element that fits a selector."""
        return self.driver.find_element("css selector", selector)

    def picture(self) -> bytes:
        """Return the window as PNG."""
        return self.driver.get_screenshot_as_png()

    def difference(self, one: bytes, other: bytes) -> float:
        """Return how far apart two pictures are, 0 to 255, after both were made small: fonts differ
        from machine to machine, a page does not.
        """
        self.driver.get("about:blank")
        urls = ["data:image/png;base64," + base64.b64encode(png).decode() for png in (one, other)]
        return self.driver.execute_async_script(_COMPARE, *urls)


_COMPARE = """
const [one, other, done] = arguments, w = 48, h = 48;
const small = url => new Promise(resolve => {
  const image = new Image();
  image.onload = () => {
    const canvas = document.createElement('canvas'), context = canvas.getContext('2d');
    canvas.width = w; canvas.height = h;
    context.imageSmoothingQuality = 'high';
    context.drawImage(image, 0, 0, w, h);
    resolve(context.getImageData(0, 0, w, h).data);
  };
  image.src = url;
});
Promise.all([small(one), small(other)]).then(([a, b]) => {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += Math.abs(a[i] - b[i]);
  done(sum / a.length);
});
"""


def started(folder: Path) -> Iterator[Browser]:
    """Yield a browser; without one, skip and say why."""
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    browser = Browser(folder)
    try:
        yield browser
    finally:
        browser.close()
