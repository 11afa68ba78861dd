"""Bodies of messages for the eye: as text, indented JSON, hexadecimal, base64 or protobuf, cut where they are long. Pure."""

import base64
import codecs
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from controlplane.common.sentences import say, say_count
from controlplane.topics.masking import JSON_MAX_BYTES, Masks, Token, TooMuchToLookInto, tokens_of, verbatim
from controlplane.topics.protobuf_bodies import Decoded, DoesNotFit

BODY_SHOWN_MAX_BYTES = 64 * 1024
_INDENT = "  "
# Sizes of bodies with hidden values are told in these.
_SIZE_STEP_BYTES = 1024
_NO_BYTES = say("Rules mask values of this topic’s bodies, so that they are shown as text or JSON only.")


class BodyForm(StrEnum):
    """How a body is shown. PROTOBUF: as the JSON of what its topic's schema makes of it, in hexadecimal where it does not fit.

    AUTO: so where it fits, else as text where it is UTF-8 without control characters, else in hexadecimal.
    """

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"
    HEX = "hex"
    BASE64 = "base64"
    PROTOBUF = "protobuf"


class NotOfThisForm(ValueError):
    """The body can't be shown so: `sentence` says why."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence


class Masking(StrEnum):
    """What a reader's rules did to a body. MASKED: some values are replaced; WITHHELD: nothing of it is shown."""

    NONE = "none"
    MASKED = "masked"
    WITHHELD = "withheld"


@dataclass(frozen=True, slots=True)
class ShownBody:
    """A body for the eye. `encoding` is utf-8, json, hex, base64 or protobuf; `note` a sentence about what is not as it seems.

    `truncated` says that `text` holds only the first `shown_bytes` of `size_bytes`. Where a value is masked `shown_bytes` counts
    the masked text. Where one is, or may be in what is not shown, `size_bytes` is rounded up to whole KiB. So neither tells how
    long the value is. Of protobuf `text` is JSON, of which `shown_bytes` are shown where it is cut.
    """

    encoding: str
    text: str
    size_bytes: int
    shown_bytes: int
    masking: Masking = Masking.NONE
    # Of a text whose bytes are counted otherwise than those of the body.
    is_cut: bool | None = None
    note: str = ""

    @property
    def truncated(self) -> bool:
        return self.shown_bytes < self.size_bytes if self.is_cut is None else self.is_cut


def body_withheld(body: bytes) -> ShownBody:
    """Return of the body its size alone, rounded up to whole KiB."""
    return ShownBody("utf-8", "", _rounded(len(body)), 0, Masking.WITHHELD)


def body_shown(
    body: bytes,
    limit_bytes: int,
    form: BodyForm = BodyForm.AUTO,
    masks: Masks | None = None,
    decode: Callable[[bytes], Decoded] | None = None,
) -> ShownBody:
    """Return the body, cut after `limit_bytes` (at most 64 KiB) and never inside a character. Raises NotOfThisForm.

    Of JSON its indented text has at most about so many bytes; `shown_bytes` says how far in the body it goes. What `masks`
    hides is replaced, and what they can't look into is withheld or shown, as they say. `decode` is by the topic's schema, which
    raises DoesNotFit, and is used only where nothing is hidden in bodies: no path of a rule leads into protobuf.
    """
    limit_bytes = max(0, min(limit_bytes, BODY_SHOWN_MAX_BYTES))
    if masks is not None and masks.hide_bodies and body:
        document = masks.document_of(body)
        if document is not None:
            try:
                return _masked(document, len(body), limit_bytes, form, masks)
            except TooMuchToLookInto:
                return body_withheld(body)
        if masks.withholds:
            return body_withheld(body)
    if masks is not None and masks.hide_bodies:
        decode = None
        if form is BodyForm.PROTOBUF:
            raise NotOfThisForm(_NO_BYTES)
    head = body[:limit_bytes]
    match form:
        case BodyForm.PROTOBUF:
            if decode is None:
                raise NotOfThisForm(say("This topic has no schema by which its bodies could be shown."))
            try:
                return _by_schema(decode(body), len(body), limit_bytes)
            except DoesNotFit as error:
                return ShownBody("hex", head.hex(), len(body), len(head), note=error.sentence)
        case BodyForm.JSON:
            source = _json_text(body)
            text, read = indented(tokens_of(source), len(source), limit_bytes)
            return ShownBody("json", text, len(body), len(source[:read].encode("utf-8")))
        case BodyForm.BASE64:
            return ShownBody("base64", base64.b64encode(head).decode("ascii"), len(body), len(head))
        case BodyForm.TEXT:
            shown = head.decode("utf-8", "replace")
            text = "".join(one if one.isprintable() or one in "\t\r\n" else "\ufffd" for one in shown)
            return ShownBody("utf-8", text, len(body), len(head))
        case BodyForm.AUTO:
            found, note = _as_text(head, complete=len(head) == len(body)), ""
            if decode is not None:
                try:
                    message = decode(body)
                except DoesNotFit as error:
                    note = error.sentence
                else:
                    # Almost any text is a message with no field that the schema has; a newer program's message has a few.
                    if not message.unknown_bytes or (found is None and message.known_bytes):
                        return _by_schema(message, len(body), limit_bytes)
            if found is not None:
                return ShownBody("utf-8", found, len(body), len(found.encode("utf-8")))
            return ShownBody("hex", head.hex(), len(body), len(head), note=note)
    return ShownBody("hex", head.hex(), len(body), len(head))


