"""Two languages: every message has its translation, with the same values, in characters we have."""

import ast
import html
import re
import string
import textwrap
import tomllib
from importlib import resources
from pathlib import Path

import numpy as np
import polib
import pytest
from drawing import english, numbers, without_glyph
from hypothesis import given, strategies as st
from small import EXAMPLES

import figures
from analysis.advice import caveats, diagnose, measurement, target
from analysis.bounds import theory
from analysis.claims import VERDICTS
from analysis.costs import budget
from analysis.experiments import exercises
from analysis.inputs import Head
from approx import METHODS, parse
from approx.method import Label
from approx.method.prices import CURRENCIES
from approx.testing import check_method
from figures import fonts
from figures.command import options
from figures.document.convert import pandoc
from figures.drawing import looks
from figures.gallery import FIGURES
from figures.show import diagnosis, winners_map
from figures.words import glossary, terminal_columns, translation
from figures.words.terminal_columns import aligned
from figures.words.translation import speaking, tr

FOLDER = Path(figures.__file__).parent
SAYING = diagnose, caveats, target, theory, measurement, exercises  # of analysis


def messages():
    """Return every message in the code: what tr, mark, Sentence are given, titles, methods."""
    found = {module.TITLE for module in FIGURES.values()}
    found |= {name for method in METHODS.values() for name in Label(method.label).names}
    found |= set(VERDICTS) | set(budget.WORDING.values())
    found |= {name for specs in EXAMPLES.values() for name, _ in check_method(parse(specs[0]))}
    found |= {"passed", "failed", "cannot tell"}
    sayers = ("tr", "mark", "Sentence")
    advisors = (module.__file__ for module in SAYING)
    studies = (FOLDER.parent / "studies/lm").glob("*.py")
    pages = (FOLDER.parent / "docs").glob("*.py")
    for file in [*FOLDER.rglob("*.py"), *studies, *pages, *map(Path, advisors)]:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in sayers:
                found |= {a.value for a in node.args if isinstance(a, ast.Constant)}
    return found


def values(message):
    """Return the placeholders of a message with their formats; {of[0]} is a part of {of}."""
    parts = string.Formatter().parse(message)
    return sorted({(name.split("[")[0], spec) for _, name, spec, _ in parts if name is not None})


def faults(used, catalogue):
    """Return what is wrong with a catalogue, a line a fault."""
    found = [f"no translation: {message}" for message in used if not catalogue.get(message)]
    found += [f"nobody says: {message}" for message in set(catalogue) - used]
    for message, said in catalogue.items():
        if "$" not in message and values(message) != values(said):
            found.append(f"other values: {message}")
    return found


def catalogue():
    return {entry.msgid: entry.msgstr for entry in polib.pofile(FOLDER / "locale" / "zh_CN.po")}


@pytest.mark.listed
def test_every_message_is_translated_with_its_values():
    used, known = messages(), catalogue()
    unnamed = {x.name.replace("_", " ") for x in METHODS.values()}  # if without a label of its own
    used -= unnamed - known.keys()
    wrong = faults(used, known)
    missing = [polib.POEntry(msgid=message) for message in used if not known.get(message)]
    entries = "\n".join(entry.__unicode__(wrapwidth=100) for entry in missing)
    assert not wrong, "\n".join([*wrong, "", "to fill in, in figures/locale/zh_CN.po:", entries])


def test_the_font_has_every_character_and_is_embedded(tmp_path, printed):
    assert without_glyph("".join(catalogue().values()).replace("$", "")) == set()
    assert without_glyph("熵") == set()
    assert without_glyph("龘") == {"龘"}
    assert without_glyph("⟨q⟩ $x$") == {"⟨", "⟩"}  # DejaVu's, which is not asked beside a formula
    printed("figures", "break_even", "--profile", "quick", "--lang", "zh", "--format", "pdf",
            "--out", tmp_path)  # fmt: skip
    pdf = (tmp_path / "figures" / "break_even.pdf").read_bytes()
    assert fonts.FAMILY.replace(" ", "").encode() in pdf
    caption = (tmp_path / "figures" / "break_even.txt").read_text("utf-8")
    assert caption.startswith("盈亏平衡长度\n")
    text = resources.files("figures.fonts").joinpath("OFL.txt").read_text("utf-8")
    assert "SIL OPEN FONT LICENSE" in text
    assert options.CURRENCIES == CURRENCIES


def test_a_language_holds_for_what_is_inside():
    assert tr("temperature t") == "temperature t"
    with speaking("zh"):
        assert tr("temperature t") == "温度 t"
        with speaking("en"):
            assert tr("temperature t") == "temperature t"
        assert looks.label("taylor(degree=3)") == "泰勒多项式，3 次"
        assert looks.label("mine(m=3)") == "mine(m=3)"
    assert translation.spoken() == "en"
    with pytest.raises(ValueError, match="language must be one of en, zh"), speaking("xx"):
        pass


