"""The commands of `./dev`."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from deploy.local import environment as environments
from deploy.local import tools
from deploy.local.audit import audit
from deploy.local.costs import cost_below, describe_cost
from deploy.local.environment import Environment
from deploy.local.lanes import run_lanes
from deploy.local.layout import REPOSITORY, Layout
from deploy.local.leftovers import describe, find_leftovers
from deploy.local.names import ClusterNames
from deploy.local.sbom import bill_of_materials
from deploy.local.secrets_file import load_secrets
from deploy.local.spark import describe_setup, read_setup
from deploy.local.stack import OPERATOR_EMAIL, Stack
from deploy.local.supervisor import MARK
from deploy.local.terminal import DevError, Terminal

NOT_RUNNING = 3  # the exit status that init scripts use for it
INTERRUPTED = 130
NO_TEST_RAN = 5  # pytest's own
TOKEN_DAYS = 30

# Commands whose every argument, options such as -k included, is for another program.
PASSING_ON = ("test", "screenshots", "bench", "sim", "nemesis", "powercut", "catchup", "fuzz", "manage")

# What is installed or run somewhere; tests and tools for developers are not.
SHIPPED = ("brokerd", "namesrvd", "platform", "deploy", "spark_etl", "manage.py")

CHECKS = (
    ("ruff check", ["-m", "ruff", "check", "."]),
    ("ruff format", ["-m", "ruff", "format", "--check", "."]),
    ("mypy", ["-m", "mypy"]),
    ("bandit", ["-m", "bandit", "-q", "-c", "pyproject.toml", "-r", *SHIPPED]),
    (
        "import-linter",
        ["-c", "from importlinter.cli import lint_imports_command; lint_imports_command()", "--no-cache"],
    ),
)


class Dev:
    """One call of `./dev`: its terminal, its environment and the platform of this checkout."""

    def __init__(self, terminal: Terminal) -> None:
        self.terminal = terminal
        self.layout = Layout.from_environment()
        self.environment = Environment.of_checkout()
        self.stack = Stack(self.layout, self.environment, terminal)

    def up(self, options: argparse.Namespace) -> int:
        self.environment.ensure(environments.RUNTIME, self.terminal)
        self.stack.up()
        for surprise in self.stack.ports.surprises():
            self.terminal.warn(surprise)
        if options.demo:
            return self._start_demo()
        self.stack.stop_demo_load()
        operator = load_secrets(self.layout.secrets_file)["operator"]
        self.terminal.say(f"\n  Console:  {self.stack.console_url}\n  Operator: {OPERATOR_EMAIL}  {operator}")
        return 0

    def demo(self, options: argparse.Namespace) -> int:
        if self.stack.processes() is None:
            raise DevError("The platform isn't running.", "./dev up")
        if options.stop:
            self.terminal.say("The demo's load is stopped." if self.stack.stop_demo_load() else "It was not running.")
            return 0
        return self._start_demo()

    def _start_demo(self) -> int:
        status = self._demo("ensure")
        if status == INTERRUPTED:
            raise KeyboardInterrupt
        if status == 0:
            self.stack.start_demo_load()
        return status

    def _demo(self, *arguments: str) -> int:
        variables = {**self.stack.django_variables(), MARK: str(self.layout.state)}
        return self._run(["-m", "deploy.local.demo", "--url", self.stack.console_url, *arguments], variables)

    def snippets(self, options: argparse.Namespace) -> int:
        if self.stack.processes() is None:
            raise DevError("The platform isn't running.", "./dev up")
        return self._demo("snippets", *options.languages)

    def down(self, options: argparse.Namespace) -> int:
        self.terminal.say("Everything is stopped." if self.stack.down() else "Nothing was running.")
        return 0

    def reset(self, options: argparse.Namespace) -> int:
        if not self.layout.state.exists():
            self.terminal.say("There is nothing to remove.")
            return 0
        question = f"Stop the platform and delete {self.layout.state} with its database, clusters and messages?"
        if not options.yes and not self.terminal.confirm(question):
            raise DevError("Nothing was removed.", "answer y, or say ./dev reset --yes")
        self.stack.reset()
        return 0

    def status(self, options: argparse.Namespace) -> int:
        processes = self.stack.processes()
        if processes is None:
            self.terminal.say("The platform isn't running.")
            if leftovers := find_leftovers(self.layout.state):
                self.terminal.warn(f"{describe(leftovers)}; ./dev down stops them")
            return NOT_RUNNING
        names = ClusterNames.of(self.layout)
        rows = [(names.full(process.full_name), process) for process in processes]
        width = max(len(name) for name, _ in rows)
        for name, process in rows:
            colour = "32" if process.state == "RUNNING" else "31"
            state = self.terminal.paint(f"{process.state:<8}", colour)
            self.terminal.say(f"  {name:<{width}}  {state}  {process.description}")
        self.terminal.say()
        if self.stack.runs_jobs:
            for line in describe_setup(read_setup(self.layout), datetime.now(UTC)):
                self.terminal.say(f"  {line}")
            worker = next((process for process in processes if process.full_name == "jobs" and process.pid), None)
            if worker and (cost := cost_below(worker.pid)):
                self.terminal.say(f"  {describe_cost(cost)}")
        else:
            self.terminal.say("  Jobs are switched off (HIGHWATER_JOBS=off): no usage is counted.")
        self.terminal.say(f"\n  Console: {self.stack.console_url}\n  State:   {self.layout.state}")
        return 0 if all(process.state in ("RUNNING", "STARTING") for _, process in rows) else 1

    def logs(self, options: argparse.Namespace) -> int:
        logs = self._logs()
        if not logs:
            raise DevError("There are no logs yet.", "./dev up")
        if options.name is None:
            width = max(map(len, logs))
            self.terminal.say("\n".join(f"  {name:<{width}}  {path}" for name, path in logs.items()))
            return 0
        path = logs.get(options.name) or logs.get(ClusterNames.of(self.layout).full(options.name))
        if path is None:
            raise DevError(f"There is no log {options.name!r}.", f"one of: {', '.join(logs)}")
        command = ["tail", "-n", str(options.lines), *(["-F"] if options.follow else []), str(path)]
        try:
            return subprocess.run(command, check=False).returncode
        except KeyboardInterrupt:
            return INTERRUPTED  # which is how one stops following

    def _logs(self) -> dict[str, Path]:
        """Log files by name: ours, and those of the tenants' daemons, running or not."""
        names = ClusterNames.of(self.layout)
        logs = {path.stem: path for path in sorted(self.layout.logs.glob("*.log"))}
        for path in sorted(self.layout.daemon_logs.glob("*.log")):
            _, _, process_name = path.stem.partition(".")
            logs[names.full(process_name)] = path
        for process in self.stack.processes() or []:
            if process.log is not None and process.log.exists():
                logs[names.full(process.full_name)] = process.log
        return logs

    def manage(self, options: argparse.Namespace) -> int:
        if self.stack.processes() is None:
            raise DevError("The platform isn't running.", "./dev up")
        return self._run(["manage.py", *options.arguments], self.stack.django_variables())

    def setup(self, options: argparse.Namespace) -> int:
        self.environment.ensure(environments.RUNTIME if options.runtime else environments.DEVELOPMENT, self.terminal)
        self.terminal.say(f"  {self.environment.prefix} is up to date.")
        return 0

    def lock(self, options: argparse.Namespace) -> int:
        self.environment.ensure(environments.RUNTIME, self.terminal)
        environments.lock(self.environment, self.terminal)
        return 0

    def sbom(self, options: argparse.Namespace) -> int:
        self.environment.ensure(environments.DEVELOPMENT, self.terminal)
        text = bill_of_materials(self.environment.python, REPOSITORY)
        if options.output is None:
            print(text, end="")
        else:
            options.output.write_text(text)
        return 0

    def audit(self, options: argparse.Namespace) -> int:
        self.environment.ensure(environments.RUNTIME, self.terminal)
        audit(self.environment.bin / "uv", REPOSITORY)
        return 0

    def check(self, options: argparse.Namespace) -> int:
        self.environment.ensure(environments.DEVELOPMENT, self.terminal)
        failed = []
        for name, arguments in CHECKS:
            self.terminal.say(self.terminal.paint(f"== {name}", "1"))
            if self._run(arguments) != 0:
                failed.append(name)
        if failed:
            raise DevError(
                f"Failed: {', '.join(failed)}.",
                "see above; `.venv/bin/ruff check --fix` and `.venv/bin/ruff format` repair much.",
            )
        return 0

    def test(self, options: argparse.Namespace) -> int:
        self.environment.ensure(environments.DEVELOPMENT, self.terminal)
        tools.ensure_test_tools(self.terminal)
        if not options.arguments:
            return run_lanes(self.environment.python, REPOSITORY, self.layout.logs / "tests", self.terminal)
        return self._run(["-m", "pytest", *options.arguments])

    def screenshots(self, options: argparse.Namespace) -> int:
        self.environment.ensure(environments.DEVELOPMENT, self.terminal)
        tools.ensure_test_tools(self.terminal)
        folder = self.layout.state / "screenshots"
        # Only what this run has drawn shall lie there.
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        # Drawing and packing a picture keeps one processor busy: as many parts as there are, of what draws any.
        drawing = sorted(
            str(path.relative_to(REPOSITORY))
            for path in (REPOSITORY / "tests" / "console").glob("test_*.py")
            if "look_at(" in path.read_text("utf-8")
        )
        parts = (
            [drawing] if options.arguments else [drawing[one :: os.cpu_count()] for one in range(os.cpu_count() or 1)]
        )
        arguments = [["-m", "pytest", "-q", *options.arguments, *part] for part in parts if part]
        with ThreadPoolExecutor(len(arguments)) as pool:
            statuses = pool.map(lambda one: self._run(one, {"HIGHWATER_SCREENSHOTS": str(folder)}), arguments)
        status = max(0 if status == NO_TEST_RAN else status for status in statuses)
        self.terminal.say(f"  {len(list(folder.iterdir()))} pictures are in {folder}")
        return status

    def bench(self, options: argparse.Namespace) -> int:
        self.environment.ensure(environments.DEVELOPMENT, self.terminal)
        tools.ensure_test_tools(self.terminal)
        return self._run(["-m", "tests.bench", *options.arguments])

    def sim(self, options: argparse.Namespace) -> int:
        self.environment.ensure(environments.DEVELOPMENT, self.terminal)
        return self._run(
            ["-m", "tests.sim", *options.arguments], {"PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'platform'}"}
        )

    def nemesis(self, options: argparse.Namespace) -> int:
        self.environment.ensure(environments.DEVELOPMENT, self.terminal)
        return self._run(
            ["-m", "tests.nemesis", *options.arguments], {"PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'platform'}"}
        )

    def powercut(self, options: argparse.Namespace) -> int:
        self.environment.ensure(environments.DEVELOPMENT, self.terminal)
        return self._run(
            ["-m", "tests.replication.powercut", *options.arguments],
            {"PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'platform'}"},
        )

    def fuzz(self, options: argparse.Namespace) -> int:
        self.environment.ensure(environments.DEVELOPMENT, self.terminal)
        return self._run(
            ["-m", "tests.security.fuzz", *options.arguments],
            {"PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'platform'}"},
        )

    def catchup(self, options: argparse.Namespace) -> int:
        self.environment.ensure(environments.DEVELOPMENT, self.terminal)
        return self._run(
            ["-m", "tests.replication.catch_up", *options.arguments],
            {"PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'platform'}"},
        )

    def token(self, options: argparse.Namespace) -> int:
        file = self.layout.token_file(options.tenant, options.arguments)
        kept = ["--kept", str(file), "--days", str(TOKEN_DAYS), "--name", "./dev token"]
        print(self.stack.manage("issue_token", options.tenant, *kept, *options.arguments).strip())
        return 0

    def url(self, options: argparse.Namespace) -> int:
        if self.stack.processes() is None:
            raise DevError("The platform isn't running.", "./dev up")
        print(self.stack.console_url)
        return 0

    def _run(self, arguments: Sequence[str], variables: dict[str, str] | None = None) -> int:
        """Runs the environment's Python in the checkout, on our terminal. An interrupt is its business first."""
        environment = {**os.environ, **(variables or {})}
        command = [str(self.environment.python), *arguments]
        with subprocess.Popen(command, cwd=REPOSITORY, env=environment) as process:
            while True:
                try:
                    status = process.wait()
                    return status if status >= 0 else 128 - status  # as a shell counts an end by a signal
                except KeyboardInterrupt:
                    continue  # it got the same signal, as it is of our process group; pytest wants to write its summary


