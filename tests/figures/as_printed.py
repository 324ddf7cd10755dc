"""Tables as they once were, and the numbers that captions and the report made of them.

The tables of as_printed.zip are those of small profiles. They are kept so that a number in a
caption can change for one reason only, the sentence and what it computes. A figure that gets
another caption or other columns needs new ones: ``python tests/figures/as_printed.py NAME …``
computes the table with the quick profile, or with that of test_report with ``--cut``, or takes the
stored one again with ``--text``, and writes what is printed now. Look at what changed before you
keep it.
"""

import io
import json
import re
import sys
import zipfile
from pathlib import Path

import pandas as pd

FOLDER = Path(__file__).parent
TABLES, WORDING = FOLDER / "as_printed.zip", FOLDER / "as_printed.json"
STORED = ("scaling",)  # whose table is a file of the package
PARTS = ("decomposition", "winners", "advice", "polynomial_rank")  # of the report, beside figures
WORDS = re.compile(  # of counts, which `share` and `in_words` write
    r"\b(?:none of|one of the|both|all|two|three|four|five|six|seven|eight|nine|ten|eleven"
    r"|twelve)\b"
)
NUMBER = re.compile(r"[-−]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


def numbers(text):
    """Return the numbers of a text, in order."""
    return [number.replace("−", "-") for number in NUMBER.findall(text)]


def _words(text):
    return [word.replace(" ", "-") for word in WORDS.findall(text)]


def tables():
    """Return every stored table by its name."""
    with zipfile.ZipFile(TABLES) as archive:
        return {
            Path(name).stem: pd.read_csv(io.BytesIO(archive.read(name)))
            for name in archive.namelist()
        }


def said():
    """Return the numbers that were printed, by the name of the figure, or "report"."""
    return {name: text.split() for name, text in json.loads(WORDING.read_text("utf-8")).items()}


def table_of(name, stored):
    from analysis.experiments.profile import profile
    from figures.gallery import FIGURES

    return stored[name] if name in stored else FIGURES[name].compute(profile("quick"))


def report(stored):
    """Return the text of a report of the stored tables, without its appendix."""
    from test_report import cut

    from figures.gallery import REPORTED
    from figures.report import build

    computed = {name: stored[name] for name in (*REPORTED["quick"], *PARTS)}
    text = build.render(cut(), computed, "expqk report")
    return text[: text.index("# Appendix: how this was made")]


def printed(name, stored):
    """Return the numbers that are printed now."""
    from figures.gallery import FIGURES

    if name == "report":
        text = report(stored)
        return numbers(text) + _words(text)
    module, table = FIGURES[name], table_of(name, stored)
    said = [getattr(module, part)(table) for part in ("finding", "caption")]
    return numbers(" ".join(said)) + _words(said[0])


def write(stored, found):
    """Write the tables, their values to four digits, and the numbers."""
    with zipfile.ZipFile(TABLES, "w") as archive:
        for name in sorted(stored):
            table = stored[name].copy()
            for column in {"value", "stderr"} & set(table):
                table[column] = [x if x != x else float(f"{x:.4g}") for x in table[column]]
            entry = zipfile.ZipInfo(f"{name}.csv")
            entry.compress_type = zipfile.ZIP_LZMA
            archive.writestr(entry, table.to_csv(index=False, float_format="%.8g"))
    lines = json.dumps({name: " ".join(found[name]) for name in sorted(found)}, indent=1)
    WORDING.write_text(lines + "\n", "utf-8")


def main(arguments):
    from test_report import cut

    from analysis.experiments.profile import profile
    from figures.gallery import FIGURES

    again = "--text" in arguments
    size = cut() if "--cut" in arguments else profile("quick")
    names = [name for name in arguments if not name.startswith("--")]
    stored, found = tables(), said()
    for name in names:
        if name in FIGURES and name not in STORED and not again:
            stored[name] = FIGURES[name].compute(size)
    write(stored, found)
    stored = tables()
    for name in names:
        now, before = printed(name, stored), found.get(name, [])
        print(f"{name}: {' '.join(before)}\n  now {' '.join(now)}")
        found[name] = now
    write(stored, found)


if __name__ == "__main__":
    sys.path[:0] = [str(FOLDER), str(FOLDER.parent), str(FOLDER / "report")]
    main(sys.argv[1:])
