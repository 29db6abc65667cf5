"""Pages in a real browser: every control works, at both widths, under the page's own policy."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rmcalib import label, load_scores
from rmcalib.leaderboards import report_from_runs
from rmcalib.metrics import Settings
from rmcalib.report import evaluate, prompts
from tests.hooks import PATIENCE
from tests.report.boards import synthetic, write_runs
from tests.report.test_pages import texts

BROWSER = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium here")

# What a reader does runs as one more script. Its hash is added to the page's policy.
START = """
const seen = {errors: []};
addEventListener("error", (event) => seen.errors.push(String(event.message)));
document.addEventListener("securitypolicyviolation", (event) => seen.errors.push(event.violatedDirective));
const at = (id) => document.getElementById(id);
const key = (name) => document.querySelector(`[data-key="${name}"]`).textContent;
const wait = (ms) => new Promise((done) => setTimeout(done, ms));
const change = async (id, value) => {
  at(id).value = value; at("filters").dispatchEvent(new Event("input")); await wait(300);
};
(async () => { try {
"""
END = """
document.querySelectorAll("details").forEach((one) => { one.open = true; });
await wait(100);
seen.width = innerWidth; seen.overflow = document.documentElement.scrollWidth > innerWidth;
const size = (text) => parseFloat(getComputedStyle(text).fontSize);
const letters = (svg) => Math.min(...[...svg.querySelectorAll("text")].map(size))
  * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
seen.letters = [...document.querySelectorAll("figure svg")].filter((svg) => svg.querySelector("text")).map(letters);
} catch (error) { seen.errors.push(String(error)); }
parent.postMessage(JSON.stringify(seen), "*");
})();
"""
# Headless windows are not narrower than 500 pixels, but frames are.
FRAME = """<!doctype html><iframe src="{page}" width="{width}" height="900" frameborder="0"></iframe>
<script>addEventListener("message", (event) => {{
  const out = document.createElement("pre");
  out.id = "seen"; out.textContent = event.data; document.body.append(out);
}});</script>"""
EVALUATION = """
seen.listed = at("prompts").children.length;
await change("outcome", "wrong"); seen.wrong = at("found").textContent;
seen.marks = [...at("prompts").querySelectorAll("summary span:first-child")].every((one) => one.className === "bad");
await change("outcome", ""); await change("category", "1"); seen.category = at("found").textContent;
await change("category", ""); await change("confidence", "0.9"); seen.sure = at("found").textContent;
await change("confidence", "0"); await change("search", "p17"); seen.search = at("found").textContent;
await change("search", ""); await change("order", "sure");
seen.order = [...at("prompts").querySelectorAll("summary")].map((one) => parseFloat(one.textContent.split("says ")[1]));
const one = at("prompts").querySelector("details"); one.open = true; await wait(50);
seen.responses = one.querySelectorAll(".response").length;
seen.link = one.querySelector("a").getAttribute("href");
location.hash = seen.link; await wait(200);
seen.linked = at("prompts").children.length;
seen.says = key("says"); seen.numbers = at("slider-numbers").textContent;
at("temperature").value = 0.5; at("temperature").dispatchEvent(new Event("input")); seen.hot = key("says");
at("temperature-fitted").click(); seen.fitted = key("gap"); seen.lost = key("lost");
at("temperature-one").click(); seen.back = key("says");
seen.bins = document.querySelectorAll("#first-choice-points > *").length;
seen.copies = document.querySelectorAll(".command button").length;
"""
METRICS = ["mean_confidence", "accuracy", "overconfidence", "kept_information", "lost_information"]
METRICS += ["usable_information", "temperature"]
BOARD = """
const head = [...document.querySelectorAll("table thead button")];
const body = document.querySelector("table tbody");
const place = head.findIndex((one) => one.textContent === "right");
const column = () => [...body.rows].map((row) => parseFloat(row.cells[place].dataset.v));
head[place].click(); seen.up = column(); head[place].click(); seen.down = column();
seen.aria = head[place].parentElement.getAttribute("aria-sort");
"""


def act(page: Path, actions: str, width: int, profile: Path) -> dict[str, Any]:
    """Open a page, act on it, and return what was seen."""
    script = START + actions + END
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    text = page.read_text(encoding="utf-8")
    allowed = text.replace("script-src ", f"script-src &#39;sha256-{digest}&#39; ", 1)
    changed, frame = page.with_name(f"acted-{width}.html"), page.with_name(f"frame-{width}.html")
    changed.write_text(allowed.replace("</body>", f"<script>{script}</script></body>"), encoding="utf-8")
    frame.write_text(FRAME.format(page=changed.name, width=width), encoding="utf-8")
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-sync",
    ]
    flags += ["--disable-background-networking", "--disable-component-update", "--virtual-time-budget=20000"]
    command = [str(BROWSER), *flags, f"--user-data-dir={profile}", "--window-size=1400,1000", "--dump-dom"]
    done = subprocess.run([*command, frame.as_uri()], capture_output=True, text=True, timeout=PATIENCE)
    found = re.search(r'<pre id="seen">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found is not None, done.stderr[-2000:]
    seen: dict[str, Any] = json.loads(html.unescape(found[1]))
    return seen


@pytest.mark.parametrize(("n", "width"), [(1865, 1280), (20_000, 390)])
def test_every_control_of_an_evaluation_works(n: int, width: int, tmp_path: Path) -> None:
    scores = synthetic(n=n, scale=3.0)
    found = evaluate(scores, benchmark=texts(n, 100), metrics=METRICS, resamples=20)
    page = found.to_html(tmp_path / "page.html")
    assert page.stat().st_size < 3_000_000
    seen = act(page, EVALUATION, width, tmp_path / "profile")
    assert seen["errors"] == []
    assert seen["width"] == width
    assert seen["overflow"] is False
    assert min(seen["letters"]) > 8.5
    assert seen["listed"] == 50
    reward = scores.reward.reshape(-1, 4)
    p = np.exp(reward - reward.max(axis=1, keepdims=True))
    sure = (p / p.sum(axis=1, keepdims=True)).max(axis=1)
    counts = {
        name: int(seen[name].split()[0].replace(",", "")) for name in ("wrong", "category", "sure", "search")
    }
    wrong = int((reward.argmax(axis=1) != 0).sum())
    named = sum("p17" in f"p{i}" for i in range(n))
    assert counts == {
        "wrong": wrong,
        "category": (n + 1) // 3,
        "sure": int((sure >= 0.9).sum()),
        "search": named,
    }
    assert seen["marks"]
    assert seen["order"] == sorted(seen["order"], reverse=True)
    assert seen["responses"] == 4
    assert seen["link"].startswith("#prompt:")
    assert seen["linked"] == 1
    assert f"{100 * sure.mean():.1f}%" in seen["numbers"]
    assert seen["hot"] != seen["says"] == seen["back"]
    assert seen["lost"] == "0.0%"
    assert abs(float(re.sub(r"[^\d.]", "", seen["fitted"]))) < 5
    assert seen["bins"] >= 3
    assert seen["copies"] >= 1


def test_a_leaderboard_sorts(tmp_path: Path) -> None:
    report = report_from_runs([write_runs(tmp_path / "runs", 4)], settings=Settings(resamples=20))
    page = report.write(tmp_path / "report")
    seen = act(page, BOARD, 390, tmp_path / "profile")
    assert seen["errors"] == []
    assert seen["overflow"] is False
    assert seen["up"] == sorted(seen["up"]) == seen["down"][::-1]
    assert seen["aria"] == "descending"


def test_a_page_that_leaves_out_prompts_counts_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompts, "ENTRY_BYTES", 12_000)
    found = evaluate(synthetic(n=300), metrics=["accuracy", "temperature"], resamples=20)
    page = found.to_html(tmp_path / "page.html")
    seen = act(page, 'seen.numbers = at("slider-numbers").textContent;', 1280, tmp_path / "profile")
    assert seen["errors"] == []
    assert f"right {100 * (found.value('accuracy') or 0):.1f}%" in seen["numbers"]


LABELLING = """
const press = (key, repeat) => document.dispatchEvent(new KeyboardEvent("keydown", {key, repeat, bubbles: true}));
const kept = () => JSON.parse(Object.entries(localStorage).find(([name]) => name.startsWith("rmcalib-label"))[1]);
at("person").value = "Ann"; at("person").dispatchEvent(new Event("change"));
for (let i = 0; i < 18; i++) press(String(1 + i % 3));
press("u"); press("t"); press("s"); press("9"); press("1", true);
seen.progress = at("done").value;
seen.foreign = document.querySelectorAll("main script, main img, main a").length;
seen.code = document.querySelectorAll("main pre code").length;
press("2"); seen.done = at("done").value; seen.most = at("done").max;
seen.kept = Object.keys(kept().labels.Ann).length;
const before = JSON.stringify(kept()); press("3"); press("s"); seen.after = JSON.stringify(kept()) === before;
let saved; URL.createObjectURL = (blob) => { saved = blob; return "#"; };
at("save").click(); seen.saved = await saved.text();
const [name] = Object.entries(localStorage).find(([name]) => name.startsWith("rmcalib-label"));
const other = kept(); other.labels.Ben = {0: "t"}; localStorage.setItem(name, JSON.stringify(other)); // another tab
press("u"); press("3"); seen.people = Object.keys(kept().labels).sort();
localStorage.setItem = () => { throw new Error("full"); }; Storage.prototype.setItem = localStorage.setItem;
press("u"); press("1"); seen.warned = !at("warning").hidden;
at("save").click(); seen.last = (await saved.text()).includes('"Ben"');
"""


@pytest.mark.parametrize("width", [1280, 390])
def test_prompts_are_labelled_by_keyboard(width: int, tmp_path: Path) -> None:
    import pandas as pd

    hostile = (
        "</script><script>seen.errors.push(1)</script> <img src=x onerror=alert(1)>\n```\ncode <b>\n```\n"
    )
    rows = [
        {
            "prompt_id": f"p{i}",
            "prompt": f"Question {i}: {hostile}",
            "response": f"Answer {j}: {hostile}",
            "score": i * j,
        }
        for i in range(500)
        for j in range(3)
    ]
    table = pd.DataFrame(rows)
    page = label(table, n=20).to_html(tmp_path / "label.html")
    text = page.read_text(encoding="utf-8").replace("script-src 'sha", "script-src &#39;sha", 1)
    page.write_text(text, encoding="utf-8")
    seen = act(page, LABELLING, width, tmp_path / "profile")
    assert seen["errors"] == []
    assert (seen["width"], seen["overflow"], seen["foreign"]) == (width, False, 0)
    assert seen["code"] >= 4
    # 17 choices, a tie and a skip; then the last one.
    assert (seen["progress"], seen["done"], seen["most"], seen["kept"]) == (19, 20, 20, 20)
    assert seen["after"]  # no key changes a label once all prompts are done
    assert (seen["people"], seen["warned"], seen["last"]) == (["Ann", "Ben"], True, True)
    (tmp_path / "labels.jsonl").write_text(seen["saved"], encoding="utf-8")
    scores = load_scores(table, labels=tmp_path / "labels.jsonl")
    known = scores.label.reshape(500, 3)
    assert np.isfinite(known[:, 0]).sum() == 19
    assert (known == 1).any(axis=1).sum() == 18


MARKING = """
const press = (key) => document.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
const name = (text) => { at("person").value = text; at("person").dispatchEvent(new Event("change")); };
const cards = () => [...document.querySelectorAll(".response")];
seen.opened = performance.now();
seen.most = at("done").max; seen.cards = cards().length;
name("__proto__");
press("c"); seen.current = cards().findIndex((one) => one.classList.contains("current"));
press("t"); press("w"); seen.first = at("done").value;
press("w"); press("u"); press("w"); press("c"); seen.second = at("done").value;
name("constructor"); seen.other = at("done").value;
press("c"); press("c"); name("__proto__"); seen.again = at("done").value;
seen.clean = Object.keys(Object.prototype).length;
for (let i = 0; i < 996; i++) press("c");
seen.done = at("done").value;
let saved; URL.createObjectURL = (blob) => { saved = blob; return "#"; };
at("save").click(); seen.saved = await saved.text();
"""


@pytest.mark.parametrize("width", [1280, 390])
def test_five_hundred_prompts_are_marked_by_keyboard_whoever_does_it(width: int, tmp_path: Path) -> None:
    import pandas as pd

    rows = [
        {"prompt_id": f"p{i}", "prompt": f"Question {i}", "response": f"Answer {j} " * 50, "score": i + j}
        for i in range(600)
        for j in range(2)
    ]
    table = pd.DataFrame(rows)
    page = label(table, n=500, ask="correct").to_html(tmp_path / "label.html")
    text = page.read_text(encoding="utf-8").replace("script-src 'sha", "script-src &#39;sha", 1)
    page.write_text(text, encoding="utf-8")
    seen = act(page, MARKING, width, tmp_path / "profile")
    assert seen["errors"] == []
    assert (seen["width"], seen["overflow"]) == (width, False)
    assert (seen["most"], seen["cards"], seen["current"]) == (500, 2, 1)
    # Prompts that each person has done; a name that objects inherit is a name like any other.
    assert [seen[name] for name in ("first", "second", "other", "again", "done")] == [1, 2, 0, 2, 500]
    assert seen["clean"] == 0
    lines = [json.loads(line) for line in seen["saved"].splitlines()]
    by_person = {
        who: [row["label"] for row in lines if row["person"] == who]
        for who in {row["person"] for row in lines}
    }
    assert {who: (len(labels), sum(labels)) for who, labels in by_person.items()} == {
        "__proto__": (1000, 998),
        "constructor": (2, 2),
    }
    (tmp_path / "labels.jsonl").write_text(seen["saved"], encoding="utf-8")
    assert np.isfinite(load_scores(table, labels=tmp_path / "labels.jsonl").label).sum() >= 999
