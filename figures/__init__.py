"""What people look at: figures, the report, the command line."""
