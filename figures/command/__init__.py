"""The subcommands of ``expqk``: each module has EXAMPLES, add(parser) and run(arguments)."""
