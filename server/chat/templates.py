"""Built-in chat templates by name, for models without one and for a request's `template`.

Only the turns of the family's published prompt format; no tools, no thinking.
"""

from __future__ import annotations

_SYSTEM_IN_FIRST_USER = """\
{%- set ns = namespace(system='') -%}
{%- for m in messages -%}{%- if m.role == 'system' -%}
{%- set ns.system = ns.system + m.content + '\\n\\n' -%}{%- endif -%}{%- endfor -%}
"""

CHATML = """\
{%- for m in messages -%}
{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""

LLAMA2 = (
    _SYSTEM_IN_FIRST_USER
    + """\
{%- for m in messages if m.role != 'system' -%}
{%- if m.role == 'assistant' -%}{{- ' ' + m.content + ' ' + eos_token -}}
{%- else -%}
{{- bos_token + '[INST] ' -}}
{%- if ns.system -%}{{- '<<SYS>>\\n' + ns.system.strip() + '\\n<</SYS>>\\n\\n' -}}{%- set ns.system = '' -%}{%- endif -%}
{{- m.content + ' [/INST]' -}}
{%- endif -%}
{%- endfor -%}
"""
)

LLAMA3 = """\
{{- bos_token -}}
{%- for m in messages -%}
{{- '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content + '<|eot_id|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}{%- endif -%}
"""

MISTRAL = (
    _SYSTEM_IN_FIRST_USER
    + """\
{{- bos_token -}}
{%- for m in messages if m.role != 'system' -%}
{%- if m.role == 'assistant' -%}{{- ' ' + m.content + eos_token -}}
{%- else -%}{{- '[INST] ' + ns.system + m.content + ' [/INST]' -}}{%- set ns.system = '' -%}
{%- endif -%}
{%- endfor -%}
"""
)

GEMMA = (
    _SYSTEM_IN_FIRST_USER
    + """\
{{- bos_token -}}
{%- for m in messages if m.role != 'system' -%}
{%- set role = 'model' if m.role == 'assistant' else 'user' -%}
{{- '<start_of_turn>' + role + '\\n' + (ns.system if role == 'user' else '') + m.content + '<end_of_turn>\\n' -}}
{%- if role == 'user' -%}{%- set ns.system = '' -%}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<start_of_turn>model\\n' -}}{%- endif -%}
"""
)

PHI3 = """\
{%- for m in messages -%}
{{- '<|' + m.role + '|>\\n' + m.content + '<|end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|assistant|>\\n' -}}{%- endif -%}
"""

ZEPHYR = """\
{%- for m in messages -%}
{{- '<|' + m.role + '|>\\n' + m.content + eos_token + '\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|assistant|>\\n' -}}{%- endif -%}
"""

VICUNA = """\
{%- for m in messages -%}
{%- if m.role == 'system' -%}{{- m.content + '\\n\\n' -}}
{%- elif m.role == 'assistant' -%}{{- 'ASSISTANT: ' + m.content + eos_token + '\\n' -}}
{%- else -%}{{- 'USER: ' + m.content + '\\n' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- 'ASSISTANT:' -}}{%- endif -%}
"""

ALPACA = """\
{%- for m in messages -%}
{%- if m.role == 'system' -%}{{- m.content + '\\n\\n' -}}
{%- elif m.role == 'assistant' -%}{{- '### Response:\\n' + m.content + eos_token + '\\n\\n' -}}
{%- else -%}{{- '### Instruction:\\n' + m.content + '\\n\\n' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '### Response:\\n' -}}{%- endif -%}
"""

PLAIN = """\
{%- for m in messages -%}{{- m.content -}}{%- if not loop.last -%}{{- '\\n\\n' -}}{%- endif -%}{%- endfor -%}
{%- if add_generation_prompt -%}{{- '\\n\\n' -}}{%- endif -%}
"""

TEMPLATES: dict[str, str] = {
    "alpaca": ALPACA,
    "chatml": CHATML,
    "gemma": GEMMA,
    "llama2": LLAMA2,
    "llama3": LLAMA3,
    "mistral": MISTRAL,
    "phi3": PHI3,
    "plain": PLAIN,
    "vicuna": VICUNA,
    "zephyr": ZEPHYR,
}
