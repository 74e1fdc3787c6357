"""The target language: grammars as values (`expr`, `charset`), rewriting (`passes`), text (`gbnf`), the matcher (`match`).

Imports nothing of the other compilers, and nothing is imported here, so that the engine can load `match` alone.
"""
