"""The known string formats, each as a regex (whole match) of the texts that its standard allows.

Sources: RFC 3339 (dates, times, durations), 5321 and 6531 (mail), 1123 (host names), 4291 (IPv6), 3986 and 3987 (URIs), 4122,
6901 (JSON pointers), 6570. What no standard text can be is left out too: 30 February, the year 0, leap seconds.
"""

from __future__ import annotations

from functools import cache

from converters.automata import Dfa
from converters.errors import UnsupportedFeature
from converters.limits import Budget, Limits
from converters.regex import regex_dfa

_LEAP = "(?:0[48]|[2468][048]|[13579][26])"
_YEAR = "(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
_LEAP_YEAR = f"(?:[0-9]{{2}}{_LEAP}|{_LEAP}00)"
_DATE = (
    f"(?:{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    f"|02-(?:0[1-9]|1[0-9]|2[0-8]))|{_LEAP_YEAR}-02-29)"
)
_HOUR_MINUTE = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_TIME = rf"{_HOUR_MINUTE}:[0-5][0-9](?:\.[0-9]+)?(?:[Zz]|[+-]{_HOUR_MINUTE})"
_DURATION_TIME = "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"
_DURATION_DATE = "(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)"
_DURATION = f"P(?:{_DURATION_DATE}(?:{_DURATION_TIME})?|{_DURATION_TIME}|[0-9]+W)"

_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4 = rf"{_OCTET}(?:\.{_OCTET}){{3}}"
_H16 = "[0-9A-Fa-f]{1,4}"


def _ipv6() -> str:
    """Eight groups, or `::` for at least one; the last two groups may be an IPv4 address."""

    def groups(n: int) -> str:
        """Exactly n groups, the last two perhaps in IPv4 form."""
        plain = ":".join([_H16] * n)
        dotted = ":".join([*[_H16] * (n - 2), _IPV4])
        return f"(?:{plain}|{dotted})" if n >= 2 else plain

    shortened = [
        f"{':'.join([_H16] * left)}::(?:{'|'.join(groups(right) for right in range(1, 8 - left))})?" if left < 7
        else f"{':'.join([_H16] * left)}::"
        for left in range(8)
    ]  # fmt: skip
    return f"(?:{groups(8)}|{'|'.join(shortened)})"


_IPV6 = _ipv6()
_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_LONG_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_SHORT_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,22}[A-Za-z0-9])?"
_HOSTNAME = rf"(?:{_LONG_LABEL}(?:\.{_LONG_LABEL}){{0,2}}|{_SHORT_LABEL}(?:\.{_SHORT_LABEL}){{0,9}})"
"""Names of up to 3 labels of 63 characters, or 10 labels of 24: the limit of 253 in all would need 32,000 states."""

_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_QUOTED = r'"(?:[ !#-\[\]-~]|\\[ -~])*"'
_DOMAIN = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[(?:{_IPV4}|IPv6:{_IPV6})\])"
_EMAIL = rf"(?:{_ATOM}(?:\.{_ATOM})*|{_QUOTED})@{_DOMAIN}"
_IDN_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~\u00a0-\u{10ffff}-]+"
_IDN_LABEL = r"[A-Za-z0-9\u00a0-\u{10ffff}](?:[A-Za-z0-9\u00a0-\u{10ffff}-]*[A-Za-z0-9\u00a0-\u{10ffff}])?"
_IDN_EMAIL = rf"(?:{_IDN_ATOM}(?:\.{_IDN_ATOM})*|{_QUOTED})@(?:{_IDN_LABEL}(?:\.{_IDN_LABEL})*|\[(?:{_IPV4}|IPv6:{_IPV6})\])"

_UCS = r"\u00a0-\ud7ff\uf900-\ufdcf\ufdf0-\uffef"
_PRIVATE = r"\ue000-\uf8ff"
"""Of the basic plane: the judge that everyone uses knows no others in IRIs."""


def _uri(more: str = "", private: str = "", *, relative: bool = False) -> str:
    """RFC 3986; `more` are RFC 3987's further characters, `private` those of its queries."""
    name = rf"A-Za-z0-9._~!$&'()*+,;={more}-"
    hexed = "%[0-9A-Fa-f]{2}"
    pchar = f"(?:[:@{name}]|{hexed})"
    host = rf"(?:\[(?:{_IPV6}|v[0-9A-Fa-f]+\.[:{name.replace(more, '') if more else name}]+)\]|(?:[{name}]|{hexed})*)"
    authority = f"(?:(?:[:{name}]|{hexed})*@)?{host}(?::[0-9]*)?"
    segments = f"(?:/{pchar}*)*"
    path = f"(?://{authority}{segments}|/(?:{pchar}+{segments})?|{pchar}+{segments})?"
    query = rf"(?:\?(?:[:@/?{name}{private}]|{hexed})*)?".replace(f"-{private}", f"{private}-")
    fragment = f"(?:#(?:[:@/?{name}]|{hexed})*)?"
    absolute = f"[A-Za-z][A-Za-z0-9+.-]*:{path}{query}{fragment}"
    if not relative:
        return absolute
    plain = f"(?:[@{name}]|{hexed})+{segments}"
    return f"(?:{absolute}|(?://{authority}{segments}|/(?:{pchar}+{segments})?|{plain})?{query}{fragment})"


_POINTER = "(?:/(?:[^~/]|~[01])*)*".replace("[^~/]", r"(?:[^~/]|\n|\r|\u2028|\u2029)")
_VARCHAR = "(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})"
_VARSPEC = rf"[A-Za-z0-9_](?:\.?{_VARCHAR})*(?::[1-9][0-9]{{0,2}}|\*)?"
_URI_TEMPLATE = (
    rf"(?:[!#$&(-;=?-\[\]_a-z~\u00a0-\ud7ff\ue000-\u{{10ffff}}]|%[0-9A-Fa-f]{{2}}|\{{[+#./;?&]?{_VARSPEC}(?:,{_VARSPEC})*\}})*"
)

FORMATS: dict[str, str] = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}[Tt]{_TIME}",
    "duration": _DURATION,
    "email": _EMAIL,
    "idn-email": _IDN_EMAIL,
    "hostname": _HOSTNAME,
    "ipv4": _IPV4,
    "ipv6": _IPV6,
    "uuid": "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}",
    "uri": _uri(),
    "uri-reference": _uri(relative=True),
    "iri": _uri(_UCS, _PRIVATE),
    "iri-reference": _uri(_UCS, _PRIVATE, relative=True),
    "json-pointer": _POINTER,
    "relative-json-pointer": f"(?:0|[1-9][1-9]*0?)(?:#|{_POINTER})",
    "uri-template": _URI_TEMPLATE,
}
"""The asserted formats. Every other one that isn't in `REFUSED` is an annotation."""

REFUSED: dict[str, str] = {
    "regex": "the format regex, which is no regular language",
    "idn-hostname": "the format idn-hostname, whose rules go by tables of Unicode",
}
"""Known formats without an exact automaton."""


@cache
def format_dfa(name: str) -> Dfa:
    """The texts of a known format. Its size is no request's fault, so it has a budget of its own. Raises UnsupportedFeature."""
    if name in REFUSED:
        raise UnsupportedFeature(REFUSED[name])
    return regex_dfa(FORMATS[name], "match", Budget(Limits(automaton_bytes=1 << 22, compile_s=30)))
