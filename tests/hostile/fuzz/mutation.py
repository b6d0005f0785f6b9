"""Inputs made from those of a corpus: pieces cut out, doubled, swapped for what readers stumble over. Hypothesis shrinks them."""

from typing import Final

from hypothesis import strategies as st

TOKENS: Final = (
    *(bytes([byte]) for byte in b"\x00\t\n\r \"'\\/{}[]()<>:,;=#$*+-.0129aeEu_\x7f\x80\xc0\xed\xff"),
    *(b"\r\n", b"\n\n", b"\r\n\r\n", b": ", b"null", b"true", b"NaN", b"-0", b"1e999", b"1.0", b"\\u0000", b"\\ud800"),
    *(b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", "é雪🦊\u2028".encode(), b"9" * 30, b"9" * 5000),
    *(
        b"[" * 300,
        b'{"a":' * 300,
        b"//",
        b"/*",
        b"*/",
        b"${",
        b"${A:-",
        b"'''",
        b'"""',
        b"[[",
        b"]]",
        b"data:",
        b"id:",
        b"retry:",
    ),
    *(
        b'"$ref":"#"',
        b'"type":"object"',
        b'"method":"tools/call"',
        b'"id":1,',
        b'"jsonrpc":"2.0",',
        b"content-length: 5\r\n",
    ),
)


@st.composite
def mutated(draw: st.DrawFn, corpus: list[bytes]) -> bytes:
    """Draw an input of the corpus with up to six changes."""
    data = draw(st.sampled_from(corpus))
    for _ in range(draw(st.integers(0, 6))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.sampled_from((0, 0, 1, 1, 2, 8, 64))))
        piece = draw(
            st.one_of(
                st.sampled_from(TOKENS),
                st.binary(max_size=4),
                st.just(data[start:end] * 2),
                st.just(b""),
                st.sampled_from(corpus).map(lambda other, at=start: other[at : at + 40]),  # type: ignore[misc]
            )
        )
        data = data[:start] + piece + data[end:]
    return data