def _by_schema(message: Decoded, size_bytes: int, limit_bytes: int) -> ShownBody:
    head = message.text[:limit_bytes]  # a character has a byte at least
    lines = (one if one.isprintable() else "".join(map(_escaped, one)) for one in head.split("\n"))
    encoded = "\n".join(lines).encode("utf-8")
    is_cut = max(len(message.text), len(encoded)) > limit_bytes
    text = encoded[:limit_bytes].decode("utf-8", "ignore")
    note = (
        say_count(
            "%(count)s byte is of fields that the schema does not have, and is left out.",
            "%(count)s bytes are of fields that the schema does not have, and are left out.",
            message.unknown_bytes,
        )
        if message.unknown_bytes
        else ""
    )
    shown_bytes = len(text.encode("utf-8")) if is_cut else size_bytes
    return ShownBody("protobuf", text, size_bytes, shown_bytes, is_cut=is_cut, note=note)


def _escaped(character: str) -> str:
    """Return what JSON writes for a character that changes how the text around it looks, such as a right-to-left mark."""
    return character if character.isprintable() else json.dumps(character)[1:-1]


def _as_text(head: bytes, *, complete: bool) -> str | None:
    """Return the text without the character that the cut may have split; None for what isn't text."""
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(head, final=complete)
    except UnicodeDecodeError:
        return None
    return text if all(character.isprintable() or character in "\t\r\n" for character in text) else None


def _json_text(body: bytes) -> str:
    if len(body) > JSON_MAX_BYTES:
        kibibytes = JSON_MAX_BYTES // 1024
        raise NotOfThisForm(say("A body of more than %(kibibytes)s KiB is not shown as JSON.", kibibytes=kibibytes))
    try:
        text = body.decode("utf-8")
        # Only whether it is JSON: numbers stay texts, however long.
        json.loads(text, parse_int=str, parse_float=str)
    except (ValueError, RecursionError) as error:
        raise NotOfThisForm(say("This body is not JSON.")) from error
    return text


def _masked(source: str, size_bytes: int, limit_bytes: int, form: BodyForm, masks: Masks) -> ShownBody:
    """Return a document with hidden values replaced; only as text, as its bytes would hold them."""
    is_masked = False

    def noted(tokens: Iterable[Token]) -> Iterable[Token]:
        nonlocal is_masked
        for token in tokens:
            is_masked |= token.is_mask
            yield token

    tokens = noted(masks.tokens(source))
    if form in (BodyForm.HEX, BodyForm.BASE64, BodyForm.PROTOBUF):
        raise NotOfThisForm(_NO_BYTES)
    if form is BodyForm.JSON:
        text, read = indented(tokens, len(source), limit_bytes)
    else:
        text, read = _cut(source, tokens, limit_bytes)
    encoding = "json" if form is BodyForm.JSON else "utf-8"
    is_cut = read < len(source)
    if is_masked:
        return ShownBody(encoding, text, _rounded(size_bytes), len(text.encode("utf-8")), Masking.MASKED, is_cut)
    shown_bytes = len(source[:read].encode("utf-8"))
    return ShownBody(encoding, text, _rounded(size_bytes) if is_cut else size_bytes, shown_bytes, is_cut=is_cut)


def _rounded(size_bytes: int) -> int:
    return -(-size_bytes // _SIZE_STEP_BYTES) * _SIZE_STEP_BYTES


def _cut(source: str, tokens: Iterable[Token], limit_bytes: int) -> tuple[str, int]:
    """Return the document as it is written, as far as whole characters fit, and how many of the source's stand for that."""
    parts: list[bytes] = []
    left_bytes, read = limit_bytes, 0
    for part, end in verbatim(source, tokens):
        encoded = part.encode("utf-8")
        parts.append(encoded[:left_bytes])
        left_bytes -= len(encoded)
        if left_bytes < 0:
            break
        read = end
    else:
        read = len(source)
    text = b"".join(parts).decode("utf-8", "ignore")
    return "".join(one if one.isprintable() or one in "\t\r\n" else "\ufffd" for one in text), read


def indented(tokens: Iterable[Token], length: int, limit: int) -> tuple[str, int]:
    """Return JSON with a line for each member and element, and how many of its source's `length` characters were read.

    It ends after a number, text or sign with which it reaches `limit` characters. Numbers and texts stay as they were written.
    """
    parts: list[str] = []
    size = depth = 0
    for token in tokens:
        part = token.text
        if part[0] in "{[" and len(part) == 1:
            depth += 1
            part = f"{part}\n{_INDENT * depth}"
        elif part[0] in "{[":  # with nothing in it
            part = part[0] + part[-1]
        elif part in "}]":
            depth -= 1
            part = f"\n{_INDENT * depth}{part}"
        elif part == ",":
            part = f",\n{_INDENT * depth}"
        elif part == ":":
            part = ": "
        parts.append(part)
        size += len(part)
        if size >= limit:
            return "".join(parts), token.end
    return "".join(parts), length
