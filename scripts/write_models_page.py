"""Write the tables of docs/models.md: how each model of RewardBench 2's leaderboard is loaded, and what was checked.

python scripts/write_models_page.py [--check]
"""

import argparse
import csv
import sys
from pathlib import Path

from rmcalib._util.display import markdown_table
from rmcalib._util.files import write_text
from rmcalib.judges import Recipe
from rmcalib.judges._registry import LEADERBOARD, read_recipes

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "models.md"
PAPER = ROOT / "results" / "published_reward_models.csv"
START, END = "<!-- models: start -->", "<!-- models: end -->"
CHECKED = {
    "plain": "stock",
    "recipe": "stock",
    "rebuilt": "layout",
    "own-code": "output",
    "unsupported": "nothing",
}


def updated(page: str) -> str:
    """Return the page with the table of the registry between its two marks."""
    before, _, rest = page.partition(START)
    _, _, after = rest.partition(END)
    with PAPER.open(encoding="utf-8", newline="") as file:
        paper = {row["model"] for row in csv.DictReader(file)}
    rows = [
        [recipe.model, "yes" if recipe.model in paper else "", loaded(recipe), checked(recipe)]
        for recipe in read_recipes(LEADERBOARD)
    ]
    table = markdown_table(["Model", "In the paper", "How it is loaded", "Checked"], rows, escape=False)
    return f"{before}{START}\n\n" + "\n".join(table) + f"\n\n{END}{after}"


def loaded(recipe: Recipe) -> str:
    """Return how a model is loaded, in a few words."""
    if recipe.status == "unsupported":
        return f"not at all: {recipe.reason}"
    if recipe.head == "own-code":
        words = ["its own code, with `trust_remote_code`"]
    elif recipe.head == "auto":
        words = ["stock classifier"]
    else:
        files = [file for file in (recipe.head_file, recipe.gate_file) if file]
        where = f" in {' and '.join(f'`{file}`' for file in files)}" if files else ""
        words = [f"stock {recipe.architecture or 'transformer'}, head `{recipe.head}.*`{where}"]
        words += ["needs `allow_pickle`"] if any(file.endswith(".pt") for file in files) else []
    words += [f"template `{recipe.template}`"] if recipe.template else []
    words += [f"tokenizer of {recipe.tokenizer}"] if recipe.tokenizer else []
    words += [f"ends with token {recipe.append_token_id}"] if recipe.append_token_id else []
    words += ["minus its output"] if recipe.sign < 0 else []
    return "; ".join(words)


def checked(recipe: Recipe) -> str:
    """Return what was checked: a layout if the recipe has more than a stock classifier needs."""
    return "layout" if recipe.status == "recipe" and recipe.template else CHECKED[recipe.status]


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page is stale")
    options = parser.parse_args()
    page = PAGE.read_text(encoding="utf-8")
    if updated(page) == page:
        return
    if options.check:
        sys.exit(f"{PAGE} is stale: run python scripts/write_models_page.py")
    write_text(PAGE, updated(page))


if __name__ == "__main__":
    main()
