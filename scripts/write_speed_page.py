"""Run the benches and write what they print into results/speed.md, each with the load of the machine.

python scripts/write_speed_page.py                     # all of them; half an hour
python scripts/write_speed_page.py --only evaluation   # one section; the others stay as they are
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

from rmcalib._util.files import write_text

ROOT = Path(__file__).resolve().parents[1]
HEAD = """# Speed and memory

What the benches print, each with a baseline in the same run. Seconds are CPU seconds. The load is the mean number of
busy processes in the minute before and at the end; other work makes CPU seconds longer, too. One command writes this
page:

    python scripts/write_speed_page.py
"""
# The sections: what is measured, and by which calls.
SECTIONS: dict[str, tuple[str, list[str]]] = {
    "evaluation": ("Evaluating scores, from a file to a page", ["bench_evaluation.py"]),
    "report": ("A leaderboard of 300 models", ["bench_report.py"]),
    "scoring": ("Scoring on a CPU", ["bench_scoring.py --prompts 12"]),
    "notions": ("Notions of calibration", ["bench_notions.py"]),
    "prolr": ("Label ranking", ["bench_prolr.py"]),
}


def section(heading: str, calls: list[str]) -> str:
    """Run scripts and return what they print as a section of the page."""
    parts = [f"## {heading}"]
    for call in calls:
        before = os.getloadavg()[0]
        script, *options = call.split()
        command = [sys.executable, str(ROOT / "scripts" / script), *options]
        # With several threads, CPU seconds would count those that wait.
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        printed = done.stdout.rstrip()
        if done.returncode:
            printed += f"\n{(done.stderr.strip().splitlines() or ['failed'])[-1]}"
        load = f"load {before:.1f} to {os.getloadavg()[0]:.1f}; {processor()}, Python {platform.python_version()}"
        parts.append(f"`scripts/{call}` ({load}):\n\n```\n{printed}\n```")
    return "\n\n".join(parts)


def processor() -> str:
    """Return the name of the processor and its number of cores."""
    about = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.*)", about.read_text(encoding="utf-8")) if about.exists() else None
    return f"{found[1] if found else platform.machine()}, {os.cpu_count()} cores"


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument(
        "--only", choices=[*SECTIONS], action="append", help="run only this section's benches"
    )
    parser.add_argument("--to", type=Path, default=ROOT / "results" / "speed.md")
    options = parser.parse_args()
    there = options.to.read_text(encoding="utf-8") if options.to.exists() else ""
    texts = {part.splitlines()[0]: f"## {part.strip()}" for part in there.split("\n## ")[1:]}
    for name, (heading, calls) in SECTIONS.items():
        if options.only is None or name in options.only:
            texts[heading] = section(heading, calls)
            kept = [texts[other] for other, _ in SECTIONS.values() if other in texts]
            write_text(options.to, "\n\n".join([HEAD.rstrip(), *kept]) + "\n")
            print(f"{name}: done", flush=True)


if __name__ == "__main__":
    main()
