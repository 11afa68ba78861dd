"""What of a message is hidden from a reader: members of a JSON body by path, and properties by name. Pure.

What can't be looked into is withheld whole unless its rules say otherwise: a rule never fails by showing too much.
"""

import fnmatch
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import NamedTuple

from controlplane.common.sentences import say
from controlplane.topics.protobuf_bodies import Decoder

MASK = "[masked]"
_MASKED = f'"{MASK}"'
# Parsed whole before a part of it is shown.
JSON_MAX_BYTES = 512 * 1024
PATH_MAX_CHARACTERS = 200
# Documents in texts of documents; what lies deeper is hidden whole.
_NESTED_MAX = 3
_STEPS_KEPT_MAX = 10_000
# Of one answer. 2 MiB of a text may be a million tokens, each of which takes about 2 µs.
_BYTES_MAX = 2 * 1024 * 1024
_TOKENS_MAX = 250_000
# Of a document in a text, which is kept until its end is known.
_NESTED_TOKENS_MAX = 20_000
_SEGMENT = re.compile(r"[^.\[\]\s\x00-\x1f\x7f]+")
# Of valid JSON: an empty object or array, a sign, a text, or a number or word. The possessive repeats (`*+`) keep no state to
# go back to; without them, a long text takes more than 100 bytes for each of its characters.
_TOKEN = re.compile(r'\{\s*\}|\[\s*\]|[{}\[\],:]|"(?:[^"\\]++|\\.)*+"|[^\s{}\[\],:"]+')


class Token(NamedTuple):
    """A token of JSON, or what stands for a hidden value; `begin` and `end` are characters of the source."""

    text: str
    begin: int
    end: int
    is_mask: bool = False


class Part(StrEnum):
    """What a rule is about."""

    BODY = "body"
    PROPERTY = "property"


class TooMuchToLookInto(Exception):
    """An answer has used up the tokens that it may look at."""


@dataclass(slots=True)
class TokenBudget:
    """How many tokens may be looked at yet."""

    left: int = _TOKENS_MAX


class NotAPath(ValueError):
    """A pattern that is neither a path of members nor the name of a property: `sentence` says why."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence


@dataclass(frozen=True, slots=True)
class Path:
    """Members of JSON: from the document's root, or `floats` below any. A segment may hold * and ?, and ignores capitals."""

    segments: tuple[str, ...]
    floats: bool


def path_of(text: str) -> Path:
    """Return the path that `$.card.number`, `*.email` or `$` (the whole document) names. Raises NotAPath.

    Arrays need no sign: `$.lines.price` is the member of each line. `$.lines[*].price` says the same.
    """
    bare = text.replace("[*]", "")
    root, *segments = bare.split(".")
    if len(text) > PATH_MAX_CHARACTERS or root not in ("$", "*") or (root == "*" and not segments):
        raise NotAPath(say("Write a path such as $.card.number, or *.email for a member at any depth."))
    if not all(_SEGMENT.fullmatch(one) for one in segments):
        raise NotAPath(
            say("Between two dots stands a member's name, without blanks and brackets. * and ? may be in it.")
        )
    return Path(tuple(one.casefold() for one in segments), floats=root == "*")


def property_pattern_check(text: str) -> None:
    """Raise NotAPath for what can't be a property's name, with * and ? in it."""
    if not text or len(text) > PATH_MAX_CHARACTERS or not text.isprintable() or any(one.isspace() for one in text):
        raise NotAPath(say("Write a property's name, such as KEYS or phone. * and ? may be in it."))


@dataclass(frozen=True, slots=True)
class Rule:
    """`topic` and a property's `pattern` may hold * and ?. `withholds` hides a body that is no JSON object or array, and a
    text in one that begins as such but is none.
    """

    topic: str
    part: Part
    pattern: str
    withholds: bool = True


# Where in which path a value is: (index of the path, segments that are matched).
_States = frozenset[tuple[int, int]]


