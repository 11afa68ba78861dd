"""The platform's REST API as commands: its OpenAPI description becomes `highwater NOUN VERB …`, and a request becomes the
command line that makes it. The names follow from the description alone, so a new operation is a new command. Pure.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import msgspec

from highwater.errors import ConfigurationError
from highwater.printable import has_controls, printable_json

Kind = Literal["string", "integer", "number", "boolean", "array", "object", "any"]

METHODS = ("get", "post", "put", "patch", "delete")
# The place in a path that has an option and a default of its own.
TENANT = "tenant"
_PLACE = re.compile(r"\{(\w+)\}")


class Field(msgspec.Struct, frozen=True, omit_defaults=True):
    """A query parameter, or a member of the body, and so an option of the command."""

    name: str
    kind: Kind = "string"
    # What the members of an array are.
    items: Kind = "string"
    nullable: bool = False
    required: bool = False
    choices: tuple[str, ...] = ()
    # A text that is base64 of bytes, for which a file may be named.
    is_base64: bool = False
    help: str = ""

    @property
    def option(self) -> str:
        """The option's name, with its dashes."""
        return "--" + self.name.replace("_", "-")


class Command(msgspec.Struct, frozen=True, omit_defaults=True):
    """One operation of the API."""

    noun: str
    verb: str
    method: str
    path: str
    help: str = ""
    query: tuple[Field, ...] = ()
    body: tuple[Field, ...] = ()
    # Its body is an object whose members the options give.
    has_body: bool = False

    @property
    def places(self) -> tuple[str, ...]:
        """What stands in braces in the path, without the tenant: the command's arguments, in this order."""
        return tuple(name for name in _PLACE.findall(self.path) if name != TENANT)

    @property
    def of_tenant(self) -> bool:
        """Whether the path names a tenant."""
        return TENANT in _PLACE.findall(self.path)

    def filled(self, places: Mapping[str, str]) -> str:
        """Return the path with its places filled, quoted. Raises ConfigurationError for one that would be another path."""
        for name, text in places.items():
            if text in ("", ".", ".."):
                raise ConfigurationError(f"{name} {text!r} is no name")
        return _PLACE.sub(lambda found: quote(places[found[1]], safe=""), self.path)


def command_words(operation_id: str) -> tuple[str, str]:
    """Return noun and verb of an operation: `consumer_group_members` is `consumer-group members`."""
    noun, _, verb = operation_id.rpartition("_")
    return (noun or verb).replace("_", "-"), verb if noun else "get"


def commands_of(description: Mapping[str, Any]) -> tuple[Command, ...]:
    """Return the commands of an OpenAPI 3.1 description, by noun, then in the description's order."""
    schemas = description.get("components", {}).get("schemas", {})
    found = []
    for path, operations in description["paths"].items():
        for method in METHODS:
            if (operation := operations.get(method)) is None:
                continue
            noun, verb = command_words(operation["operationId"])
            content = operation.get("requestBody", {}).get("content", {})
            schema = _resolved(content["application/json"]["schema"], schemas) if "application/json" in content else {}
            found.append(
                Command(
                    noun=noun,
                    verb=verb,
                    method=method.upper(),
                    path=path,
                    help=operation.get("summary") or "",
                    query=tuple(
                        _field(each["name"], each["schema"], each.get("required", False), schemas, each)
                        for each in operation.get("parameters", ())
                        if each["in"] == "query"
                    ),
                    body=tuple(
                        _field(name, member, name in schema.get("required", ()), schemas, member)
                        for name, member in schema.get("properties", {}).items()
                        if not member.get("readOnly")
                    ),
                    has_body=bool(schema),
                )
            )
    return tuple(sorted(found, key=lambda command: command.noun))


def _resolved(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follow references, and take the parts of `allOf` together."""
    while "$ref" in schema:
        schema = {**schemas[schema["$ref"].rpartition("/")[2]], **{k: v for k, v in schema.items() if k != "$ref"}}
    if "allOf" in schema:
        parts = [_resolved(part, schemas) for part in schema["allOf"]]
        schema = {key: value for part in [*parts, schema] for key, value in part.items() if key != "allOf"}
    return schema


def _field(
    name: str, schema: Mapping[str, Any], required: bool, schemas: Mapping[str, Any], described: Mapping[str, Any]
) -> Field:
    kinds, choices = _kinds(schema, schemas)
    named = [kind for kind in kinds if kind != "null"]
    kind: Kind = named[0] if len(set(named)) == 1 else "any"
    items: list[Kind] = ["string"]
    if kind == "array":
        items = _kinds(_resolved(schema, schemas).get("items", {}), schemas)[0]
    return Field(
        name=name,
        kind=kind,
        items=items[0] if len(items) == 1 else "any",
        nullable="null" in kinds,
        required=required,
        choices=tuple(choices),
        is_base64=_resolved(schema, schemas).get("contentEncoding") == "base64",
        help=" ".join(described.get("description", "").split()),
    )


def _kinds(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> tuple[list[Any], list[str]]:
    """Return the JSON types that a schema allows, and the values of its enumerations."""
    schema = _resolved(schema, schemas)
    kinds: list[Any] = []
    choices = [str(value) for value in schema.get("enum", ()) if value not in (None, "")]
    for part in schema.get("oneOf", schema.get("anyOf", ())):
        part_kinds, part_choices = _kinds(part, schemas)
        kinds += part_kinds
        choices += part_choices
    stated = schema.get("type", [])
    kinds += [stated] if isinstance(stated, str) else stated
    if not kinds and schema.get("enum"):
        kinds = ["null" if value is None else "string" for value in schema["enum"]]
    return kinds or ["any"], choices


def value_of(field: Field, texts: Sequence[str]) -> object:
    """Return what the option's texts mean. Only arrays take several. Raises ConfigurationError."""
    if field.nullable and list(texts) == ["null"]:
        return None
    if field.kind == "array" and not (len(texts) == 1 and texts[0].startswith("[")):
        return [_scalar(field, field.items, text) for text in texts]
    if len(texts) > 1:
        raise ConfigurationError(f"{field.option} is given {len(texts)} times")
    return _scalar(field, field.kind, texts[0])


def _scalar(field: Field, kind: Kind, text: str) -> object:
    if kind == "string":
        return text
    if kind == "boolean" and text not in ("true", "false"):
        raise ConfigurationError(f"{field.option} {text!r}: give true or false")
    try:
        value = json.loads(text)
    except ValueError:
        if kind == "any":
            return text
        raise ConfigurationError(f"{field.option} {text!r} is no {_NAMES[kind]}") from None
    right = {"integer": int, "number": int | float, "array": list, "object": dict}.get(kind, object)
    if not isinstance(value, right) or (kind in ("integer", "number") and isinstance(value, bool)):
        raise ConfigurationError(f"{field.option} {text!r} is no {_NAMES[kind]}")
    return value


_NAMES: dict[Kind, str] = {
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "array": "JSON array",
    "object": "JSON object",
    "string": "text",
    "any": "JSON value",
}


def shell_word(text: str) -> str:
    """Return a text as one word for a POSIX shell. Control characters, which act on a terminal that it is pasted into, are spelled
    out; line ends at the end of such a text are lost.
    """
    if not has_controls(text):
        return shlex.quote(text)
    spelled = "".join(
        "".join(f"\\0{byte:03o}" for byte in each.encode()) if has_controls(each) else each
        for each in text.replace("\\", "\\\\")
    )
    return f"\"$(printf '%b' {shlex.quote(spelled)})\""


def command_line(command: Command, address: str, body: Mapping[str, Any] | None) -> str:
    """Return the line for a POSIX shell that makes a request. `address` is the command's path with its places filled, and may
    have a query. Options stand on lines of their own.
    """
    parts = urlsplit(address)
    pattern = _PLACE.sub(r"(?P<\1>[^/]+)", command.path)
    match = re.fullmatch(pattern, parts.path)
    if match is None:
        raise ValueError(f"{address} is no address of {command.path}")
    places = {name: unquote(text) for name, text in match.groupdict().items()}
    head = ["highwater", command.noun, command.verb]
    arguments = [text for name, text in places.items() if name != TENANT]
    options = [_option("tenant", places[TENANT])] if TENANT in places else []
    options += [_option(name, text) for name, text in parse_qsl(parts.query, keep_blank_values=True)]
    options += list(_body_options(body or {}))
    quoted = [shell_word(argument) for argument in arguments]
    if any(argument.startswith("-") for argument in arguments):
        quoted, options = [], [*options, " ".join(["--", *quoted])]
    return " \\\n  ".join([" ".join([*head, *quoted]), *options])


def _body_options(body: Mapping[str, Any]) -> Iterator[str]:
    """A member that no option gives without doubt sends the whole body as JSON."""
    if any(_is_ambiguous(value) for value in body.values()):
        yield _option("data", printable_json(body))
        return
    for name, value in body.items():
        for text in _texts(value):
            yield _option(name, text)


def _is_ambiguous(value: object) -> bool:
    if any(has_controls(text) for text in _texts(value)):
        return True
    if isinstance(value, list | tuple):
        return any(
            not isinstance(item, str | int) or isinstance(item, bool) or str(item)[:1] in ("[", "") for item in value
        )
    return value == "null"


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple) and value:
        yield from map(str, value)
    else:
        yield json.dumps(value, ensure_ascii=False)


def _option(name: str, text: str) -> str:
    option = "--" + name.replace("_", "-")
    return f"{option}={shell_word(text)}" if text.startswith("-") else f"{option} {shell_word(text)}"
