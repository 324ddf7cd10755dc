"""Every Python snippet that a page prints runs, and prints what the page says, from a wheel."""

import pytest
from test_docs import differences

from acceptance import pages

BLOCKS = {page: pages.blocks(text) for page, text in pages.pages().items()}
RUN = [
    page
    for page, blocks in BLOCKS.items()
    if any(kind == "python" for kind, _ in blocks) and ".zh-CN" not in page
]


@pytest.mark.parametrize("page", RUN)
def test_a_page_prints_what_it_says(page, shell):
    blocks = BLOCKS[page]
    (shell.folder / "page (最终).py").write_text(pages.script(blocks), "utf-8")
    done = shell("python -P 'page (最终).py'")
    assert (done.status, done.stderr) == (0, "")
    for code, said, found in pages.outputs(blocks, done.stdout):
        if page == "README.md":  # which does not say what it prints
            assert found.startswith("(512, 32) 0.4") or (not found and "print(" not in code)
            continue
        assert len(said.splitlines()) == len(found.splitlines()), f"{code}\nprints\n{found}"
        assert not differences(said, found), found


def test_a_snippet_that_says_something_else_is_noticed(shell):
    blocks = [("python", "print(1 + 1)\n"), ("text", "3\n"), ("sh", "expqk help\n")]
    (shell.folder / "page.py").write_text(pages.script(blocks), "utf-8")
    done = shell("python -P page.py")
    (_, said, found), (_, nothing, helped) = pages.outputs(blocks, done.stdout)
    assert (said, found, nothing) == ("3\n", "2\n", "")
    assert differences(said, found)
    assert helped.startswith("How well")
