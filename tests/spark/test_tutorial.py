"""The tutorial from a group to a lake, run as it stands; jobs of Spark run in the tests' own session."""

from __future__ import annotations

import runpy

from cli.processes import ROOT
from cli.test_tutorial import run_page
from ordercast.cli import spark_lake
from ordercast.cli.main import main


def test_every_command_prints_what_the_page_says(spark, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(spark, "stop", lambda: None)
    monkeypatch.setattr("ordercast.cli.spark_session.session", lambda *arguments, **options: spark)
    monkeypatch.setattr(spark_lake, "_until_signal", lambda job: None)

    monkeypatch.setattr("ordercast.spark.session.session", lambda *arguments, **options: spark)

    def here(command: list[str]) -> str:
        if command[0] == "python":
            runpy.run_path(command[1])
        else:
            assert main(command[1:]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    assert run_page(ROOT / "docs/tutorial/lake.md", tmp_path, here) == 12
