"""What the soak and the chaos test are made of: an obedient provider, clients, and the books."""
