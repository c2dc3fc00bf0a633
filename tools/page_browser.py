"""Helps tools/check_page.py: opens the page in a browser, and runs servers for it."""
import http.server
import json
import re
import shutil
import subprocess
import threading
import time
import urllib.request

try:
    from selenium import webdriver
    from selenium.common.exceptions import WebDriverException
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import WebDriverWait
except ImportError:
    webdriver = By = Keys = None
    WebDriverException = Exception

PATIENCE = 30  # the test waits this many seconds for a change


class Front(http.server.ThreadingHTTPServer):
    """Serves walsh's page and answers chats with the pieces of `script`."""
    daemon_threads = True

    def __init__(self, behind):
        super().__init__(("127.0.0.1", 0), FrontHandler)
        self.behind = behind
        self.requests = []  # these are bodies of chats
        self.stolen = []  # no page should make requests of these paths
        self.cut = 0  # the clients of this many answers disconnected
        self.reset()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def reset(self):
        """Restores the initial state."""
        self.script = []  # the next answer has these pieces
        self.pause = 0.0  # this many seconds lie between pieces
        self.down = False  # connections end without an answer
        self.broken = False  # answers end after the script


class FrontHandler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def parse_request(self):
        if not self.server.down:
            return super().parse_request()
        self.close_connection = True
        return False

    def do_GET(self):
        if self.path not in ("/", "/props"):
            self.server.stolen.append(self.path)
            self.send_error(404)
            return
        with urllib.request.urlopen(self.server.behind + self.path) as answer:
            body = answer.read()
            self.send_response(200)
            for name, value in answer.headers.items():
                if name not in ("Connection", "Server"):
                    self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append(body)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        try:
            for piece in self.server.script:
                self.event({"choices": [{"index": 0, "delta": {"content": piece}}]})
                time.sleep(self.server.pause)
            if self.server.broken:
                return
            self.event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
            self.event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 5,
                                                 "total_tokens": 12}})
            self.wfile.write(b"data: [DONE]\n\n")
        except OSError:
            self.server.cut += 1

    def event(self, chunk):
        self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        self.wfile.flush()


class Walsh:
    """Runs a server of walsh at a free port."""

    def __init__(self, command, model, *flags):
        self.process = subprocess.Popen(
            [command, "serve", model, "--device", "cpu", "--port", "0", "--alias", "tiny", *flags],
            stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            found = re.search(r"http://127\.0\.0\.1:\d+", line)
            if found:
                self.url = found.group()
                return
        raise SystemExit("the server did not start")

    def stop(self):
        self.process.terminate()
        self.process.wait(60)


class Page:
    """Opens the page in a browser."""

    def __init__(self, browser):
        self.browser = browser

    def open(self, url, clear=True):
        self.browser.get(url)
        if clear:
            self.run("localStorage.clear(); sessionStorage.clear();"
                     "history.replaceState(null, '', '/')")
            self.browser.get(url)
        self.wait(lambda: self.run("return document.title") == "tiny" or self.notice())

    def run(self, script, *values):
        return self.browser.execute_script(script, *values)

    def find(self, selector):
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def wait(self, condition, patience=PATIENCE):
        WebDriverWait(self.browser, patience, 0.02).until(lambda _: condition())

    def type(self, *keys):
        self.find("#input").send_keys(*keys)

    def press(self, label, message=-1):
        """Presses a button below a message."""
        tools = self.browser.find_elements(By.CSS_SELECTOR, ".message .tools")[message]
        next(b for b in tools.find_elements(By.TAG_NAME, "button") if b.text == label).click()

    def press_notice(self):
        """Presses the button of the notice."""
        self.find("#notice button").click()

    def titles(self):
        return self.run("return [...document.querySelectorAll('#list .title')]"
                        ".map((b) => b.innerText)")

    def open_title(self, title):
        self.run("[...document.querySelectorAll('#list .title')]"
                 ".find((b) => b.innerText === arguments[0]).click()", title)

    def typed(self):
        return self.run("return document.getElementById('input').value")

    def send(self, text):
        self.type(text, Keys.ENTER)

    def done(self):
        self.wait(lambda: self.find("#send").is_displayed())

    def ask(self, text):
        self.send(text)
        self.done()

    def texts(self):
        return self.run("return [...document.querySelectorAll('.message > .body')]"
                        ".map((b) => b.innerText)")

    def figures(self):
        return self.run("return [...document.querySelectorAll('.figures')].at(-1).textContent")

    def facts(self):
        return self.run("return Object.fromEntries([...document.querySelectorAll('#facts div')]"
                        ".map((r) => [r.dataset.fact, r.querySelector('dd').textContent]))")

    def notice(self):
        return self.run("return document.getElementById('notice').textContent")

    def set_sampling(self, **values):
        self.run("localStorage.setItem('walsh.settings', JSON.stringify(arguments[0]))", values)


def can_start():
    """Returns whether browser and driver for start_browser are installed."""
    return webdriver is not None and shutil.which("chromium") and shutil.which("chromedriver")


def start_browser(profile):
    """Starts Chromium without a window."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu",
                 "--window-size=1100,760", f"--user-data-dir={profile}", "--no-first-run",
                 "--disable-background-networking", "--disable-component-update", "--lang=en-US"):
        options.add_argument(flag)
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    return webdriver.Chrome(options=options, service=service)