class Masks:
    """What is hidden of the messages of one topic. `budget` may be shared with other topics' masks."""

    def __init__(self, rules: Iterable[Rule], budget: TokenBudget | None = None) -> None:
        self._budget = budget or TokenBudget()
        rules = tuple(rules)
        body = [one for one in rules if one.part is Part.BODY]
        self.rules = frozenset(rules)
        self.withholds = any(one.withholds for one in body)
        self._paths = [path_of(one.pattern) for one in body]
        self._properties = _any_of(one.pattern for one in rules if one.part is Part.PROPERTY)
        self._segments = [[_any_of([segment]) for segment in path.segments] for path in self._paths]
        self._steps: dict[tuple[_States, str], _States] = {}

    @property
    def hide_bodies(self) -> bool:
        """Whether a body must be looked into before it is shown."""
        return bool(self._paths)

    def hides_property(self, name: str) -> bool:
        """Whether the property's value is hidden."""
        return self._properties.fullmatch(name.casefold()) is not None

    def document_of(self, body: bytes) -> str | None:
        """Return the text of a body that is JSON, of at most 512 KiB, and can be looked into; None for any other."""
        if len(body) > JSON_MAX_BYTES:
            return None
        try:
            text = body.decode("utf-8")
            # Only whether it is JSON: numbers stay texts, however long.
            json.loads(text, parse_int=str, parse_float=str)
        except (ValueError, RecursionError):
            return None
        # A number or a text has no members that a path could name; it may be just what is to be hidden. Where such bodies are
        # shown, a text may hold a document.
        first = text.lstrip()[:1]
        is_looked_into = first in ("{", "[") or (first == '"' and not self.withholds)
        return text if is_looked_into or any(not path.segments for path in self._paths) else None

    def tokens(self, text: str, depth: int = 0) -> Iterator[Token]:
        """Yield the tokens of valid JSON, with MASK for each hidden value. JSON in a text of it is looked into as well.

        Raises TooMuchToLookInto when the budget is used up.
        """
        return self._walk(text, frozenset((index, 0) for index in range(len(self._paths))), depth)

    def _walk(self, text: str, states: _States, depth: int) -> Iterator[Token]:
        frames: list[tuple[bool, _States]] = []
        at_name, hidden_depth, hidden_from = False, 0, 0
        for token in tokens_of(text):
            self._budget.left -= 1
            if self._budget.left < 0:
                raise TooMuchToLookInto
            part = token.text
            opens, closes = part in ("{", "["), part in ("}", "]")
            if hidden_depth:
                hidden_depth += opens - closes
                if not hidden_depth:
                    yield Token(_MASKED, hidden_from, token.end, is_mask=True)
                continue
            if part == ",":
                at_name, states = frames[-1]
            elif part == ":":
                at_name = False
            elif closes:
                frames.pop()
            elif at_name:
                states = self._below(frames[-1][1], json.loads(part))
            elif self._is_hidden(states):
                if opens:
                    hidden_depth, hidden_from = 1, token.begin
                    continue
                token = token._replace(text=_MASKED, is_mask=True)
            elif opens:
                at_name = part == "{"
                frames.append((at_name, states))
            elif part[0] == '"':
                token = self._text(token, states, depth)
            yield token

    def _text(self, token: Token, states: _States, depth: int) -> Token:
        text: str = json.loads(token.text)
        first = text.lstrip()[:1]
        if first not in ("{", "[", '"'):
            return token
        masked = token._replace(text=_MASKED, is_mask=True)
        if depth >= _NESTED_MAX:
            return masked
        try:
            json.loads(text, parse_int=str, parse_float=str)
        except RecursionError:
            return masked
        except ValueError:
            return masked if self.withholds and first != '"' else token
        found = list(islice(self._walk(text, states, depth + 1), _NESTED_TOKENS_MAX + 1))
        if len(found) > _NESTED_TOKENS_MAX:
            return masked
        if not any(one.is_mask for one in found):
            return token
        return masked._replace(text=json.dumps("".join(part for part, _ in verbatim(text, found))))

    def _is_hidden(self, states: _States) -> bool:
        return any(matched == len(self._segments[index]) for index, matched in states)

    def _below(self, states: _States, name: str) -> _States:
        found = self._steps.get((states, name))
        if found is None:
            if len(self._steps) >= _STEPS_KEPT_MAX:
                self._steps.clear()
            folded = name.casefold()
            further = {
                (index, matched + 1)
                for index, matched in states
                if self._segments[index][matched].fullmatch(folded) is not None
            }
            further |= {(index, 0) for index, path in enumerate(self._paths) if path.floats}
            found = self._steps[states, name] = frozenset(further)
        return found


class Sight:
    """What one reader may see of a cluster's messages, in one answer.

    Bodies are looked into up to `budget_bytes` and `budget_tokens` together; those after it are withheld. `decoder` knows the
    topics' schemas.
    """

    def __init__(
        self,
        rules: Sequence[Rule],
        budget_bytes: int = _BYTES_MAX,
        budget_tokens: int = _TOKENS_MAX,
        decoder: Decoder | None = None,
    ) -> None:
        self.decoder = decoder or Decoder()
        self._rules = tuple(rules)
        self._masks: dict[frozenset[str], Masks] = {}
        self._left_bytes = budget_bytes
        self._tokens = TokenBudget(budget_tokens)

    def masks_for(self, topics: Iterable[str]) -> Masks:
        """Return what is hidden of a message that belongs to these topics. To none: all that is hidden anywhere."""
        key = frozenset(topics)
        if key not in self._masks:
            rules = (
                one for one in self._rules if not key or any(fnmatch.fnmatchcase(topic, one.topic) for topic in key)
            )
            self._masks[key] = Masks(rules, self._tokens)
        return self._masks[key]

    def may_look_into(self, size_bytes: int) -> bool:
        """Take a body's size from the budget; False when that is used up. A body of more than 512 KiB takes nothing."""
        if size_bytes > JSON_MAX_BYTES:
            return True
        self._left_bytes -= size_bytes
        return self._left_bytes >= 0


def tokens_of(text: str) -> Iterator[Token]:
    """Yield the tokens of valid JSON as they are."""
    for match in _TOKEN.finditer(text):
        yield Token(match[0], match.start(), match.end())


def verbatim(source: str, tokens: Iterable[Token]) -> Iterator[tuple[str, int]]:
    """Yield each token with the blanks before it in the source, and at which character of the source it ends."""
    position = 0
    for token in tokens:
        yield source[position : token.begin] + token.text, token.end
        position = token.end


def _any_of(patterns: Iterable[str]) -> re.Pattern[str]:
    """What one of the globs matches; nothing without any. Translated globs try no place twice, so that none is slow."""
    return re.compile("|".join(fnmatch.translate(one.casefold()) for one in patterns) or r"(?!)")
