"""Building blocks of supports: patterns, boxes of pages, hashing, eviction, scores of keys."""
