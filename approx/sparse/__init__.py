"""Supports: entries on which the estimate is exp(q·k) itself."""
