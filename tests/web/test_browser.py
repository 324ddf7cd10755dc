"""The page of a quick report in headless Chromium: `make web-test`.

Each check is shown to notice a fault planted into the page.
"""

import dataclasses
import io
import os
import re
import shutil

import pandas as pd
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
        panels = self.page.locator(".panels .drawing").filter(visible=True)
        assert panels.count() == 1
        assert panels.bounding_box()["width"] > 300
        value = self.page.locator(".panels output").inner_text()
        quantity = QUANTITY[self.page.evaluate("document.documentElement.lang")]
        assert slider.get_attribute("aria-valuetext") == f"{quantity} {value}"
        assert panels.get_attribute("aria-label").endswith(f"t = {value}")
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


def contents_follow(opened):
    """The section that is read is marked in the contents, in sight, or named in the bar."""
    page = opened.page
    headings = page.locator("main h2:not(details *)")
    narrow = page.viewport_size["width"] < 500
    for place in (1, headings.count() // 2, 0):
        heading = headings.nth(place)
        heading.evaluate("heading => heading.scrollIntoView()")
        said = heading.inner_text().replace("\n", " ")
        marked = page.locator("#TOC a[aria-current=location]")
        page.wait_for_function(
            "said => document.querySelector('#TOC a[aria-current]')?.textContent === said",
            arg=heading.evaluate("heading => heading.textContent"), timeout=2000,
        )  # fmt: skip
        assert marked.count() == 1
        shown = page.locator("#TOC .here") if narrow else marked
        assert shown.is_visible()
        assert " ".join(shown.inner_text().split()) == " ".join(said.split())
        assert 0 <= shown.bounding_box()["y"] < page.viewport_size["height"]
        assert heading.bounding_box()["y"] >= (
            page.locator("#TOC").bounding_box()["height"] if narrow else 0
        )


def appendices_open(opened):
    """They are closed, and open for a link and on paper."""
    page = opened.page
    appendices = page.locator("details.appendix")
    count = appendices.count()
    assert count >= 1
    opened_now = page.locator("details.appendix[open]")
    assert opened_now.count() == 0
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert opened_now.count() == count
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert opened_now.count() == 0
    inside = page.locator("details.appendix").last.locator(":is(figure, [id]):not(summary *)").first
    name = inside.get_attribute("id") or "inside"
    inside.evaluate("(element, name) => { element.id = name; }", name)
    page.evaluate("name => { location.hash = name; }", name)
    page.wait_for_function("document.querySelector('details.appendix[open]')", timeout=2000)
    assert inside.is_visible()
    assert opened_now.count() == 1


def curve_of(opened):
    """A drawing with curves in sight, its panel's first curve with markers, the values drawn."""
    return opened.page.evaluate_handle(
        """() => {
          const svg = document.querySelector("[id='fig:error'] .drawing");
          svg.scrollIntoView({ block: "start" });
          scrollBy(0, -80);
          return svg;
        }"""
    ).as_element()


def curves_named(opened):
    """A mouse or a finger on a marker is told the curve and a value of the table; elsewhere not."""
    page, svg, table = opened.page, curve_of(opened), errors_of(opened.folder)
    seen, narrow = 0, page.viewport_size["width"] < 500
    point = page.touchscreen.tap if narrow else page.mouse.move
    entry = page.locator("[id='fig:error'] [data-entry]").first
    marks = svg.query_selector_all("[data-curve] use")
    drawn = table.groupby(["input", "method", "metric", "temperature"]).value.median()
    values = drawn.groupby("temperature")
    for mark in marks[:: max(1, len(marks) // 12)]:
        box, name = (
            mark.bounding_box(),
            mark.evaluate("use => use.closest('[data-curve]').dataset.curve"),
        )
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        if not (0 < x < page.viewport_size["width"] and 90 < y < page.viewport_size["height"]):
            continue
        if narrow:  # what has the focus loses it to a finger
            entry.evaluate("entry => entry.focus({ preventScroll: true })")
        point(x, y)
        page.wait_for_timeout(50)  # fingers are slower than mice
        tip = page.locator(".tip")
        if not tip.is_visible():  # clipped by its panel
            continue
        said, *numbers = tip.inner_text().split("\n")
        assert len(numbers) >= 2
        t, error = (float(re.search(r"[-\d.e]+$", line)[0]) for line in numbers[-2:])
        assert 0 <= tip.bounding_box()["x"] <= page.viewport_size["width"]
        assert t in values.groups
        near = values.get_group(t).to_numpy()
        assert (abs(near / error - 1) < 6e-3).any() or error in EDGES
        seen += said == name
    assert seen >= 3
    point(2, page.viewport_size["height"] - 2)
    page.locator(".tip").wait_for(state="hidden", timeout=2000)


EDGES = (1e-4, 1e-3, 10.0)  # where a figure draws what is beyond


def entries_switch(opened):
    """An entry of a legend hides its curves and shows them, by mouse and by keyboard."""
    page, svg = opened.page, curve_of(opened)
    entry = svg.query_selector_all("[data-entry]")[-1]
    name = entry.get_attribute("data-entry")
    curves = [
        x for x in svg.query_selector_all("[data-curve]") if x.get_attribute("data-curve") == name
    ]
    assert curves
    assert entry.get_attribute("aria-label") == name
    for act in (entry.click, lambda: entry.press("Enter"), lambda: entry.press(" "), entry.click):
        shown = entry.get_attribute("aria-pressed") == "true"
        assert (
            all(curve.evaluate("x => getComputedStyle(x).display") != "none" for curve in curves)
            == shown
        )
        act()
        assert (entry.get_attribute("aria-pressed") == "true") != shown
    assert entry.get_attribute("aria-pressed") == "true"
    entry.press("ArrowRight")
    first = page.locator(".tip").inner_text()
    entry.press("ArrowRight")
    assert page.locator(".tip").inner_text() != first
    assert first.startswith(name)
    entry.press("Escape")
    assert not page.locator(".tip").is_visible()


def filters(page):
    drawings = "[...document.querySelectorAll('.drawing')]"
    return page.evaluate(f"{drawings}.map(x => getComputedStyle(x).filter)")


def dark_is_dark(opened):
    """Drawings are as dark as their page, and their text as light."""
    scheme = opened.page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    found = filters(opened.page)
    assert found
    assert all((one != "none") == scheme for one in found)
    curve_of(opened)
    shot = opened.page.locator("[id='fig:error'] .drawing").first.screenshot()
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
    unnamed = ".drawing:not([aria-label], [aria-hidden])"
    assert opened.page.locator(unnamed).count() == 0


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("language", ["report", "chinese"])
def test_the_page_can_be_explored_by_everyone(browser, language, mode, request):
    page = request.getfixturevalue(language)
    assert page.stat().st_size < 5e6
    with Opened(browser, page, **MODES[mode]) as opened:
        fits(opened)
        slider_moves(opened)
        dark_is_dark(opened)
        contents_follow(opened)
        curves_named(opened)
        entries_switch(opened)
        silent(opened)
    with Opened(browser, page, **MODES[mode]) as opened:
        appendices_open(opened)
        opened.page.evaluate("for (const x of document.querySelectorAll('details')) x.open = true")
        fits(opened)
        accessible(opened)
        silent(opened)
        no_other_fonts(opened)  # whose tools read the file once more


def errors_of(folder):
    """The table that figure error was drawn from."""
    return pd.read_csv(folder / "data" / "error.csv")


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
            assert opened.page.locator("#TOC .toc a").first.is_visible()
            silent(opened)
    with Opened(browser, report, **MODES["dark-375"]) as opened:
        entry = opened.page.locator("[id='fig:error'] [data-entry]").first
        entry.click()
        opened.page.evaluate("dispatchEvent(new Event('beforeprint'))")
        opened.page.emulate_media(media="print")
        whole(opened)
        assert opened.page.locator("#TOC .toc a").first.is_visible()
        hidden = "[...document.querySelectorAll('.off')].map(x => getComputedStyle(x).display)"
        assert "none" not in opened.page.evaluate(hidden)
        colour = "getComputedStyle(document.documentElement).backgroundColor"
        assert opened.page.evaluate(colour) == "rgb(255, 255, 255)"
        assert set(filters(opened.page)) == {"none"}


def whole(opened):
    """Everything is shown, but for what needs a script."""
    page = opened.page
    assert page.locator("figure:has(.panels) > .scroll .drawing").is_visible()
    for hidden in (".panels", ".tip"):
        assert not page.locator(hidden).first.is_visible()
    for shown in (
        "main h2",
        "main p:not(.panels p)",
        "figcaption",
        "figure:not(.table) > .scroll",
        "table",
    ):
        every = page.locator(shown)
        assert every.count() == every.filter(visible=True).count() > 3


FAULTS = {
    "nothing to say of a figure": (accessible, 'role="img" aria-label', 'role="img" data-label'),
    "buttons in a picture": (accessible, 'svg.setAttribute("role", "group")', ""),
    "low contrast": (accessible, "--soft: #5b5f66", "--soft: #9b9fa6"),
    "box out of reach": (accessible, 'tabindex="0"', ""),
    "no language": (accessible, 'lang="en"', ""),
    "no landmark": (accessible, '<main id="content">', '<div id="content">'),
    "script error": (silent, "<script>", "<script>nonsense();"),
    "request": (silent, "</main>", '</main><img src="https://expqk.invalid/x.png" alt="" />'),
    "slider stuck": (slider_moves, 'max="2"', 'max="1"'),
    "value unsaid": (slider_moves, "aria-valuetext", "aria-other"),
    "static figure stays": (slider_moves, "panels.previousElementSibling.hidden = true;", ""),
    "contents still": (
        contents_follow,
        'addEventListener("scroll", soon',
        'addEventListener("x", soon',
    ),
    "place unmarked": (contents_follow, '"aria-current", "location"', '"data-x", "location"'),
    "under the bar": (contents_follow, "scroll-margin-top", "x-margin"),
    "always open": (appendices_open, "appendix.open = false", ""),
    "not printed": (appendices_open, '"beforeprint"', '"before"'),
    "wrong scale": (curves_named, 'data-y="log', 'data-y="linear'),
    "value moved": (curves_named, 'data-x="log', 'data-x="linear'),
    "curve unnamed": (curves_named, "textContent: name", 'textContent: ""'),
    "entry of mice": (entries_switch, 'event.key === "Enter"', "false"),
    "state unsaid": (entries_switch, 'setAttribute("aria-pressed", !', 'setAttribute("x", !'),
    "curve stays": (
        entries_switch,
        "[data-band].off { display: none",
        "[data-band].off { --x: none",
    ),
    "focus that was elsewhere": (curves_named, "document.activeElement?.blur();", ""),
    "finger lifted": (curves_named, 'event.pointerType === "touch" || ', ""),
    "entry without a name": (accessible, '"aria-label": name', '"data-label": name'),
    "paper stays white": (dark_is_dark, "filter: invert", "x: invert"),
    "fonts of another language": (
        no_other_fonts,
        "1.6 Charter",
        '1.6 "Noto Serif CJK SC", Charter',
    ),
    "too wide": (fits, "</main>", '<p style="width: 80rem">x</p></main>'),
}


def _copy(report, folder, old="", new=""):
    """A page with something replaced, which may run whatever script is in it."""
    page = re.sub(
        'script-src [^"]*', "script-src &#39;unsafe-inline&#39;", report.read_text("utf-8")
    )
    assert old in page
    if not (folder / "data").exists():
        shutil.copytree(report.parent / "data", folder / "data")
    (folder / "index.html").write_text(page.replace(old, new) if old else page, encoding="utf-8")
    return folder / "index.html"


def test_nothing_is_noticed_where_nothing_is_planted(browser, report, tmp_path):
    with Opened(browser, _copy(report, tmp_path), **PHONE) as opened:
        checks = dict.fromkeys(check for check, _, _ in FAULTS.values())
        for check in sorted(checks, key=lambda check: check is no_other_fonts):
            check(opened)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_noticed(browser, report, tmp_path, fault):
    check, old, new = FAULTS[fault]
    from playwright.sync_api import Error

    spoilt = _copy(report, tmp_path, old, new)
    mode = MODES["dark-375"] if check is dark_is_dark else PHONE
    with (
        Opened(browser, spoilt, **mode) as opened,
        pytest.raises((AssertionError, Error)),  # of playwright: what is waited for never comes
    ):
        check(opened)


def test_no_script_runs_but_the_one_of_the_page(browser, report, tmp_path):
    page = report.read_text("utf-8").replace("</main>", "</main><script>var x = 1</script>")
    (tmp_path / "index.html").write_text(page, encoding="utf-8")
    with Opened(browser, tmp_path / "index.html") as opened:
        assert opened.page.evaluate("typeof x") == "undefined"
        assert opened.page.locator(".panels").is_visible()
        assert len(opened.complaints) == 1
        assert "Content Security Policy" in opened.complaints[0]
