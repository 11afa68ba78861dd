"""RocketMQ's properties files: Java's rules, with the line of each entry."""

from __future__ import annotations

import pytest

from mqwire.properties import PropertiesError, Property, format_properties, parse_properties

CASES = [
    pytest.param(b"a=1", [(1, "a", "1")], id="equals sign"),
    pytest.param(b"a: 1\nb 2\n  c\t=\t3  ", [(1, "a", "1"), (2, "b", "2"), (3, "c", "3")], id="colon, blank and blanks"),
    pytest.param(
        b"namesrvAddr=127.0.0.1:9876;[::1]:9876", [(1, "namesrvAddr", "127.0.0.1:9876;[::1]:9876")], id="separators in the value"
    ),
    pytest.param(b"# no\n! no\n\n   # no\na=1 # yes", [(5, "a", "1 # yes")], id="comments"),
    pytest.param(b"a=\nb", [(1, "a", ""), (2, "b", "")], id="empty values"),
    pytest.param(b"a=1\\\n   2\\\n3\nb=4", [(1, "a", "123"), (4, "b", "4")], id="joined lines"),
    pytest.param(b"a=C:\\\\tmp\\\\\nb=2", [(1, "a", "C:\\tmp\\"), (2, "b", "2")], id="an escaped backslash joins nothing"),
    pytest.param(b"a=1\\", [(1, "a", "1")], id="a backslash at the end"),
    pytest.param(b"a\\=b\\ c=\\t\\n\\u0041\\z", [(1, "a=b c", "\t\nAz")], id="escapes"),
    pytest.param(b"a=\\ud83d\\ude00", [(1, "a", "\U0001f600")], id="escaped surrogates"),
    pytest.param(b"a=1\r\nb=2\rc=3", [(1, "a", "1"), (2, "b", "2"), (3, "c", "3")], id="all line ends"),
    pytest.param(b"\xef\xbb\xbfa=\xe6\xa0\x87", [(1, "a", "标")], id="utf-8 with a byte order mark"),
    pytest.param(b"a=1\na=2", [(1, "a", "1"), (2, "a", "2")], id="a key twice"),
    pytest.param(b"", [], id="nothing"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "entries"), CASES)
def test_entries_are_read_so(content: bytes, entries: list[tuple[int, str, str]]) -> None:
    assert parse_properties(content) == [Property(*entry) for entry in entries]


@pytest.mark.parametrize(
    ("content", "line"), [(b"a=1\n=2", 2), (b"a=1\nb=\xff", 2), (b"a=\\u12", 1), (b"x\ny\0", 2), (b"\n\n\\", 3)]
)
def test_what_cannot_be_read_is_reported_with_its_line(content: bytes, line: int) -> None:
    with pytest.raises(PropertiesError, match=f"^line {line}: ") as caught:
        parse_properties(content)
    assert caught.value.line == line


@pytest.mark.parametrize(
    "values",
    [{"a": "1"}, {"a b": " x"}, {"k=:#!": "=:#!"}, {"p": "C:\\tmp\\"}, {"t": "a\tb\nc"}, {"empty": ""}, {"u": "标签"}],
)
def test_what_is_written_is_read_back(values: dict[str, str]) -> None:
    assert {entry.key: entry.value for entry in parse_properties(format_properties(values).encode())} == values


@pytest.mark.timeout(60)
@pytest.mark.parametrize("content", [b"a" * 500_000, b"a\\\n" * 200_000, b"\\" * 500_001 + b"x", b"a" + b" " * 500_000])
def test_large_files_are_read_in_one_pass(content: bytes) -> None:
    assert len(parse_properties(content)) == 1
