"""First programs in each language, filled with a cluster's address, keys and topic.

The programs are real source files beside this module; each placeholder is a word between two `@` inside a string, so that the files
stay valid source. Lines marked @TLS@ are for clusters that have TLS. The tests fill them and run them.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from controlplane.common.sentences import say, say_all

_HERE = Path(__file__).parent
_TLS_LINE = re.compile(r".* @TLS@\n")
_TLS_MARK = re.compile(r" +(?:#|//) @TLS@(?=\n)")

SECRET_PLACEHOLDER = "YOUR_SECRET_KEY"  # noqa: S105  # to be filled in
ACCESS_PLACEHOLDER = "YOUR_ACCESS_KEY"
TOPIC_PLACEHOLDER = "YOUR_TOPIC"
CA_FILE = "ca.pem"


@dataclass(frozen=True, slots=True)
class Values:
    """What is filled in. `namesrv_addr` is `host:port`, several joined by `;`; without `tls_ca`, a PEM text, there is no TLS."""

    namesrv_addr: str
    access_key: str = ACCESS_PLACEHOLDER
    secret_key: str = SECRET_PLACEHOLDER
    topic: str = TOPIC_PLACEHOLDER
    tls_ca: str = ""


@dataclass(frozen=True, slots=True)
class SnippetFile:
    """One file or command line. `part_id` is its id on the page."""

    title: str
    text: str
    part_id: str


@dataclass(frozen=True, slots=True)
class Snippet:
    """A language. `note` says in plain words what is supported."""

    name: str
    title: str
    note: str
    files: tuple[SnippetFile, ...]


_LANGUAGES: tuple[tuple[str, str, str, tuple[tuple[str, str], ...]], ...] = (
    (
        "java",
        "Java",
        say("Apache’s own client, unmodified. Java 8 or later."),
        (
            ("pom.xml", "java/pom.xml"),
            ("src/main/java/Quickstart.java", "java/Quickstart.java"),
            (CA_FILE, CA_FILE),
            (say("Run"), "java/run.sh"),
        ),
    ),
    (
        "go",
        "Go",
        say("Apache’s rocketmq-client-go, version 2, unmodified."),
        ((say("Install"), "go/install.sh"), ("main.go", "go/main.go"), (say("Run"), "go/run.sh")),
    ),
    (
        "node",
        "Node",
        (
            say(
                "ali-ons is the npm package that speaks RocketMQ’s remoting protocol in pure JavaScript."
                " Apache’s own rocketmq-client-nodejs speaks only the gRPC protocol of RocketMQ 5, which"
                " this cluster does not offer."
            )
        ),
        ((say("Install"), "node/install.sh"), ("quickstart.js", "node/quickstart.js"), (say("Run"), "node/run.sh")),
    ),
    (
        "python",
        "Python",
        say("Highwater’s own client, pure Python 3.11 or later. It works with Apache RocketMQ, too."),
        (
            (say("Install"), "python/install.sh"),
            ("quickstart.py", "python/quickstart.py"),
            (CA_FILE, CA_FILE),
            (say("Run"), "python/run.sh"),
        ),
    ),
)


_WITHOUT_TLS = say("It has no TLS: use it in a network that you trust.")


def snippets_render(values: Values) -> list[Snippet]:
    """Return the programs of all languages with the values filled in."""
    return [
        Snippet(
            name=name,
            title=title,
            note=say_all(note, _WITHOUT_TLS) if values.tls_ca and not any(CA_FILE in file for file in files) else note,
            files=tuple(
                SnippetFile(file_title, _fill(source, values), f"snippet-{name}-{position}")
                for position, (file_title, source) in enumerate(files)
                if source != CA_FILE or values.tls_ca
            ),
        )
        for name, title, note, files in _LANGUAGES
    ]


def _fill(source: str, values: Values) -> str:
    if source == CA_FILE:
        return values.tls_ca.rstrip("\n")
    text = (_HERE / source).read_text(encoding="utf-8")
    text = (_TLS_MARK if values.tls_ca else _TLS_LINE).sub("", text)
    for word, value in (
        ("NAMESRV_ADDR", values.namesrv_addr),
        ("ACCESS_KEY", values.access_key),
        ("SECRET_KEY", values.secret_key),
        ("TOPIC", values.topic),
    ):
        # A JSON string's inside is valid inside a string of Java, Go, JavaScript and Python alike.
        text = text.replace(f"@{word}@", json.dumps(value)[1:-1])
    return text.rstrip("\n")
