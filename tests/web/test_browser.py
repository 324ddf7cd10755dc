"""The page of a quick report in headless Chromium: `make web-test`."""

import dataclasses
import io
import os
import re
import shutil

import pytest
from PIL import Image

from analysis.experiments.profile import profile
from figures.report.build import build
from figures.words.translation import speaking

pytestmark = pytest.mark.web

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
MODES = {
    f"{scheme}-{width}": {
        "color_scheme": scheme,
        "viewport": {"width": width, "height": height},
        "has_touch": width < 500,
    }
    for scheme in ("light", "dark")
    for width, height in ((1280, 900), (375, 667))
}
WIDE, PHONE = MODES["light-1280"], MODES["light-375"]
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
        self.url, self.folder = path.as_uri(), path.parent
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
        assert panels.bounding_box()["width"] > 300
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


def filters(page):
    return page.evaluate("[...document.images].map(x => getComputedStyle(x).filter)")


def dark_is_dark(opened):
    """Drawings are as dark as their page, and their text as light."""
    scheme = opened.page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    found = filters(opened.page)
    assert found
    assert all((one != "none") == scheme for one in found)
    shot = opened.page.locator("[id='fig:error'] img").first.screenshot()
    light = Image.open(io.BytesIO(shot)).convert("L").resize((1, 1)).getpixel((0, 0))
    assert (light < 80) == scheme


def no_other_fonts(opened):
    """An English page is shown in no East Asian font, a Chinese one with that of the page."""
    session = opened.context.new_cdp_session(opened.page)
    session.send("DOM.enable")
    session.send("CSS.enable")
    root = session.send("DOM.getDocument")["root"]["nodeId"]
    found = set()
    for place in ("h1", "main p", "figcaption", "td", "#TOC a", "code", "summary"):
        node = session.send("DOM.querySelector", {"nodeId": root, "selector": place})["nodeId"]
        fonts = session.send("CSS.getPlatformFontsForNode", {"nodeId": node})["fonts"]
        found |= {font["familyName"] for font in fonts}
    east = {name for name in found if re.search("CJK|Han|Song|Sim|Expqk|SC$", name)}
    assert bool(east) == (opened.page.evaluate("document.documentElement.lang") != "en")
    first = opened.page.evaluate("getComputedStyle(document.documentElement).fontFamily")
    assert ("CJK" in first) == bool(east)


def fits(opened):
    """Nothing is wider than the page, except in a box that scrolls by itself."""
    page = opened.page
    wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
    assert not page.evaluate(wide)
    assert page.evaluate("document.querySelectorAll('.scroll').length") > 0


def accessible(opened):
    """No rule of axe is broken, and what it would let pass without a name has one."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(opened.page).response
    assert [(rule["id"], rule["nodes"][0]["html"][:200]) for rule in found["violations"]] == []
    assert len(found["passes"]) > 20
    assert opened.page.locator("img:not([alt]), img[alt='']").count() == 0


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("language", ["report", "chinese"])
def test_the_page_can_be_explored_by_everyone(browser, language, mode, request):
    page = request.getfixturevalue(language)
    assert page.stat().st_size < 5e6
    with Opened(browser, page, **MODES[mode]) as opened:
        fits(opened)
        slider_moves(opened)
        dark_is_dark(opened)
        accessible(opened)
        silent(opened)
        no_other_fonts(opened)  # whose tools read the file once more


def test_the_first_tab_leads_past_the_contents(browser, report):
    with Opened(browser, report, **WIDE) as opened:
        opened.page.keyboard.press("Tab")
        link = opened.page.locator(".skip")
        assert link.bounding_box()["x"] >= 0
        opened.page.keyboard.press("Enter")
        y = "document.querySelector('main').getBoundingClientRect().y"
        assert 0 <= opened.page.evaluate(y) < 30


def test_without_scripts_and_on_paper_the_figure_is_static(browser, report):
    for mode in (WIDE, PHONE):
        with Opened(browser, report, java_script_enabled=False, **mode) as opened:
            whole(opened)
            silent(opened)
    with Opened(browser, report, **MODES["dark-375"]) as opened:
        opened.page.emulate_media(media="print")
        whole(opened)
        colour = "getComputedStyle(document.documentElement).backgroundColor"
        assert opened.page.evaluate(colour) == "rgb(255, 255, 255)"
        assert set(filters(opened.page)) == {"none"}


def whole(opened):
    """Everything is shown, but for what needs a script."""
    page = opened.page
    assert page.locator("figure:has(.panels) > .scroll img").is_visible()
    assert not page.locator(".panels").first.is_visible()
    assert page.locator("#TOC .toc a").first.is_visible()
    for shown in (
        "main h2",
        "main p:not(.panels p)",
        "figcaption",
        "figure:not(.table) > .scroll",
        "table",
    ):
        every = page.locator(shown)
        assert every.count() == every.filter(visible=True).count() > 3


def test_no_script_runs_but_the_one_of_the_page(browser, report, tmp_path):
    page = report.read_text("utf-8").replace("</main>", "</main><script>var x = 1</script>")
    (tmp_path / "index.html").write_text(page, encoding="utf-8")
    with Opened(browser, tmp_path / "index.html") as opened:
        assert opened.page.evaluate("typeof x") == "undefined"
        assert opened.page.locator(".panels").is_visible()
        assert len(opened.complaints) == 1
        assert "Content Security Policy" in opened.complaints[0]
