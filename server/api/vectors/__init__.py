"""Texts in, numbers out: embeddings and rankings. No dialect of chats; OpenAI's, Jina's and Cohere's shapes."""
