"""Attention and FLASH as the source documents write them: references for claims, not methods."""
