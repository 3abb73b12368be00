"""`ordercast spark report`: pages that need nothing else, say what the tables say, and work in a browser."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.processes import error_line, ordercast
from ordercast.cli import demo_pipeline
from ordercast.spark.errors import SparkError
from ordercast.spark.lake.job import LogJob, Settings, add_traces
from ordercast.spark.lake.store import Lake
from ordercast.spark.report.axis import Axis, amount, duration, number, seconds, span
from ordercast.spark.report.bench import bench_sections, read_results
from ordercast.spark.report.page import page, write_page
from ordercast.spark.report.run import lake_sections
from spark.samples import SampleLog
from spark.test_lake_tables import write_story

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Page(HTMLParser):
    """What a page is made of."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loads: list[str] = []
        self.words: list[str] = []
        self._in = ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self._in = tag
        self.loads += [value for name, value in attributes if name in ("src", "href", "srcset", "data", "action")]

    def handle_data(self, data):
        if self._in not in ("style", "script"):
            self.words.append(data)


def run(size: int, rate: int = 0, **more: object) -> dict[str, object]:
    late = None if not rate else 0.5 + rate / 1000
    return {"engine": "totem", "nodes": 4, "size": size, "service": "agreed", "delivered_per_s": 10**9 // (size + 500),
            "mb_per_s": size / (size + 500) * 900, "latency_ms": {"p50": late, "p99": late and 3 * late},
            "rate": rate, "rotations_per_s": 900, "hosts": "loopback", **more}  # fmt: skip


RUNS = [
    *(run(size, service=service) for size in (64, 1024, 16_384, 65_536) for service in ("agreed", "safe")),
    *(run(1024, rate) for rate in (100, 1000, 5000)), *(run(1024, nodes=nodes) for nodes in (2, 8)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "written"),
    [(0, "0"), (7, "7"), (2.5, "2.5"), (0.25, "0.25"), (999, "999"), (12_500, "12.5k"), (999_990, "1M"), (-5, "−5")],
)
def test_numbers_are_short(value, written):
    assert number(value) == written


def test_units():
    assert [duration(us) for us in (0, 85, 1_200, 3_400_000, 600e6, 4 * 3600e6)] == [
        "0 µs", "85 µs", "1.2 ms", "3.4 s", "10 min", "4 h"
    ]  # fmt: skip
    assert [amount(size) for size in (64, 1_000, 2_500_000)] == ["64 B", "1 kB", "2.5 MB"]
    assert [seconds(value) for value in (0.5, 90, 150, 7200, 9000)] == ["0.5 s", "90 s", "2:30", "2 h", "2 h 30"]


@settings(derandomize=True, deadline=None, database=None)
@given(st.lists(st.floats(1e-6, 1e12), min_size=1, max_size=5), st.booleans())
def test_an_axis_holds_its_values_and_its_ticks_are_few(values, log):
    axis = span(values, "x", log=log)
    assert all(-1e-6 <= axis.share(value) <= 1 + 1e-6 for value in values)
    ticks = axis.ticks(6)
    assert 1 <= len(ticks) <= 7
    assert all(-1e-6 <= axis.share(tick) <= 1 + 1e-6 for tick in ticks)
    assert ticks == sorted(set(ticks))


def test_ticks_of_time_are_those_of_clocks():
    assert Axis(0, 100, "t", time=True).ticks(8) == [0, 15, 30, 45, 60, 75, 90]
    assert Axis(0, 0.009, "t", time=True).ticks(8) == [0, 0.002, 0.004, 0.006, 0.008]
    assert Axis(0, 7.4, "t", time=True).ticks(8) == list(range(8))
    assert Axis(0, 86_400 * 20, "t", time=True).ticks(8) == [86_400 * 3 * day for day in range(7)]


