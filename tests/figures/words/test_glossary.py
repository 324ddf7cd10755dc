"""The words of the project: each once, in both languages, where a reader meets it first."""

import html
import re

import pytest

from figures.document.convert import pandoc
from figures.words import glossary


@pytest.mark.listed
@pytest.mark.parametrize("language", list(glossary.PAGES))
def test_the_pages_are_made_from_the_list(language, pytestconfig):
    path = pytestconfig.rootpath / glossary.PAGES[language][0]
    assert path.read_text("utf-8") == glossary.page(language), "python -m figures.words.glossary"


@pytest.mark.parametrize("language", list(glossary.PAGES))
@pytest.mark.parametrize("reader", ["gfm", "markdown"])  # of the docs, of the report
def test_the_whole_of_each_meaning_arrives_on_the_page(language, reader, tmp_path):
    def shown(text):
        made = pandoc("-f", reader, "-t", "html", text=text, folder=tmp_path)
        return " ".join(html.unescape(re.sub("<[^>]*>", "", made)).split())

    terms = glossary.terms(language)
    text = shown(glossary.page(language))
    lost = [meaning for _, meaning in terms.values() if shown(meaning) not in text]
    assert not lost


def test_each_word_is_said_once_in_both_languages():
    english, chinese = (glossary.terms(language) for language in ("en", "zh"))
    assert [symbol for symbol, _ in english.values()] == [s for s, _ in chinese.values()]
    for terms in (english, chinese):
        meanings = [meaning for _, meaning in terms.values()]
        assert all(meaning[-1] in ".。" for meaning in meanings)
        assert len(set(meanings)) == len(meanings)
