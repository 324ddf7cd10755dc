"""What supports share: patterns, boxes of pages, hashing, eviction, scores of keys."""
