"""The subcommands of ``expqk``: each module has HELP, add(parser), run(arguments).

A module imports what it runs in `run`: the parser of the command asks every module for its
arguments.
"""