def test_advice_says_the_same_in_chinese():
    rng = np.random.default_rng(0)
    q = 4 * rng.standard_normal((32, 8))  # |x|²/2 ≈ 22 > ln 10⁶: eps swamps the features
    x = Head("long", q, q, rng.standard_normal((32, 2)))
    specs = ("uniform()", "positive()", "trigonometric()", "sliding_window()", "top_k()")
    table = diagnose.diagnose(x, budget=8.0, methods=[parse(s) for s in specs], trials=2)
    said = {sentence.message for row in table.warnings for sentence in row}
    assert len(said) >= 4

    def spoken(language):
        with speaking(language):
            rows = options.json_value(table.to_dict("records"))
            warnings = [one for row in rows for one in row["warnings"]]
            return [diagnosis.text(table), winners_map.caption(table), *warnings]

    before, after = spoken("en"), spoken("zh")
    assert [numbers(text) for text in after] == [numbers(text) for text in before]
    specs = re.compile(r"--metric output|--references|(--method )?\"?\w+\(.*\)")
    assert english(specs.sub("", " ".join(after))) == {"long"}
    assert english(" ".join(before)) > {"long", "attention", "features"}


# The words of the project: each once, in both languages, where a reader meets it first


@pytest.mark.listed
@pytest.mark.parametrize("language", translation.LANGUAGES)
def test_the_pages_are_made_from_the_list(language, pytestconfig):
    with speaking(language):
        path = pytestconfig.rootpath / translation.twin(glossary.PAGE)
    assert path.read_text("utf-8") == glossary.page(language), "python -m figures.words.glossary"


@pytest.mark.parametrize("language", translation.LANGUAGES)
@pytest.mark.parametrize("reader", ["gfm", "markdown"])  # of the docs, of the report
def test_the_whole_of_each_meaning_arrives_on_the_page(language, reader, tmp_path):
    def shown(text):
        made = pandoc("-f", reader, "-t", "html", text=text, folder=tmp_path)
        plain = (re.sub("<[^>]*>", "", part) for part in made.split("</p>"))
        return [" ".join(html.unescape(part).split()) for part in plain]

    meanings = [meaning for _, meaning in glossary.terms(language).values()]
    text = " ".join(shown(glossary.page(language)))
    *wanted, _ = shown("\n\n".join(meanings))
    assert len(wanted) == len(meanings)
    assert not [meaning for meaning in wanted if meaning not in text]


def test_each_word_is_said_once_in_both_languages():
    english, chinese = (glossary.terms(language) for language in ("en", "zh"))
    assert [symbol for symbol, _ in english.values()] == [s for s, _ in chinese.values()]
    for terms in (english, chinese):
        meanings = [meaning for _, meaning in terms.values()]
        assert all(meaning[-1] in ".。" for meaning in meanings)
        assert len(set(meanings)) == len(meanings)


@pytest.mark.listed
def test_one_word_per_term_in_all_chinese_texts(pytestconfig):
    kinds = "*.zh-CN.md", "docs/**/*.zh-CN.[mi]*", "figures/**/*.zh*.md*", "figures/**/*.po"
    paths = [path for kind in kinds for path in pytestconfig.rootpath.glob(kind)]
    text = "\n".join(path.read_text("utf-8") for path in paths)
    known = tomllib.loads(Path(glossary.__file__).with_suffix(".toml").read_text("utf-8"))
    for word, others in known["avoid"].items():
        found = re.search(others, text)
        assert not found, f"say {word}: {text[found.start() - 20 : found.end() + 20]}"


# Columns of a terminal, with Chinese in them


@given(
    text=st.text(st.sampled_from("ab \u0301秩，。（）x1=·"), max_size=40).map(str.strip),
    size=st.integers(4, 30),
)
def test_wrapped_text_is_all_there_and_fits(text, size):
    lines = terminal_columns.wrap(text, size)
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert all(terminal_columns.width(line) <= size for line in lines)
    assert not any(line.startswith(" ") or line.endswith(" ") for line in lines)


def test_columns_of_a_terminal_with_chinese_in_them():
    assert terminal_columns.wrap("宽度为 n；而不是 d。", 9) == ["宽度为", "n；而不是", "d。"]
    assert terminal_columns.wrap("一二三四。", 8) == ["一二三", "四。"]
    assert terminal_columns.wrap("按通道的 top-k（SparQ）", 16) == ["按通道的 top-k", "（SparQ）"]
    text = "The causal normaliser is (g−1)c, the tokens summed over; a well-known one."
    assert terminal_columns.wrap(text, 20) == textwrap.wrap(text, 20)
    for text in ("秩", "rank", "e\u0301"):
        assert terminal_columns.width(terminal_columns.pad(text, 8)) == 8
    columns = aligned([("method", "tv"), ("滑动窗口", "0.911"), ("Nyström", "0.538")])
    assert columns == "method    tv\n滑动窗口  0.911\nNyström   0.538"
