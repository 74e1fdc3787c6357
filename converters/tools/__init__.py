"""Tool calls: a format is one file with its grammar, its parser and its words (`codec` says what that is).

codecs      CODECS by name, and the choice by chat template                (hermes, mistral, llama, qwen, plain)
lower       ToolCalls → grammar                                            (parameters, xml_arguments, custom_input)
splitter    a model's output → parts: content, reasoning, calls            (reader, scanner, writer, custom, parts)

A server shows tools by the template, or by `Codec.describe_tools` where `knows_tools` says no; forces calls by compiling
`ToolCalls`; under "auto" watches for the triggers of `Codec.openings` and switches in `ToolCalls(opening=trigger)`; and reads
every output, streamed or whole, with a `Splitter`.
"""
