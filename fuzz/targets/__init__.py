"""One module a decoder; ``fuzz.target.Target`` says what is in it."""
