"""Writes the SDK's synchronous clients from the asynchronous ones: `python platform/generate_sync_clients.py`.

Each public method of an asynchronous client has a namesake that runs it in the background loop (highwater/_portal.py) and
waits for it: same arguments, same docstring. Only what takes functions from the user is written by hand, in
highwater/_sync_consumer.py. A test fails when the files are not what this writes (tests/tidy/test_generated_clients.py).
"""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

from highwater._admin import AsyncAdmin
from highwater._consumer import AsyncPushConsumer
from highwater._producer import AsyncProducer

PACKAGE = Path(__file__).resolve().parent / "highwater"
_LIFE = {"start", "stop"}  # the base class has them, in its own way
# What an asynchronous client's description says otherwise of a synchronous one.
_WORDS = ((" in the same task", ""), ("`async with`", "`with`"), ("number of tasks", "number of threads"))


@dataclass(frozen=True)
class Client:
    """One class to write."""

    asynchronous: type
    name: str
    file_name: str
    by_hand: frozenset[str] = field(default_factory=frozenset)


CLIENTS = (
    Client(AsyncProducer, "Producer", "_sync_producer.py"),
    Client(AsyncPushConsumer, "PushConsumerBase", "_sync_consumer_base.py", frozenset({"subscribe", "on"})),
    Client(AsyncAdmin, "Admin", "_sync_admin.py"),
)


def render(client: Client) -> str:
    """The file's text, formatted as the rest of the code is."""
    imports: set[tuple[str, str]] = {
        ("highwater._portal", "SyncClient"),
        (client.asynchronous.__module__, client.asynchronous.__name__),
    }
    methods: dict[str, str] = {}
    *derived, root = client.asynchronous.__mro__[:-1]
    for owner in (root, *derived):
        module = sys.modules[owner.__module__]
        tree = ast.parse(inspect.getsource(module))
        known = _names_of(tree, owner.__module__)
        (body,) = (node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == owner.__name__)
        for node in body:
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.name in _LIFE | client.by_hand:
                continue
            if node.name.startswith("_") and node.name != "__init__":
                continue
            written = _constructor(node, client) if node.name == "__init__" else _method(node)
            methods[node.name] = ast.unparse(written)
            imports |= {known[name] for name in _names_in(written) if name in known}
    documentation = inspect.getdoc(client.asynchronous) or ""
    for theirs, ours in _WORDS:
        documentation = documentation.replace(theirs, ours)
    return _formatted(_file(client, documentation, imports, list(methods.values())), client.file_name)


def _constructor(node: ast.FunctionDef | ast.AsyncFunctionDef, client: Client) -> ast.FunctionDef:
    made = ast.Call(ast.Name(client.asynchronous.__name__), *_passed_on(node.args))
    call = ast.Call(ast.Attribute(ast.Call(ast.Name("super"), [], []), "__init__"), [made], [])
    return _function(node, [ast.Expr(call)])


def _method(node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.FunctionDef:
    """The namesake: a class method as it is, a property of the twin, or a call that the background loop makes."""
    decorators = {name.id for name in node.decorator_list if isinstance(name, ast.Name)}
    (description,) = node.body[:1]
    if "classmethod" in decorators:
        return _function(node, node.body)
    twin = ast.Attribute(ast.Attribute(ast.Name("self"), "_twin"), node.name)
    if "property" in decorators:
        return _function(node, [description, ast.Return(twin)])
    run = "_run" if isinstance(node, ast.AsyncFunctionDef) else "_run_plain"
    arguments, keywords = _passed_on(node.args)
    call = ast.Call(ast.Attribute(ast.Name("self"), run), [twin, *arguments], keywords)
    answers = not (isinstance(node.returns, ast.Constant) and node.returns.value is None)
    return _function(node, [description, ast.Return(call) if answers else ast.Expr(call)])


def _passed_on(arguments: ast.arguments) -> tuple[list[ast.expr], list[ast.keyword]]:
    positional: list[ast.expr] = [ast.Name(argument.arg) for argument in arguments.args[1:]]
    return positional, [ast.keyword(argument.arg, ast.Name(argument.arg)) for argument in arguments.kwonlyargs]


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef, body: list[ast.stmt]) -> ast.FunctionDef:
    made = ast.FunctionDef(node.name, node.args, body, node.decorator_list, node.returns)
    return ast.fix_missing_locations(made)


def _names_of(tree: ast.Module, module: str) -> dict[str, tuple[str, str]]:
    """Where each name of a module comes from: (module, name); the name is empty for `import module`."""
    names: dict[str, tuple[str, str]] = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names |= {alias.asname or alias.name: (node.module, alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name: (alias.name, "") for alias in node.names}
        elif isinstance(node, ast.ClassDef):
            names[node.name] = (module, node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id: (module, target.id) for target in targets if isinstance(target, ast.Name)}
    return names


def _names_in(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _file(client: Client, documentation: str, imports: set[tuple[str, str]], methods: list[str]) -> str:
    lines = [
        f'"""{client.name}: the synchronous twin of {client.asynchronous.__name__}. Generated; change that one instead.',
        "",
        "Made by platform/generate_sync_clients.py.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        *(f"from {module} import {name}" if name else f"import {module}" for module, name in sorted(imports)),
        "",
        f"class {client.name}(SyncClient[{client.asynchronous.__name__}]):",
        textwrap.indent(f'"""{documentation}\n"""' if "\n" in documentation else f'"""{documentation}"""', "    "),
        "",
        *(textwrap.indent(method, "    ") + "\n" for method in methods),
    ]
    return "\n".join(lines)


def _formatted(text: str, file_name: str) -> str:
    name = str(PACKAGE / file_name)
    for command in (["check", "--select", "I", "--fix", "--quiet"], ["format", "--quiet"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", name, "-"]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout
    return text


def main() -> int:
    """Writes the files; returns 0."""
    for client in CLIENTS:
        (PACKAGE / client.file_name).write_text(render(client))
        print(f"written: highwater/{client.file_name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
