"""Write the tables of docs/models.md: how each model of RewardBench 2's leaderboard is loaded, and what was checked.

python scripts/write_models_page.py [--check]
"""

import csv
from pathlib import Path

from pages import write_tables

from rmcalib._util.display import markdown_table
from rmcalib.judges import Recipe
from rmcalib.judges._registry import LEADERBOARD, read_recipes

PAPER = Path(__file__).parents[1] / "results" / "published_reward_models.csv"
CHECKED = {
    "plain": "stock",
    "recipe": "stock",
    "rebuilt": "layout",
    "own-code": "output",
    "unsupported": "nothing",
}


def table() -> str:
    """Return a table with a row for each model of the registry."""
    with PAPER.open(encoding="utf-8", newline="") as file:
        paper = {row["model"] for row in csv.DictReader(file)}
    rows = [
        [recipe.model, "yes" if recipe.model in paper else "", loaded(recipe), checked(recipe)]
        for recipe in read_recipes(LEADERBOARD)
    ]
    lines = markdown_table(["Model", "In the paper", "How it is loaded", "Checked"], rows, escape=False)
    return "\n".join([*lines, ""])


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
    write_tables("models.md", "models", table(), __doc__)


if __name__ == "__main__":
    main()
