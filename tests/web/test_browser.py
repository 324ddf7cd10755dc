"""The page of a quick report in headless Chromium: `make web-test`.

Each check is shown to notice a fault planted into the page.
"""

import dataclasses
import os
import re
import shutil

import pytest

from analysis.experiments.profile import profile
from figures.language import speaking
from figures.report.build import build

pytestmark = pytest.mark.web

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
MODES = {
    "light": {"color_scheme": "light", "viewport": {"width": 1200, "height": 900}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1200, "height": 900}},
    "phone": {"color_scheme": "light", "viewport": {"width": 375, "height": 667}},
}
QUANTITY = {"en": "temperature", "zh-CN": "温度"}


def _missing(what):
    """Skip what cannot be checked here, unless it was asked for."""
    if os.environ.get("EXPQK_WEB"):
        pytest.fail(what, pytrace=False)
    pytest.skip(what)


@pytest.fixture(scope="module")
def browser():
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _missing("the page is checked with playwright: pip install -e '.[web]'")
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None or shutil.which(found) is None:
        _missing("no Chromium: install the package chromium, or set CHROMIUM to its path")
    with sync_playwright() as playwright:  # each launch has a fresh profile of its own
        yield playwright.chromium.launch(executable_path=found, args=list(QUIET))


@pytest.fixture(scope="module")
def report(browser, tmp_path_factory):
    out = tmp_path_factory.mktemp("report")
    build(profile("quick"), out, command="expqk report --profile quick")
    return out / "index.html"


@pytest.fixture(scope="module")
def chinese(browser, tmp_path_factory):
    out = tmp_path_factory.mktemp("chinese")
    quick = profile("quick")
    with speaking("zh"):
        build(dataclasses.replace(quick, inputs=quick.inputs[:1]), out, command="expqk report")
    return out / "index.html"


class Opened:
    """A page, what it asked for and what it complained about."""

    def __init__(self, browser, path, **mode):
        self.context = browser.new_context(**mode)
        self.page = self.context.new_page()
        self.requests, self.complaints = [], []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.url = path.as_uri()
        self.page.goto(self.url)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.close()

    def shown(self):
        """Value of the slider, as it is said and shown, and the panels in sight."""
        slider = self.page.locator(".panels input")
        panels = self.page.locator(".panels img").filter(visible=True)
        assert panels.count() == 1
        assert panels.evaluate("image => image.complete && image.naturalWidth > 0")
        value = self.page.locator(".panels output").inner_text()
        quantity = QUANTITY[self.page.evaluate("document.documentElement.lang")]
        assert slider.get_attribute("aria-valuetext") == f"{quantity} {value}"
        assert panels.get_attribute("alt").endswith(f"t = {value}")
        return float(value)


def slider_moves(opened):
    """Tab reaches the slider; arrows, Home and End move through the panels."""
    page = opened.page
    for _ in range(100):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('.panels input')"):
            break
    seen = []
    for key in ("Home", "ArrowRight", "ArrowRight", "ArrowLeft", "End"):
        page.keyboard.press(key)
        seen.append(opened.shown())
    assert seen == [0.25, 1.0, 4.0, 1.0, 4.0]  # the temperatures of a quick report
    assert not page.locator("figure:has(.panels) > .scroll").is_visible()


def silent(opened):
    """No complaint in the console, and no request but for the file itself."""
    assert opened.complaints == []
    assert [url for url in opened.requests if not url.startswith("data:")] == [opened.url]


def fits(opened):
    """Nothing is wider than the page, except in a box that scrolls by itself."""
    page = opened.page
    wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
    assert not page.evaluate(wide)
    assert page.evaluate("document.querySelectorAll('.scroll').length") > 0


def accessible(opened):
    """No rule of axe is broken."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(opened.page).response
    assert [(rule["id"], rule["nodes"][0]["html"][:200]) for rule in found["violations"]] == []
    assert len(found["passes"]) > 20


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("language", ["report", "chinese"])
def test_the_page_can_be_explored_by_everyone(browser, language, mode, request):
    page = request.getfixturevalue(language)
    with Opened(browser, page, **MODES[mode]) as opened:
        fits(opened)
        slider_moves(opened)
        accessible(opened)
        silent(opened)


def test_the_first_tab_leads_past_the_contents(browser, report):
    with Opened(browser, report, **MODES["light"]) as opened:
        opened.page.keyboard.press("Tab")
        link = opened.page.locator(".skip")
        assert link.bounding_box()["x"] >= 0
        opened.page.keyboard.press("Enter")
        assert opened.page.evaluate("document.querySelector('main').getBoundingClientRect().y") < 1


def test_without_scripts_and_on_paper_the_figure_is_static(browser, report):
    with Opened(browser, report, java_script_enabled=False) as opened:
        assert opened.page.locator("figure:has(.panels) > .scroll img").is_visible()
        assert not opened.page.locator(".panels").is_visible()
        silent(opened)
    with Opened(browser, report) as opened:
        opened.page.emulate_media(media="print")
        assert opened.page.locator("figure:has(.panels) > .scroll img").is_visible()
        assert not opened.page.locator(".panels").is_visible()


FAULTS = {
    "nothing to say of a figure": (accessible, "Error against temperature at equal budget", ""),
    "low contrast": (accessible, "--soft: #5b5f66", "--soft: #9b9fa6"),
    "box out of reach": (accessible, 'tabindex="0"', ""),
    "no language": (accessible, 'lang="en"', ""),
    "no landmark": (accessible, '<main id="content">', '<div id="content">'),
    "script error": (silent, "<script>", "<script>nonsense();"),
    "request": (silent, "</main>", '</main><img src="https://expqk.invalid/x.png" alt="" />'),
    "slider stuck": (slider_moves, 'max="2"', 'max="1"'),
    "value unsaid": (slider_moves, "aria-valuetext", "aria-other"),
    "static figure stays": (slider_moves, "panels.previousElementSibling.hidden = true;", ""),
    "too wide": (fits, "</main>", '<p style="width: 80rem">x</p></main>'),
}


def _copy(report, folder, old="", new=""):
    """A page with something replaced, which may run whatever script is in it."""
    page = re.sub(
        'script-src [^"]*', "script-src &#39;unsafe-inline&#39;", report.read_text("utf-8")
    )
    assert old in page
    (folder / "index.html").write_text(page.replace(old, new) if old else page, encoding="utf-8")
    return folder / "index.html"


def test_nothing_is_noticed_where_nothing_is_planted(browser, report, tmp_path):
    with Opened(browser, _copy(report, tmp_path), **MODES["phone"]) as opened:
        for check in (fits, slider_moves, accessible, silent):
            check(opened)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_noticed(browser, report, tmp_path, fault):
    check, old, new = FAULTS[fault]
    spoilt = _copy(report, tmp_path, old, new)
    with Opened(browser, spoilt, **MODES["phone"]) as opened, pytest.raises(AssertionError):
        check(opened)


def test_no_script_runs_but_the_one_of_the_page(browser, report, tmp_path):
    page = report.read_text("utf-8").replace("</main>", "</main><script>var x = 1</script>")
    (tmp_path / "index.html").write_text(page, encoding="utf-8")
    with Opened(browser, tmp_path / "index.html") as opened:
        assert opened.page.evaluate("typeof x") == "undefined"
        assert opened.page.locator(".panels").is_visible()
        assert len(opened.complaints) == 1
        assert "Content Security Policy" in opened.complaints[0]