def _parser() -> argparse.ArgumentParser:
    width = shutil.get_terminal_size().columns
    parser = argparse.ArgumentParser(
        prog="./dev",
        description="Runs and tests Highwater on this machine. Start with `./dev up`.",
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=28, width=width),
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, text: str, function: Callable[[Dev, argparse.Namespace], int]) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(function=function)
        return sub

    up = command("up", "start the platform, with a demo cluster to try; harmless when it runs", Dev.up)
    up.add_argument("--no-demo", dest="demo", action="store_false", help="without the demo tenant and its load")
    demo = command("demo", "a few messages per second to and from the demo cluster; ./dev up starts it, too", Dev.demo)
    demo.add_argument("--stop", action="store_true", help="stop sending; the demo tenant stays")
    snippets = command("snippets", "print first programs for the demo cluster, filled in", Dev.snippets)
    snippets.add_argument("languages", nargs="*", metavar="LANGUAGE")
    command("down", "stop it, all clusters included; data stays", Dev.down)
    command("status", "what runs, and where", Dev.status)
    command("url", "print the address of the console and the API, for scripts", Dev.url)
    logs = command("logs", "list the logs, or show one", Dev.logs)
    logs.add_argument("name", nargs="?", metavar="NAME")
    logs.add_argument("-f", "--follow", action="store_true", help="go on showing what is added")
    logs.add_argument("-n", "--lines", type=int, default=100)
    reset = command("reset", "stop it and delete all its data", Dev.reset)
    reset.add_argument("--yes", action="store_true", help="don't ask")
    token = command("token", "print the API token of a tenant for scripts: always the same, for 30 days", Dev.token)
    token.add_argument("tenant", metavar="TENANT")
    command("manage", "run a management command with the platform's settings; arguments go to manage.py", Dev.manage)
    command("test", "install what tests need, and run them; arguments go to pytest", Dev.test)
    command(
        "screenshots",
        "keep eight pictures of each page: themes, languages, widths; arguments go to pytest, as -k topics",
        Dev.screenshots,
    )
    command("check", "ruff, mypy --strict, bandit, import-linter", Dev.check)
    command("audit", "look for known vulnerabilities in the locked packages; needs osv.dev", Dev.audit)
    command("bench", "measure against Apache RocketMQ, side by side; arguments go to tests/bench", Dev.bench)
    command("sim", "simulate broker groups under faults, seed by seed; arguments go to tests/sim", Dev.sim)
    command(
        "nemesis", "kill, stop and cut off real brokers under load, by seed, and judge; MODE --seconds 60", Dev.nemesis
    )
    command("powercut", "cut the power of replicas under load, as root; --cuts 50", Dev.powercut)
    command("fuzz", "send damaged frames to a live broker and name server; --frames 1000000", Dev.fuzz)
    command("catchup", "have an empty slave catch up under live traffic; --mebibytes 1024", Dev.catchup)
    setup = command("setup", "only make the environment .venv/", Dev.setup)
    setup.add_argument("--runtime", action="store_true", help="without what only tests and checks need")
    command("lock", "write the requirements files from pyproject.toml", Dev.lock)
    sbom = command("sbom", "write the bill of materials: all of others that the platform runs, as CycloneDX", Dev.sbom)
    sbom.add_argument("-o", "--output", type=Path, metavar="FILE", help="where to; else to the terminal")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Runs one command; returns its exit status."""
    terminal = Terminal()
    parser = _parser()
    if arguments and arguments[0] in PASSING_ON and arguments[1:] not in (["-h"], ["--help"]):
        options, rest = parser.parse_args(arguments[:1]), list(arguments[1:])
    else:
        options, rest = parser.parse_known_args(arguments)
        if rest and options.command != "token":  # whose further options are those of the management command
            parser.error(f"unrecognized arguments: {' '.join(rest)}")
    options.arguments = rest
    try:
        return int(options.function(Dev(terminal), options))
    except DevError as exc:
        terminal.error(exc)
        return exc.exit_code
    except KeyboardInterrupt:
        print("\nInterrupted. `./dev up` continues where this stopped; `./dev down` stops what runs.", file=sys.stderr)
        return INTERRUPTED
