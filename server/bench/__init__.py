"""Comparing servers: the same streamed requests against several OpenAI-compatible URLs, in turn. Behind `gramserve bench`.

What lives here talks HTTP only, as any client would: it knows neither this server's inside nor llama.cpp.
"""
