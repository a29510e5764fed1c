# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium, spoken to in the DevTools protocol over a pair of pipes: nothing but Python's own library."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time


def find():
    """Chromium's path, or None."""
    return os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


class Browser:
    """One browser with one tab. Every wait ends."""

    def __init__(self, program):
        self.profile = tempfile.mkdtemp(prefix="hami-chromium-")
        to_browser, self.to = os.pipe()
        self.of, of_browser = os.pipe()
        flags = [
            "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-extensions", "--disable-sync",
            "--hide-scrollbars", "--force-device-scale-factor=1", "--window-size=1280,900",
            f"--user-data-dir={self.profile}", "--remote-debugging-pipe", "about:blank",
        ]  # fmt: skip
        # Chromium reads its descriptor 3 and writes its descriptor 4.
        script = f'exec 3<&{to_browser} 4>&{of_browser} {to_browser}<&- {of_browser}>&-; exec "$@"'
        if {to_browser, of_browser} & {3, 4}:
            script = f'exec 10<&{to_browser} 11>&{of_browser}; exec 3<&10 4>&11 10<&- 11>&-; exec "$@"'
        self.process = subprocess.Popen(
            ["bash", "-c", script, "bash", program, *flags],
            pass_fds=(to_browser, of_browser), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_browser)
        os.close(of_browser)
        self.buffer = b""
        self.number = 0
        self.session = None
        self.events = []
        targets = self.send("Target.getTargets")["targetInfos"]
        tab = next(t["targetId"] for t in targets if t["type"] == "page")
        self.session = self.send("Target.attachToTarget", targetId=tab, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            self.send(domain + ".enable")

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.to)
        os.close(self.of)
        shutil.rmtree(self.profile, ignore_errors=True)

    def _read(self, deadline):
        while b"\0" not in self.buffer:
            if not select.select([self.of], [], [], max(0, deadline - time.monotonic()))[0]:
                raise TimeoutError("the browser says nothing")
            piece = os.read(self.of, 1 << 20)
            if not piece:
                raise EOFError("the browser ended")
            self.buffer += piece
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def send(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + 30
        while True:
            answer = self._read(deadline)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            if "method" in answer:
                self.events.append(answer)

    def run(self, expression):
        """The value of a JavaScript expression, awaited."""
        answer = self.send("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait(self, expression, seconds=15):
        """Until EXPRESSION is true; its value."""
        deadline = time.monotonic() + seconds
        while True:
            value = self.run(expression)
            if value:
                return value
            if time.monotonic() > deadline:
                raise AssertionError(f"never true: {expression}; the page says: {self.run('document.body.innerText')[:600]}")
            time.sleep(0.02)

    def open(self, url):
        self.send("Page.navigate", url=url)
        self.wait(f"location.href.startsWith({json.dumps(url)}) && document.documentElement?.dataset.ready")

    def key(self, name, code=None):
        text = {"Enter": "\r", " ": " "}.get(name, "")
        codes = {"Enter": 13, "Escape": 27, "Tab": 9, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38,
                 "ArrowRight": 39, "ArrowDown": 40, "PageDown": 34}  # fmt: skip
        common = {"key": name, "code": code or name, "windowsVirtualKeyCode": codes.get(name, 0)}
        self.send("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
        self.send("Input.dispatchKeyEvent", type="keyUp", **common)

    def picture(self, path):
        data = self.send("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def emulate(self, scheme="light", language="en"):
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.send("Emulation.setUserAgentOverride", userAgent="hami-test", acceptLanguage=language)

    def tree(self):
        """The accessibility tree: (role, name) of what is not ignored."""
        nodes = self.send("Accessibility.getFullAXTree")["nodes"]
        value = lambda node, key: node.get(key, {}).get("value", "")  # noqa: E731
        return [(value(n, "role"), value(n, "name")) for n in nodes if not n.get("ignored")]
