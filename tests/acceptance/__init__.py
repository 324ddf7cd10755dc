"""Every command and snippet that the pages print, run as a user runs it."""