def test_benchmarks_are_plotted_over_what_was_varied(tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set/a.json").write_text(json.dumps({"taken": "today", "size": 5, "figures": {"x": RUNS[:5]}}))
    (tmp_path / "set/b.json").write_text("".join(json.dumps(each) + "\n" for each in RUNS[5:]))
    found = read_results([tmp_path / "set"])
    expected = [{"taken": "today", **each} if each in RUNS[:5] else each for each in RUNS]
    assert sorted(json.dumps(each, sort_keys=True) for each in found) == sorted(
        json.dumps(each, sort_keys=True) for each in expected
    )
    text = page("t", "", bench_sections(found))
    headings = re.findall(r"<h3>(.*?)</h3>", text)
    assert headings == [
        "Throughput against message size", "Payload against message size", "Throughput against group size",
        "Latency (p50) against load", "Latency (p99) against load", "Rotation time against message size",
        "Rotation time against group size", "Rotation time against load", "All runs",
    ]  # fmt: skip
    first = html.unescape(re.search(r'data-readings="(.*?)"', text)[1])
    place, lines = json.loads(first)[0]
    assert lines == ["64 B", "agreed, 4 nodes: 1.77M", "safe, 4 nodes: 1.77M"]
    assert 70 <= place <= 960
    assert re.search("rotation", text)
    assert "1.11 ms" in text


@pytest.mark.parametrize(
    ("text", "reason"),
    [("{", "not JSON"), ('{"size": 5}', "no results of `ordercast bench --json`"), (None, "No such file")],
)
def test_results_that_are_none(tmp_path, text, reason):
    path = tmp_path / "r.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SparkError, match=reason):
        read_results([path])
    result = ordercast("spark", "report", "--bench", path, "-o", tmp_path / "out.html")
    assert reason in error_line(result)
    assert not (tmp_path / "out.html").exists()


def test_the_command_makes_a_page_of_benchmarks_without_spark(tmp_path):
    (tmp_path / "r.json").write_text(json.dumps(RUNS))
    result = ordercast("spark", "report", "--bench", tmp_path / "r.json", "-o", tmp_path / "out.html", "--json")
    assert (result.returncode, result.stderr) == (0, b"")
    assert json.loads(result.stdout) == {
        "report": str(tmp_path / "out.html"), "bytes": (tmp_path / "out.html").stat().st_size
    }  # fmt: skip
    assert error_line(ordercast("spark", "report")).endswith("name a LAKE, or results with --bench")


@pytest.fixture(scope="module")
def made(sessions, tmp_path_factory):
    """A report of a log and a trace, made once."""
    from spark.conftest import QUICK

    spark = sessions.get("local[2]", **QUICK)
    folder = tmp_path_factory.mktemp("report")
    log = SampleLog(folder / "data", group="orders <b>")
    log.add_many(3, 100)
    log.add_named_view("2:a", ["n1", "n2", "n3"])
    log.add_many(3, 100)
    log.add_named_view("3:a", ["n1", "n2"])
    log.add_many(3, 100)
    with Lake(folder / "lake") as lake:
        lake.state.bucket_us = 1_000
        add_traces(spark, lake, [write_story(folder / "story")])
        LogJob(spark, lake, Settings({"path": str(log.folder)}, True)).run()
    log.writer.close()
    sections = [*lake_sections(spark, folder / "lake"), *bench_sections(RUNS)]
    write_page(folder / "report.html", "A run & its <i>report</i>", sections)
    return folder / "report.html"


def test_a_run_s_page_says_what_the_tables_say(made):
    text = made.read_text()
    found = Page(text)
    assert found.loads == []
    assert "http" not in text.replace("http-equiv", "")
    assert "i" in found.tags  # the keys of legends
    words = "".join(found.words)
    assert "A run & its <i>report</i>" in words
    assert "Group orders <b>" in words
    assert re.search(r"messages900payload21.6 kB", words)
    for heading in ("Throughput", "Latency", "Views over time", "Why views changed", "By view", "Trace story"):
        assert f"<h3>{heading}</h3>" in text or f"<h2>{heading}</h2>" in text, heading
    assert re.search(r"3:a[\d.]+ sn3leftcrashednetwork-fault network 1: silent", words)
    assert re.search(r"✕", text)


def test_there_is_no_lake(spark, tmp_path):
    with pytest.raises(SparkError, match="there is no lake here"):
        list(lake_sections(spark, tmp_path))


PROBE = """
<script>
"use strict";
const wrong = [];
addEventListener("error", (event) => wrong.push(String(event.message)));
addEventListener("load", () => {
  for (const svg of document.querySelectorAll("svg")) {
    const view = svg.viewBox.baseVal;
    for (const text of svg.querySelectorAll("text")) {
      const box = text.getBBox(), matrix = text.transform.baseVal.consolidate();
      if (!matrix && (box.x < -1 || box.x + box.width > view.width + 1)) wrong.push("outside: " + text.textContent);
    }
    const ticks = [...svg.querySelectorAll(".tick[text-anchor=middle]")].map((tick) => tick.getBBox());
    ticks.forEach((box, at) => {
      if (at && box.x < ticks[at - 1].x + ticks[at - 1].width) wrong.push("overlap: " + svg.outerHTML.slice(0, 80));
    });
  }
  const plots = [...document.querySelectorAll("svg[data-readings]")];
  const readings = plots.map((svg) => {
    const box = svg.getBoundingClientRect();
    svg.dispatchEvent(new PointerEvent("pointermove", {clientX: box.left + box.width / 2, clientY: 50}));
    return document.getElementById("reading").hidden ? "" : document.getElementById("reading").textContent;
  });
  const said = document.createElement("pre");
  said.id = "probe";
  said.textContent = JSON.stringify({
    wrong, readings, wide: document.documentElement.scrollWidth - innerWidth,
    paper: getComputedStyle(document.body).backgroundColor, ink: getComputedStyle(document.body).color,
  });
  document.body.append(said);
});
</script>"""


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium (make ci-deps installs it)")
@pytest.mark.parametrize(("dark", "width"), [(False, 1200), (True, 700)])
def test_the_page_in_a_browser(made, tmp_path, dark, width):
    """No error, nothing outside of its plot or on top of another, values under the pointer, light and dark."""
    probed = tmp_path / "page.html"
    probed.write_text(made.read_text().replace("<main>", PROBE + "<main>"))
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--window-size={width},900",
        f"--user-data-dir={tmp_path / 'profile'}", f"--blink-settings=preferredColorScheme={0 if dark else 1}",
        "--virtual-time-budget=5000", "--dump-dom", probed.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    said = json.loads(html.unescape(re.search(r'<pre id="probe">(.*?)</pre>', done.stdout)[1]))
    assert said["wrong"] == []
    assert said["wide"] <= 0
    assert len(said["readings"]) >= 10
    assert all("\n" in reading for reading in said["readings"])
    light = [sum(map(int, re.findall(r"\d+", said[name])[:3])) for name in ("paper", "ink")]
    assert (light[0] < light[1]) == dark


# The end of the demo


class Console:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def print(self, line: str, **options: object) -> None:
        self.lines.append(line)


def test_the_demo_ends_with_a_report(spark, tmp_path):
    told = demo_pipeline.make_report(spark, write_demo(tmp_path / "trace"), tmp_path / "lake", tmp_path / "r.html")
    assert told == "4 events, 1 views, no violation"
    assert "<h2>Trace trace</h2>" in (tmp_path / "r.html").read_text()


def write_demo(folder: Path) -> Path:
    folder.mkdir()
    events = [
        {"event": "conf", "conf": "4:n1", "kind": "regular", "members": ["n1"], "time_us": 1_000_000},
        {"event": "send", "msg": "m", "conf": "4:n1", "service": "safe"},
        {"event": "deliver", "msg": "m", "sender": "n1", "conf": "4:n1", "service": "safe"},
        {"event": "leave", "time_us": 2_000_000},
    ]
    lines = [json.dumps({"node": "n1", "step": step, **event}) + "\n" for step, event in enumerate(events, 1)]
    (folder / "n1.jsonl").write_text("".join(lines))
    return folder


def test_without_spark_the_demo_says_so_in_one_line(tmp_path, monkeypatch):
    console = Console()
    monkeypatch.setattr(demo_pipeline, "find_spec", lambda name: None)
    assert not demo_pipeline.run_pipeline(tmp_path, tmp_path / "lake", tmp_path / "r.html", console)
    assert console.lines == [
        "No report: it is made on Spark, which is not installed (pip install 'ordercast[spark]')."
    ]  # fmt: skip


def test_with_a_java_that_is_missing_the_demo_says_so_in_one_line(tmp_path, monkeypatch):
    def none(*arguments, **options):
        raise SparkError("no Java here")

    console = Console()
    monkeypatch.setattr("ordercast.spark.session.session", none)
    assert not demo_pipeline.run_pipeline(tmp_path, tmp_path / "lake", tmp_path / "r.html", console)
    assert console.lines[1:] == ["No report: no Java here"]
