"""The error shape of /v1, which Responses has too."""

from server.api.openai_shape import encode_error as encode_error
from server.api.openai_shape import error_body as error_body
