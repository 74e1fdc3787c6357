"""Models on disk: the catalogue (models.txt), where files come from, the cache they lie in, and the loaded ones.

Nothing here knows HTTP dialects; only `manager` knows engines.
"""
