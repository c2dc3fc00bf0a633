#!/usr/bin/env python3
"""Checks the server's page in a real browser (Debian's chromium and chromium-driver, and the Python
package selenium).

    python3 tools/check_page.py build/release/walsh models/walsh-tiny-13m [--picture page.png]

Most cases put a server of their own in front of walsh, which serves its page and answers chats
with texts that the case chooses, so that even a hostile model can be simulated. Ends with the
number of cases, status 1 if one failed, 77 with a message where there is no browser or no selenium.
"""
import argparse
import base64
import pathlib
import re
import sys
import tempfile
import time

import page_texts
from page_browser import By, Front, Keys, Page, Walsh, WebDriverException, can_start, start_browser


def plain(html):
    """Returns the markup of a body with its links shortened."""
    return re.sub(r'<a href="([^"]*)" target="_blank" rel="noopener noreferrer nofollow"'
                  r' title="[^"]*">', r"LINK(\1)", html)


def chat_cases(page, walsh):
    """Yields cases with the model itself."""
    page.open(walsh.url)
    page.set_sampling(max_tokens=24, seed=7, temperature=0.7)
    facts = page.facts()
    yield "facts of the model are shown", facts["weights"].endswith("16.00 bits") and (
        facts["cache"] == "f16")
    page.ask("The city of")
    first = page.texts()
    yield "an answer comes", len(first) == 2 and first[0] == "The city of" and first[1]
    facts = page.facts()
    yield "its figures are shown", float(facts["tokens/s"]) > 0 and "first token" in facts and (
        not facts["context"].startswith("0 "))
    yield "a limit is told", "reached its limit" in page.figures()
    page.press("Retry")
    page.done()
    yield "the same seed answers the same", page.texts() == first
    page.press("Continue")
    page.done()
    longer = page.texts()
    yield "an answer can be continued", longer[1].startswith(first[1]) and longer[1] != first[1]
    page.browser.refresh()
    page.wait(lambda: len(page.texts()) == 2)
    yield "reload keeps the conversation", page.texts() == longer


