"""What Open WebUI 0.12.4 sent when it was used as its front end uses it, one JSON object a request, and how it reads replies.

The recordings were made between it and this server: chats over its websocket with its own tools, a tool defined in it, the
tasks around a chat, custom parameters, the stop button, a file. Its prompts and the descriptions of its tools are left out.
"""
