"""What a causal model keeps of its keys to decode: caches, to which tokens are added one by one."""
