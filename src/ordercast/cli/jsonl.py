"""JSON lines of events, as `pipe` and `log` print them: one object a line, whatever bytes the messages hold."""

from __future__ import annotations

import base64
from json.encoder import encode_basestring

from ordercast.events import Headers

_LINE_ENDS = {ord(sign): f"\\u{ord(sign):04x}" for sign in "\x85\u2028\u2029"}
"""What some readers of lines take for an end of line, though JSON does not; escaped in JSON's own way."""


def field(name: str, data: bytes) -> str:
    """Bytes as a field: text where they are UTF-8, else base64 under another name."""
    try:
        return f'"{name}":{encode_basestring(data.decode())}'
    except UnicodeDecodeError:
        return f'"{name}_base64":"{base64.b64encode(data).decode()}"'


def columns(key: bytes | None, headers: Headers | None) -> str:
    """What a message may carry beside its data, as fields that follow others."""
    fields = "" if key is None else "," + field("key", key)
    if headers is not None:
        each = (f'{{"name":{encode_basestring(name)},{field("value", value)}}}' for name, value in headers)
        fields += f',"headers":[{",".join(each)}]'
    return fields


def encode(lines: list[str]) -> bytes:
    text = "".join(lines)
    return (text if text.isascii() else text.translate(_LINE_ENDS)).encode()
