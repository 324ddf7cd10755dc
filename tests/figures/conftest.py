"""The command line in this process: what it prints, and how it refuses."""

import pytest

from figures.command.cli import main


@pytest.fixture
def printed(capsys):
    """Return what runs a command, which must succeed, and returns what it prints."""

    def run(*arguments):
        capsys.readouterr()
        assert main([str(a) for a in arguments]) == 0
        return capsys.readouterr().out

    return run


@pytest.fixture
def refused(capsys):
    """Return what runs a command that is refused, and returns why: one line, and no output."""

    def run(*arguments, status=1):
        capsys.readouterr()
        try:
            found = main([str(a) for a in arguments])
        except SystemExit as stop:
            found = stop.code
        out, said = capsys.readouterr()
        assert (found, out, said.count("\n"), said[:5]) == (status, "", 1, "expqk"), said
        return said

    return run
