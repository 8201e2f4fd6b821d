"""SIP messages: scripted peers write requests, and read header fields of other messages."""

import re


def request(
    method: str,
    uri: str,
    here: str,
    *,
    branch: str,
    from_tag: str,
    call: str,
    cseq: int = 1,
    to: str | None = None,
    via: str = "",
    more: str = "",
    body: str = "",
) -> bytes:
    """Returns a request from the address `here`.

    `more` are further header lines, and `via` further parameters of the Via.
    """
    return (
        f"{method} {uri} SIP/2.0\r\nVia: SIP/2.0/UDP {here}{via};branch={branch}\r\n"
        f"From: <sip:stranger@{here}>;tag={from_tag}\r\nTo: {to or f'<{uri}>'}\r\nCall-ID: {call}\r\n"
        f"CSeq: {cseq} {method}\r\nContact: <sip:stranger@{here}>\r\nMax-Forwards: 70\r\n"
        f"{more}Content-Length: {len(body)}\r\n\r\n{body}"
    ).encode()


def value(message: bytes, name: str) -> str:
    """Returns the value of the first header field of that name, or an empty text if there is none."""
    found = re.search(rf"^{name}:[ \t]*([^\r]*)\r$".encode(), message, re.I | re.M)
    return found[1].decode() if found else ""
