"""Chromium without a window, spoken to over a pipe: no driver, no port, no network."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium")
_FLAGS = (
    "--headless",
    "--disable-gpu",
    "--no-sandbox",  # root, as in a container, has none
    "--no-first-run",
    "--disable-background-networking",
    "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--remote-debugging-pipe",
    "--window-size=1500,1200",
)


class Browser:
    """A page of Chromium; a context manager.

    Attributes:
        requested: addresses that pages asked for.
        errors: what scripts threw.
    """

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM is not None
        theirs_in, self._write = os.pipe()
        self._read, theirs_out = os.pipe()
        script = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}'
        self._process = subprocess.Popen(
            ["bash", "-c", script, CHROMIUM, *_FLAGS, f"--user-data-dir={profile}"],
            pass_fds=(theirs_in, theirs_out),
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self.requested: list[str] = []
        self.errors: list[str] = []
        self._number = 0
        self._session: str | None = None
        self._buffer = b""

    def __enter__(self) -> Browser:
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network"):
            self._call(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._write)
        self._process.terminate()
        self._process.wait(10)
        os.close(self._read)

    def open(self, path: Path) -> None:
        """Load a file, until its scripts have run."""
        self._call("Page.navigate", url=path.resolve().as_uri())
        self.wait_for("document.readyState === 'complete' && location.protocol === 'file:'")

    def run(self, script: str) -> Any:
        """The value of an expression."""
        done = self._call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def wait_for(self, script: str, seconds: float = 20) -> None:
        """Until an expression is true."""
        end = time.monotonic() + seconds
        while not self._holds(script):
            assert time.monotonic() < end, f"in vain for {script}"
            time.sleep(0.02)

    def _holds(self, script: str) -> bool:
        """Is it true? Not while the page gives way to another."""
        try:
            return bool(self.run(script))
        except AssertionError as error:
            if "navigated" in str(error):
                return False
            raise

    def click(self, element: str) -> None:
        """A click in the middle of an element, given as an expression."""
        self.run(f"void {element}.scrollIntoView({{block: 'center'}})")
        x, y = self.run(
            f"(() => {{const b = {element}.getBoundingClientRect();"
            "return [b.x + b.width / 2, b.y + b.height / 2]})()"
        )
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def type(self, element: str, text: str) -> None:
        """Click into a field, and type instead of what it holds."""
        self.click(element)
        self.run(f"{element}.select()")
        self._call("Input.insertText", text=text)

    def press(self, key: str) -> None:
        """A key down and up, where the focus is: scripts hear of it."""
        for kind in ("keyDown", "keyUp"):
            self._call("Input.dispatchKeyEvent", type=kind, key=key)

    def resize(self, width: int, height: int) -> None:
        """Show pages as on a screen of this size, in CSS pixels."""
        self._call(
            "Emulation.setDeviceMetricsOverride",
            **{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
        )

    def screenshot(self, path: Path) -> None:
        """What is in sight, as a PNG."""
        path.write_bytes(base64.b64decode(self._call("Page.captureScreenshot")["data"]))

    def _call(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            if answer.get("method") == "Network.requestWillBeSent":
                self.requested.append(answer["params"]["request"]["url"])
            if answer.get("method") == "Runtime.exceptionThrown":
                self.errors.append(str(answer["params"]["exceptionDetails"]))

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            part = os.read(self._read, 1 << 16)
            assert part, "the browser is gone"
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer
