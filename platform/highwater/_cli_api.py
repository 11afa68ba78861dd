"""`highwater NOUN VERB …`: each operation of the platform's REST API as a command."""

from __future__ import annotations

import argparse
import base64
import contextlib
import difflib
import json
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx

from highwater._api_client import DEFAULT_URL, Api, Refused, is_json
from highwater._cli_output import (
    EXIT_NO_PERMISSION,
    EXIT_NOT_FOUND,
    EXIT_REFUSED,
    EXIT_UNREACHABLE,
    EXIT_USAGE,
    UNKNOWN,
    print_table,
)
from highwater.api_commands import Command, Field, value_of
from highwater.errors import ConfigurationError, HighwaterError
from highwater.printable import printable_json, visible

POLL_EVERY_S = 1.0
REQUEST_TIMEOUT_S = 60.0
SETTINGS = """\
environment:
  HIGHWATER_URL      the console's address (http://127.0.0.1:8000)
  HIGHWATER_TOKEN    an API token, made on the page “API tokens”
  HIGHWATER_TENANT   the tenant, where --tenant is not given; not needed by whose token sees one only
exit codes: 0 done, 1 refused, 2 wrong usage, 3 no answer, 4 no permission, 5 not found"""


def run(words: Sequence[str], transport: httpx.BaseTransport | None = None) -> int:
    """Run `highwater WORDS` and return the exit code. `api` alone lists all commands."""
    url, token = os.environ.get("HIGHWATER_URL") or DEFAULT_URL, os.environ.get("HIGHWATER_TOKEN", "")
    try:
        with contextlib.closing(Api(url, token, REQUEST_TIMEOUT_S, transport)) as api:
            if words[0] == "api":
                _print_commands(api.commands(afresh=True))
                return 0
            command = _found(api, words)
            return 0 if command is None else _run(api, command, words[2:])
    except Refused as refused:
        _print_problem(refused)
        return {401: EXIT_NO_PERMISSION, 403: EXIT_NO_PERMISSION, 404: EXIT_NOT_FOUND}.get(refused.status, EXIT_REFUSED)
    except ConfigurationError as error:
        print(visible(f"highwater: {error}"), file=sys.stderr)
        return EXIT_USAGE
    except HighwaterError as error:
        print(visible(f"highwater: {error}"), file=sys.stderr)
        return EXIT_UNREACHABLE
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output has seen enough; closing it at the end would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _found(api: Api, words: Sequence[str]) -> Command | None:
    """Return the command of two words; None where a noun's verbs were listed instead. Unknown ones ask the platform again."""
    commands = api.commands()
    for afresh in (False, True):
        if afresh:
            commands = api.commands(afresh=True)
        of_noun = [command for command in commands if command.noun == words[0]]
        verb = words[1] if len(words) > 1 else ""
        if of_noun and (not verb or verb in ("-h", "--help")):
            _print_commands(of_noun)
            return None
        for command in of_noun:
            if command.verb == verb:
                return command
    if not of_noun:
        near = difflib.get_close_matches(words[0], {command.noun for command in commands} | {"admin"}, n=3)
        raise ConfigurationError(f"no command {words[0]!r}{_meant(near)}; `highwater api` lists all")
    near = difflib.get_close_matches(verb, [command.verb for command in of_noun], n=3)
    raise ConfigurationError(f"no command '{words[0]} {verb}'{_meant(near)}; `highwater {words[0]}` lists its verbs")


def _meant(near: Sequence[str]) -> str:
    return f": did you mean {' or '.join(near)}?" if near else ""


def _print_commands(commands: Iterable[Command]) -> None:
    rows = [
        [f"{each.noun} {each.verb}", " ".join(place.upper() for place in each.places), each.help] for each in commands
    ]
    print_table(["command", "arguments", "what it does"], rows)
    print(f"\n`highwater NOUN VERB --help` shows a command's options.\n{SETTINGS}")


def parser_of(command: Command) -> argparse.ArgumentParser:
    """Return the parser of a command's arguments and options."""
    parser = argparse.ArgumentParser(
        prog=f"highwater {command.noun} {command.verb}",
        description=f"{command.help}. {command.method} {command.path}",
        epilog=SETTINGS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    for place in command.places:
        parser.add_argument(place, metavar=place.upper())
    if command.of_tenant:
        parser.add_argument("--tenant", help="else HIGHWATER_TENANT")
    own = {field.name: field for field in (*command.query, *command.body)}  # one in both places goes into the body
    for field in own.values():
        parser.add_argument(
            field.option,
            dest=f"field_{field.name}",
            action="append",
            metavar="|".join(field.choices) if field.choices and len(field.choices) < 7 else field.kind.upper(),
            help=_help_of(field).replace("%", "%%"),
        )
    if command.has_body:
        parser.add_argument("--data", metavar="JSON", help="the whole body: JSON, @FILE, or - for standard input")
    parser.add_argument("--json", action="store_true", help="print what was answered as JSON")
    parser.add_argument("--output", "-o", metavar="FILE", help="write what was answered into a file")
    if command.method == "GET":
        parser.add_argument("--all", action="store_true", help="all pages of a list, not the first only")
    else:
        parser.add_argument("--wait", action="store_true", help="wait for the end of long work, and show its steps")
        parser.add_argument("--wait-timeout-s", type=float, default=900.0, metavar="SECONDS", help="(900)")
    return parser


def _help_of(field: Field) -> str:
    parts = [field.help.partition(" * `")[0].removesuffix(".")]
    if field.kind == "array":
        parts.append("may be repeated")
    if field.nullable:
        parts.append("null for none")
    if field.is_base64:
        parts.append("or @FILE")
    if field.required:
        parts.append("required")
    return "; ".join(part for part in parts if part)


def _run(api: Api, command: Command, words: Sequence[str]) -> int:
    options = vars(parser_of(command).parse_args(words))
    places = {place: options[place] for place in command.places}
    if command.of_tenant:
        places["tenant"] = options["tenant"] or os.environ.get("HIGHWATER_TENANT") or _only_tenant(api)
    given = {
        name.removeprefix("field_"): texts for name, texts in options.items() if name.startswith("field_") and texts
    }
    in_body = {field.name for field in command.body}
    query = [
        (field.name, text) for field in command.query if field.name not in in_body for text in given.get(field.name, ())
    ]
    address = command.filled(places) + (f"?{urlencode(query)}" if query else "")
    answer = api.request(command.method, address, _body(command, given, options.get("data")))
    if options["output"]:
        Path(options["output"]).write_bytes(answer.content)
        return 0
    if not is_json(answer):
        sys.stdout.buffer.write(answer.content)
        return 0
    if options.get("wait") and (operation := _operation_of(answer)):
        return _wait(api, operation, options["wait_timeout_s"], as_json=options["json"])
    _print(api, answer, as_json=options["json"], whole=options.get("all", False))
    return 0


def _body(command: Command, given: Mapping[str, Sequence[str]], data: str | None) -> object:
    if not command.has_body:
        return ...
    fields = [field for field in command.body if field.name in given]
    if data is None:
        return {field.name: value_of(field, _read(field, given[field.name])) for field in fields}
    if fields:
        raise ConfigurationError(f"--data is the whole body: give it, or {fields[0].option}")
    text = sys.stdin.read() if data == "-" else Path(data[1:]).read_text() if data.startswith("@") else data
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"--data is not JSON: {error}") from None


def _read(field: Field, texts: Sequence[str]) -> Sequence[str]:
    """Return the option's texts, in the place of @FILE base64 of the file where that is wanted."""
    if not field.is_base64:
        return texts
    return [base64.b64encode(_bytes_of(text[1:])).decode("ascii") if text[:1] == "@" else text for text in texts]


def _bytes_of(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from error


def _only_tenant(api: Api) -> str:
    tenants = [tenant["slug"] for tenant in api.request("GET", "/api/v1/tenants/").json()["results"]]
    if len(tenants) != 1:
        raise ConfigurationError(
            f"which tenant? give --tenant, or set HIGHWATER_TENANT, to one of: {', '.join(tenants) or UNKNOWN}"
        )
    return str(tenants[0])


def _operation_of(answer: httpx.Response) -> Mapping[str, Any] | None:
    found = answer.json()
    return found if isinstance(found, dict) and {"id", "state", "steps", "progress_percent"} <= found.keys() else None


def _wait(api: Api, operation: Mapping[str, Any], timeout_s: float, *, as_json: bool) -> int:
    """Show steps on standard error as they change, until the operation ends. Time that runs out ends nothing but the waiting."""
    ends_at = time.monotonic() + timeout_s
    shown: dict[str, str] = {}
    while True:
        for step in operation["steps"]:
            if shown.get(step["name"]) != step["state"]:
                shown[step["name"]] = step["state"]
                if step["state"] != "pending":
                    print(f"{operation['progress_percent']:3d} %  {step['name']}: {step['state']}", file=sys.stderr)
        if operation["finished_at"] is not None:
            break
        if time.monotonic() > ends_at:
            print(f"highwater: still at work; go on with: highwater operation get {operation['id']}", file=sys.stderr)
            return EXIT_UNREACHABLE
        time.sleep(POLL_EVERY_S)
        operation = api.request("GET", f"/api/v1/operations/{operation['id']}/").json()
    if as_json:
        print(printable_json(operation))
    if operation["state"] == "completed":
        return 0
    error = operation["error"] or {}
    print(
        f"highwater: {operation['type']} {operation['state']}: {error.get('cause') or UNKNOWN}",
        file=sys.stderr,
    )
    return EXIT_REFUSED


def _print_problem(refused: Refused) -> None:
    problem = refused.problem
    print(visible(f"highwater: {refused}"), file=sys.stderr)
    for error in problem.get("errors") or ():
        print(visible(f"  {error['field']}: {error['message']}"), file=sys.stderr)
    if problem.get("hint"):
        print(visible(f"  {problem['hint']}"), file=sys.stderr)
    if problem.get("request_id"):
        print(f"  {problem['code']} ({refused.status}), request {problem['request_id']}", file=sys.stderr)


def _print(api: Api, answer: httpx.Response, *, as_json: bool, whole: bool) -> None:
    if not answer.content:
        return
    found = answer.json()
    rows = found.get("results") if isinstance(found, dict) else None
    if isinstance(rows, list):
        while whole and found.get("next"):
            found = api.request("GET", found["next"]).json()
            rows += found["results"]
        if not as_json:
            _print_rows(rows)
            if found.get("next") and not whole:
                print("There are more: --all shows them.", file=sys.stderr)
            return
        found = {**found, "results": rows}
    if as_json:
        print(printable_json(found))
    elif isinstance(found, dict):
        _print_values(found)
    else:
        print(printable_json(found, indent=2))


def _print_rows(rows: Sequence[Any]) -> None:
    """Print what a line holds: members that are numbers or texts in some row. `--json` has the rest."""
    if not rows:
        print("Nothing is there.", file=sys.stderr)
        return
    columns = [name for name in rows[0] if any(_is_short(row.get(name)) for row in rows) and name != "path"]
    print_table(columns, [[_text(row.get(name)) for name in columns] for row in rows])


def _print_values(found: Mapping[str, Any]) -> None:
    width = max(map(len, found), default=0)
    for name, value in found.items():
        lines = (
            visible(_text(value)) if not isinstance(value, dict | list) else printable_json(value, indent=2)
        ).split("\n")
        print(f"{name:<{width}}  {lines[0] if lines else ''}")
        for line in lines[1:]:
            print(" " * (width + 2) + line)


def _is_short(value: object) -> bool:
    return isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) <= 80)


def _text(value: object) -> str:
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
