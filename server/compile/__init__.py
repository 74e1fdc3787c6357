"""Compiling constraints in a process of its own, so that no compile ever holds the interpreter of the HTTP loop."""
