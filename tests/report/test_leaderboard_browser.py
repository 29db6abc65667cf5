"""The page in a real browser: it opens from a file, sorts and filters, and makes no network requests."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from rmcalib.metrics import Settings
from rmcalib.report import leaderboard_from_runs, write_leaderboard
from tests.hooks import PATIENCE
from tests.report.boards import synthetic, write_run, write_runs

BROWSER = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="no Chromium here: the page is not tried in a browser"
)

# Actions of a reader as the last script of the page; it writes its observations into the document.
ACTIONS = """
<script>
{
const seen = {errors: []};
window.addEventListener("error", event => seen.errors.push(String(event.message)));
const body = document.querySelector("#board tbody");
const names = () => [...body.rows].filter(row => !row.hidden).map(row => row.cells[1].dataset.v);
const column = i => [...body.rows].map(row => row.cells[i].dataset.v ?? "");
const heads = [...document.querySelectorAll("#board thead button")];
const at = text => heads.findIndex(head => head.textContent.trim() === text);
seen.start = names();
heads[at("right")].click(); seen.up = column(at("right"));
seen.aria = heads[at("right")].parentElement.getAttribute("aria-sort");
heads[at("right")].click(); seen.down = column(at("right"));
const ece = heads.findIndex(head => head.textContent.trim().startsWith("ECE"));
heads[ece].click(); seen.ece = column(ece);
heads[ece].click(); seen.eceDown = column(ece);
heads[at("model")].click(); seen.byName = names();
const field = document.getElementById("filter");
field.value = "MODEL-2"; field.dispatchEvent(new Event("input")); seen.filtered = names();
seen.count = document.getElementById("count").textContent;
field.value = ""; field.dispatchEvent(new Event("input"));
const scale = document.getElementById("scale"); scale.click(); seen.onScale = names();
scale.click(); seen.everything = names();
seen.dark = getComputedStyle(document.body).backgroundColor;
seen.wide = document.documentElement.scrollWidth <= window.innerWidth;
const box = document.querySelector(".scroll"); seen.fits = box.scrollWidth <= box.clientWidth;
const size = text => parseFloat(getComputedStyle(text).fontSize);
const letters = svg => Math.min(...[...svg.querySelectorAll("text")].map(size))
  * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
const unfolded = [...document.querySelectorAll("figure svg")].filter(svg => !svg.closest("details"));
seen.letters = unfolded.map(letters);
const shown = svg => svg.getBoundingClientRect().width > 100 || svg.closest("details") !== null;
seen.drawings = [...document.querySelectorAll("figure svg")].filter(shown).length;
const folded = () => document.querySelectorAll("details:not([open])").length;
seen.folded = [folded()];
dispatchEvent(new Event("beforeprint")); seen.folded.push(folded());
dispatchEvent(new Event("afterprint")); seen.folded.push(folded());
seen.asked = performance.getEntriesByType("resource").map(entry => entry.name);
const out = document.createElement("pre");
out.id = "seen"; out.textContent = JSON.stringify(seen); document.body.append(out);
}
</script>
"""


def visit(page: Path, tmp_path: Path, *options: str, actions: str = ACTIONS) -> dict[str, Any]:
    """Open the page with the actions added, and return their observations."""
    tried = page.with_name("tried.html")
    tried.write_text(
        page.read_text(encoding="utf-8").replace("</body>", f"{actions}</body>"), encoding="utf-8"
    )
    assert BROWSER is not None
    command = [
        BROWSER,
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",  # /dev/shm is too small in many containers
        f"--user-data-dir={tempfile.mkdtemp(dir=tmp_path)}",  # a running browser would open the page
    ]
    dumped = subprocess.run(
        [*command, *options, "--dump-dom", tried.as_uri()],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    ).stdout
    match = re.search(r'<pre id="seen">(.*?)</pre>', dumped, re.DOTALL)
    assert match is not None, "the page's scripts did not run to their end"
    seen: dict[str, Any] = json.loads(
        match[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    )
    return seen


# As many columns as the table of RewardBench 2 has.
LIKE_REWARDBENCH: dict[str, Any] = {
    "ties": True,
    "categories": ("Factuality", "Precise IF", "Math", "Safety", "Focus"),
}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("board")
    write_runs(folder / "runs", 12, **LIKE_REWARDBENCH)
    names = (
        "org/<b onmouseover=alert(1)>bold</b>",
        "nicolinho/QRM-Llama3.1-8B-v2",
        "LxzGordon/URM-LLaMa-3.1-8B",
    )
    for number, name in enumerate(names):
        write_run(folder / "runs", name, synthetic(30 + number, **LIKE_REWARDBENCH))
    board = leaderboard_from_runs([folder / "runs"], settings=Settings(resamples=30))
    return write_leaderboard(board, folder / "report")


def test_the_page_sorts_and_filters(page: Path, tmp_path: Path) -> None:
    seen = visit(page, tmp_path, "--window-size=1280,900")
    assert seen["errors"] == []
    assert len(seen["start"]) == 15
    up = [float(value) for value in seen["up"]]
    assert up == sorted(up)
    assert seen["aria"] == "ascending"
    assert [float(value) for value in seen["down"]] == sorted(up, reverse=True)
    # The model without an ECE stays last in both directions.
    for key, turned in (("ece", False), ("eceDown", True)):
        assert seen[key][-1] == ""
        known = [float(value) for value in seen[key][:-1]]
        assert known == sorted(known, reverse=turned)
    assert seen["byName"] != seen["start"]
    assert sorted(seen["byName"]) == sorted(seen["start"])
    assert seen["filtered"] == ["org/model-2"]
    assert seen["count"] == "1 of 15 models"
    assert len(seen["onScale"]) == 13
    assert len(seen["everything"]) == 15
    assert "org/<b onmouseover=alert(1)>bold</b>" in seen["start"]
    assert seen["drawings"] == 11
    assert seen["fits"]  # no sideways scrolling for any column
    assert len(seen["letters"]) == 10
    assert min(seen["letters"]) > 9
    assert seen["asked"] == []
    # Printing unfolds everything, and folds it again afterwards.
    assert seen["folded"][0] > 0
    assert seen["folded"] == [seen["folded"][0], 0, seen["folded"][0]]


def test_on_a_phone_boxes_scroll_with_a_hint(page: Path, tmp_path: Path) -> None:
    """Headless Chromium windows are at least 500 pixels wide, so a frame is used as the phone."""
    frame = page.with_name("phone.html")
    seen = """<pre id="seen"></pre><script>
    addEventListener("load", () => {
      const inner = document.querySelector("iframe").contentDocument;
      const boxes = [...inner.querySelectorAll(".wide, .scroll")].filter(box => !box.closest("details"));
      const hint = box => box.previousElementSibling?.classList.contains("hint")
        && box.previousElementSibling.offsetHeight > 0;
      document.getElementById("seen").textContent = JSON.stringify({
        wide: inner.documentElement.scrollWidth, boxes: boxes.length, hinted: boxes.filter(hint).length,
        scrolls: boxes.filter(box => box.scrollWidth > box.clientWidth).length });
    });</script>"""
    phone = f'<iframe src="{page.name}" style="width: 390px; height: 800px; border: 0"></iframe>'
    frame.write_text(f"<!doctype html><body>{phone}{seen}</body>", encoding="utf-8")
    found = visit(frame, tmp_path, "--window-size=500,900", "--allow-file-access-from-files", actions="")
    assert found["wide"] <= 390
    assert found["boxes"] == found["hinted"] > 10
    assert found["scrolls"] > 5


def test_a_phone_needs_no_sideways_scrolling_and_dark_is_dark(page: Path, tmp_path: Path) -> None:
    light = visit(page, tmp_path, "--window-size=500,900")
    assert light["wide"]
    assert min(light["letters"]) > 8  # figures scroll in their boxes instead of shrinking
    assert light["dark"] == "rgb(255, 255, 255)"
    dark = visit(page, tmp_path, "--window-size=500,900", "--force-dark-mode")
    assert dark["errors"] == []
    assert dark["dark"] != "rgb(255, 255, 255)"