def stream_cases(page, front):
    """Yields cases of streaming, stopping and keys."""
    page.open(front.url)
    front.script, front.pause = [f"w{i} " for i in range(2000)], 0.01
    page.send("go")
    page.wait(lambda: page.texts()[-1].startswith("w0"))
    seen = set()
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        seen.add(page.texts()[-1])
    yield "text comes in pieces", len(seen) >= 3
    live = page.facts()
    yield "figures are live", float(live["tokens/s"]) > 0 and "first token" in live
    page.find("#stop").click()
    page.done()
    stopped = page.texts()[-1]
    page.wait(lambda: front.cut == 1)
    yield "stop ends the answer at the server", True
    time.sleep(0.2)
    yield "and keeps what was said", page.texts()[-1] == stopped and "stopped" in page.figures()
    page.press("Retry")
    page.wait(lambda: page.texts()[-1].startswith("w0 w1"))
    page.type(Keys.ESCAPE)
    page.done()
    page.wait(lambda: front.cut == 2)
    yield "Escape stops", "stopped" in page.figures()
    page.press("Retry")
    page.wait(lambda: page.texts()[-1].startswith("w0 w1 w2"))
    time.sleep(0.7)
    page.browser.refresh()
    page.wait(lambda: len(page.texts()) == 2)
    yield "reload while it streams keeps the beginning", page.texts()[-1].startswith("w0 w1 w2")
    front.script, front.pause = ["short"], 0
    page.find("#settings-open").click()
    page.find("#system").send_keys("Be brief.")
    page.find("#settings button[value=close]").click()
    page.press("Edit", 0)
    page.type(Keys.CONTROL, "a", Keys.NULL)
    page.type("one", Keys.SHIFT, Keys.ENTER, Keys.NULL, "two", Keys.ENTER)
    page.wait(lambda: page.texts() == ["one\ntwo", "short"])
    yield "a message can be edited, Shift+Enter begins a line", True
    yield "the system prompt is sent", front.requests[-1]["messages"] == [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": "one\ntwo"}]
    page.done()
    page.type(Keys.CONTROL, Keys.ALT, "n", Keys.NULL)
    page.wait(lambda: page.texts() == [])
    page.ask("second")
    yield "conversations are listed", page.titles() == ["second", "go"]
    page.browser.find_elements(By.CSS_SELECTOR, "#list .title")[1].click()
    page.wait(lambda: page.texts() == ["one\ntwo", "short"])
    yield "and can be returned to", True
    page.find("#list li.current .remove").click()
    page.wait(lambda: page.texts() == [])
    yield "and deleted", page.run("return Object.keys(localStorage)"
                                  ".filter((k) => k.includes('conversation')).length") == 1


def hostile_cases(page, front):
    """Yields cases where a model's text must never be interpreted as markup or script."""
    page.open(front.url)
    front.pause = 0
    page.run("window.pwned = 0")
    for text in page_texts.HOSTILE:
        front.script = list(text.replace("HERE", front.url))
        page.ask(text)
    inside = set(page.run("return [...document.querySelectorAll('.body *')]"
                          ".map((n) => n.nodeName)"))
    links = page.run("return [...document.querySelectorAll('.body a')].map((a) => a.protocol)")
    attributes = set(page.run("return [...document.querySelectorAll('.body *')]"
                              ".flatMap((n) => n.getAttributeNames())"))
    page.run("document.querySelectorAll('.body a').forEach((a) => a.removeAttribute('target'))")
    time.sleep(0.3)
    yield "only elements of markdown are made", inside <= page_texts.ALLOWED | page_texts.FORMULAS
    yield "links lead to the web only", set(links) <= {"https:", "http:", "mailto:"}
    yield "without attributes of the model's", attributes <= {
        "href", "target", "rel", "title", "class", "type", "start", "display", "stretchy", "width",
        "linethickness"}
    yield "no script of the model's runs", page.run("return window.pwned") == 0
    yield "nothing is fetched", front.stolen == []
    page.browser.refresh()
    page.wait(lambda: len(page.texts()) == 2 * len(page_texts.HOSTILE))
    yield "nor after a reload", page.run("return window.pwned") is None and front.stolen == []
    refused = page.run("try { document.body.innerHTML = '<b>x</b>'; return false; }"
                       "catch (error) { return error.name; }")
    yield "scripts cannot make markup", refused == "TypeError"
    blocked = page.browser.execute_async_script(
        "fetch(arguments[0]).then(() => arguments[1](false), () => arguments[1](true))",
        "http://localhost:1/")
    yield "nor reach other servers", blocked
    page.open(front.url)
    start = time.monotonic()
    for text in page_texts.LONG:
        front.script = [text]
        page.ask("go")
    yield "long nonsense is shown", len(page.texts()) == 2 * len(page_texts.LONG)
    taken = time.monotonic() - start
    print(f"  {len(page_texts.LONG)} of up to 150,000 characters in {taken:.1f} s")


def markdown_cases(page, front):
    """Yields cases of markdown, at once and letter by letter."""
    page.open(front.url)
    front.pause = 0
    whole = page_texts.MARKDOWN
    for name, script in (("at once", [whole]), ("in pieces", list(whole))):
        front.script = script
        page.ask("go")
        html = page.run("return [...document.querySelectorAll('.body')].at(-1).innerHTML")
        good = plain(html) == page_texts.RENDERED
        if not good:
            print(plain(html))
        yield f"markdown {name}", good
    for name, (text, expected) in page_texts.PIECES.items():
        for script in ([text], list(text)):
            front.script = script
            page.ask("go")
            html = page.run("return [...document.querySelectorAll('.body')].at(-1).innerHTML")
            if html != expected:
                print(html)
            yield f"{name}, in {len(script)} pieces", html == expected


def draft_cases(page, front):
    """Yields cases where drafts belong to their conversation."""
    page.open(front.url)
    front.script, front.pause = ["yes"], 0
    page.ask("one")
    page.type("draft of one")
    page.find("#new").click()
    yield "a draft does not show in a new conversation", page.typed() == ""
    page.type("draft of none")
    page.open_title("one")
    yield "it is there when its conversation is", page.typed() == "draft of one"
    page.find("#new").click()
    yield "nor does a draft of no conversation go away", page.typed() == "draft of none"
    page.browser.refresh()
    page.wait(lambda: page.titles() == ["one"])
    yield "drafts outlive a reload", page.typed() == "draft of none"
    page.open_title("one")
    page.press("Edit", 0)
    edited = page.typed()
    page.type(" two", Keys.ESCAPE)
    yield "Escape ends an edit and returns the draft", (edited, page.typed()) == (
        "one", "draft of one")
    page.press("Edit", 0)
    page.ask(" more")
    yield "an edit leaves the draft", page.typed() == "draft of one" and (
        page.texts() == ["one more", "yes"])
    page.ask("")
    page.browser.refresh()
    page.wait(lambda: len(page.texts()) == 4)
    yield "what was sent is no draft", page.typed() == ""


def failure_cases(page, front):
    """Yields cases of a server that becomes unreachable."""
    page.open(front.url)
    front.script, front.pause = ["yes"], 0
    front.down = True
    page.ask("still there?")
    page.wait(page.notice)
    yield "a server that is away is told in plain words", "cannot be reached" in page.notice() and (
        "fetch" not in page.notice())
    yield "the question stays", page.texts()[0] == "still there?"
    front.down = False
    page.press_notice()
    page.wait(lambda: page.texts() == ["still there?", "yes"])
    yield "and is asked again", not page.notice() and (
        [m["content"] for m in front.requests[-1]["messages"]] == ["still there?"])
    front.broken, front.script = True, ["The begin"]
    page.ask("and now?")
    yield "an answer that breaks off is told", "was lost" in page.notice() and (
        page.texts()[-1] == "The begin")
    front.broken, front.script = False, ["ning"]
    page.press_notice()
    page.wait(lambda: page.texts()[-1] == "The beginning")
    yield "and can be continued", True
    page.open(front.url)
    page.browser.execute_cdp_cmd("Network.enable", {})
    page.browser.execute_cdp_cmd("Network.setBlockedURLs", {"urls": ["*/props"]})
    page.browser.refresh()
    page.wait(page.notice)
    yield "a page without its model says so", "cannot be reached" in page.notice()
    page.send("hello")
    time.sleep(0.3)
    yield "and keeps what was typed", page.typed() == "hello"
    page.browser.execute_cdp_cmd("Network.setBlockedURLs", {"urls": []})
    front.script = ["hi"]
    page.press_notice()
    page.wait(lambda: page.texts() == ["hello", "hi"])
    yield "until it is sent", True


def tab_cases(page, front):
    """Yields cases of two tabs with the same conversation."""
    page.open(front.url)
    front.script, front.pause = ["yes"], 0
    page.ask("one")
    address, first = page.browser.current_url, page.browser.current_window_handle
    page.browser.switch_to.new_window("tab")
    second = page.browser.current_window_handle
    page.open(address, clear=False)

    def switch(tab):
        page.browser.switch_to.window(tab)

    page.wait(lambda: page.texts() == ["one", "yes"])
    page.ask("two")
    switch(first)
    page.wait(lambda: page.texts() == ["one", "yes", "two", "yes"])
    yield "a message of one tab shows in the other", True
    page.ask("three")
    switch(second)
    whole = ["one", "yes", "two", "yes", "three", "yes"]
    page.wait(lambda: page.texts() == whole)
    page.browser.refresh()
    page.wait(lambda: len(page.texts()) == 6)
    yield "and none is lost", page.texts() == whole
    yield "the model is asked with all", [m["content"] for m in front.requests[-1]["messages"]] == (
        whole[:5])
    front.script, front.pause = [f"w{i} " for i in range(40)], 0.05
    page.send("slow")
    switch(first)
    page.wait(lambda: page.texts()[-1].startswith("w0"))
    front.script, front.pause = ["quick"], 0
    page.ask("meanwhile")
    switch(second)
    page.done()
    page.wait(lambda: len(page.texts()) == 10)
    both = page.texts()
    switch(first)
    page.wait(lambda: page.texts() == both)
    yield "answers that come in both at once are kept", both[6:] == [
        "slow", both[7], "meanwhile", "quick"] and both[7].strip().endswith("w39")
    page.press("Retry")
    page.done()
    page.press("Edit", 0)
    page.type(Keys.CONTROL, "a", Keys.NULL)
    page.ask("ONE")
    switch(second)
    page.wait(lambda: page.texts() == ["ONE", "quick"])
    page.ask("end")
    page.browser.refresh()
    page.wait(lambda: len(page.texts()) == 4)
    stored = "return localStorage.getItem('walsh.conversation.' + location.hash.slice(1))"
    older = page.run(stored)
    page.ask("last")
    switch(first)
    page.wait(lambda: len(page.texts()) == 6)
    page.run("localStorage.setItem('walsh.conversation.' + location.hash.slice(1), arguments[0])",
             older)
    switch(second)
    page.wait(lambda: "last" in page.run(stored))
    yield "what another tab wrote over is written again", len(page.texts()) == 6
    page.press("Edit", -2)
    page.type(Keys.CONTROL, "a", Keys.NULL)
    page.ask("so")
    switch(first)
    page.wait(lambda: page.texts() == ["ONE", "quick", "end", "quick", "so", "quick"])
    switch(second)
    yield "what one tab removes stays away", (
        page.texts()[:5] == ["ONE", "quick", "end", "quick", "so"])
    page.type("a draft")
    switch(first)
    page.wait(lambda: len(page.texts()) == 6)
    yield "a draft stays in its tab", page.typed() == ""
    front.script, front.pause = [f"w{i} " for i in range(2000)], 0.01
    page.send("on and on")
    page.wait(lambda: page.texts()[-1].startswith("w0"))
    switch(second)
    page.wait(lambda: len(page.texts()) == 8)
    page.find("#list li.current .remove").click()
    switch(first)
    page.wait(lambda: page.texts() == [])
    time.sleep(0.7)
    yield "a deleted conversation does not come back", page.titles() == [] and (
        page.run("return Object.keys(localStorage).length") == 0)
    page.browser.close()
    switch(second)


def phone_cases(page, front):
    """Yields cases on a small screen."""
    page.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
        "width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True})
    page.open(front.url)
    front.script = ["word " * 100, "\n```\n" + "x" * 500 + "\n```\n", "y" * 500]
    page.ask("go")
    width = page.run("return [document.documentElement.scrollWidth, innerWidth]")
    yield "nothing is wider than a phone", width == [390, 390]
    yield "the list is away", not page.find("#list").is_displayed()
    page.find("#side-open").click()
    page.wait(lambda: page.find("#list .title").is_displayed())
    yield "and comes by its button", True
    page.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def key_cases(page, options):
    """Yields cases of a server that requires a key."""
    walsh = Walsh(options.walsh, options.model, "--api-key", "secret")
    try:
        page.open(walsh.url)
        yield "a missing key is told", "API key" in page.notice()
        page.find("#settings-open").click()
        page.find("#key").send_keys("secret")
        page.find("#settings button[value=close]").click()
        page.wait(lambda: not page.notice())
        page.set_sampling(max_tokens=4)
        page.ask("hello")
        yield "with the key the model answers", len(page.texts()) == 2 and not page.notice()
        yield "the key is not kept", "secret" not in page.run("return JSON.stringify(localStorage)")
    finally:
        walsh.stop()


# Gives the page a file as if it were pasted or dropped; large ones are made in the browser.
GIVE = """
const [kind, text, name, type, side] = arguments, data = new DataTransfer();
const give = (file) => {
  data.items.add(file);
  const init = {bubbles: true, cancelable: true};
  document.getElementById('input').dispatchEvent(kind === 'paste'
      ? new ClipboardEvent(kind, {...init, clipboardData: data})
      : new DragEvent(kind, {...init, dataTransfer: data}));
};
if (!side) {
  give(new File([Uint8Array.from(atob(text), (c) => c.charCodeAt(0))], name, {type}));
} else {
  const canvas = document.createElement('canvas');
  canvas.width = canvas.height = side;
  const to = canvas.getContext('2d'), noise = to.createImageData(side, side);
  for (let i = 0; i < noise.data.length; ++i) noise.data[i] = (i * 7919) ** 2 % 251;
  to.putImageData(noise, 0, 0);
  canvas.toBlob((blob) => give(new File([blob], name, {type})), type);
}
"""
VISION = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data" / "vision"


def picture_cases(page, walsh, options):
    """Yields cases of images that are pasted and dropped."""
    file = base64.b64encode((VISION / "images" / "alpha.png").read_bytes()).decode()
    page.open(walsh.url)
    page.run(GIVE, "paste", file, "a.png", "image/png", 0)
    yield "a model without a tower takes no image", "takes no images" in page.notice()
    seeing = Walsh(options.walsh, str(VISION / "mistral3-chat"))
    shown = "return [...document.querySelectorAll('%s img')].map((image) => image.src)"
    waiting, said = (lambda: page.run(shown % "#pictures")), (lambda: page.run(shown % ".shown"))
    try:
        page.open(seeing.url)
        page.set_sampling(max_tokens=8, temperature=0)
        page.run(GIVE, "paste", file, "a.png", "image/png", 0)
        page.wait(waiting)
        yield "a pasted image waits as it is", waiting() == ["data:image/png;base64," + file]
        page.run(GIVE, "drop", "", "large.png", "image/png", 1500)
        page.wait(lambda: len(waiting()) == 2)
        yield "a large one is made smaller", waiting()[1].startswith("data:image/jpeg") and (
            len(waiting()[1]) < 2_000_000)
        page.find("#pictures button:last-child").click()
        yield "an image can be removed", len(waiting()) == 1
        page.ask("Look")
        yield "the model answers to it", len(page.texts()) == 2 and not page.notice()
        yield "the message shows it", len(said()) == 1 and not waiting()
        page.browser.refresh()
        page.wait(lambda: len(page.texts()) == 2)
        yield "a reload keeps it", len(said()) == 1
        page.run(GIVE, "paste", "AAAA", "broken.png", "image/png", 0)
        page.wait(waiting)
        page.ask("Look")
        yield "the server's reason is told", "image 2" in page.notice()
    finally:
        seeing.stop()


def take_picture(page, options):
    """Takes a picture of a conversation with the real model in three bits."""
    walsh = Walsh(options.walsh, options.model, "--quantize", "tq3", "-ctk", "tq3_0", "-ctv",
                  "tq3_0")
    try:
        page.open(walsh.url)
        page.set_sampling(max_tokens=70, seed=5, temperature=0.5, repeat_penalty=1.2)
        for text in ("The old town", "The river"):
            page.ask(text)
        pathlib.Path(options.picture).write_bytes(page.browser.get_screenshot_as_png())
    finally:
        walsh.stop()


def cases(page, walsh, options):
    """Yields names, and whether the cases hold."""
    front = Front(walsh.url)
    groups = [chat_cases(page, walsh)]
    groups += [made(page, front) for made in (
        stream_cases, markdown_cases, draft_cases, failure_cases, tab_cases, hostile_cases,
        phone_cases)]
    for group in [*groups, key_cases(page, options), picture_cases(page, walsh, options)]:
        name = group.__name__
        last = name
        try:
            for last, holds in group:
                yield last, holds
        except WebDriverException as error:
            front.reset()
            yield f"{name}: {str(error).splitlines()[0]} behind '{last}'", False


def main():
    """Runs all cases and reports each that fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("walsh")
    parser.add_argument("model")
    parser.add_argument("--picture", help="also write a picture of the page")
    options = parser.parse_args()
    if not can_start():
        print("skipped: needs chromium, chromium-driver and the Python package selenium")
        return 77
    walsh = Walsh(options.walsh, options.model)
    count = failed = 0
    with tempfile.TemporaryDirectory() as profile:
        browser = start_browser(profile)
        try:
            page = Page(browser)
            for name, holds in cases(page, walsh, options):
                count += 1
                if not holds:
                    failed += 1
                    print(f"FAILED: {name}")
            if options.picture:
                take_picture(page, options)
        finally:
            browser.quit()
            walsh.stop()
    print(f"{count} cases, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
