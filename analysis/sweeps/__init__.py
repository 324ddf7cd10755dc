"""Methods × inputs × temperatures × trials → one tidy table, on disk and resumed."""
