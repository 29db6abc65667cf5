"""The settings of each kind of judge: one dataclass per kind, checked at one door.

The text under a field is its help. `load_judge` takes the fields as keyword arguments, and a command line as
`key=value`. To add a setting, add a field with its text.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

from annotated_types import Ge, Gt, Lt
from pydantic import BeforeValidator

from rmcalib._util.texts import adapter
from rmcalib.judges._recognise import FoundRecipe, find_recipe
from rmcalib.judges._registry import Recipe, check_names, registry


def _split(value: Any) -> Any:
    return tuple(part.strip() for part in value.split(",")) if isinstance(value, str) else value


T = TypeVar("T")
Count = Annotated[int, Ge(1)]
Positive = Annotated[float, Gt(0), Lt(float("inf"))]


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """Settings of the texts that a model reads, wherever it runs."""

    revision: str | None = None
    """Branch, tag or commit. The manifest has the commit."""
    max_length: Annotated[int, Ge(8)] | None = None
    """The longest text in tokens; default the model's or the server's own limit, at most 4096."""
    trust_remote_code: bool = False
    """Run the Python code that comes with the model or its tokenizer."""
    recipe: Recipe | str | None = None
    """Another model whose recipe is used; default that of the model, of its folder's name or of its files."""
    recipes: Annotated[tuple[str | Path, ...], BeforeValidator(_split)] = ()
    """YAML files with more recipes."""

    def recipe_for(self, name: str) -> Recipe:
        """Return the recipe of a model: `recipe`, the registry's, or that of a classifier with one label."""
        return self.find_recipe(name).recipe

    def find_recipe(self, name: str) -> FoundRecipe:
        """Return the recipe of a model, and how it was found."""
        return find_recipe(name, registry(self.recipes), self.recipe)


@dataclass(frozen=True, kw_only=True)
class LoadOptions(TextOptions):
    """Settings of a classifier, and of other models that are loaded here.

    Examples
    --------
    >>> LoadOptions(device="cpu").dtype
    'auto'
    """

    device: str = "auto"
    """`auto` (CUDA, else MPS, else the CPU), `cpu`, `cuda`, `cuda:1` or `mps`."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """`auto` (float32 on a CPU, else the recipe's or the checkpoint's), `float32`, `bfloat16`, `float16`."""
    token_budget: Count | None = None
    """The most tokens in one forward pass, halved if memory runs out; default 8192 (CPU) or 32768."""
    allow_pickle: bool = False
    """Load pickle weights, which can run code, if there are no safetensors."""
    base: str | None = None
    """Base model of a PEFT adapter; needed if the adapter names a local folder as its base."""
    backend: Literal["transformers", "vllm"] = "transformers"
    """What runs the model: `transformers`, or `vllm`, whose server is started and stopped for it."""
    python: str | None = None
    """With `vllm`: Python of the environment that has it; default `RMCALIB_VLLM`, else the one that runs."""
    tensor_parallel: Count = 1
    """With `vllm`: the number of GPUs that share the model."""
    vllm_options: str = ""
    """With `vllm`: more options of its server, such as `--gpu-memory-utilization 0.8`."""


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """Settings of models behind a server."""

    endpoint: str | None = None
    """Address of the server, such as `http://localhost:8000`."""
    served_name: str | None = None
    """The server's name for the model; default the model's own."""
    api_key_env: str | None = None
    """Environment variable with the server's key; default `RMCALIB_API_KEY`, if it is set."""
    concurrency: Count = 16
    """The most requests at a time."""
    timeout: Positive = 300.0
    """Seconds for a whole request before it is sent again."""


@dataclass(frozen=True, kw_only=True)
class ServedSettings(TextOptions, ServerOptions):
    """Settings of a reward model behind a server."""

    endpoint_kind: Literal["auto", "vllm", "sglang", "openrlhf", "score"] = "auto"
    """Kind of the server."""
    tokenize_here: bool = False
    """Send token ids to vLLM, as for a loaded model, instead of chat messages; needs the tokenizer."""


@dataclass(frozen=True, kw_only=True)
class LanguageModelSettings(LoadOptions, ServerOptions):
    """Settings of a language model that judges, loaded here or behind a chat API."""

    judging: Literal["letter", "yes-no", "rating", "votes", "rewardbench2"] | None = None
    """How it judges: by the letter of the best response, by yes or no, by a grade, or by sampled votes."""
    judge_prompt: str | Path | None = None
    """YAML file with questions of your own."""
    votes: Count | None = None
    """Sampled answers per question; default 8."""
    placements: Count | None = None
    """Number of orders in which responses are shown; default the number of responses."""
    judge_seed: Annotated[int, Ge(0)] = 0
    """Seed of the orders and of sampled answers."""
    max_characters: Count | None = None
    """Cut prompts and responses to this many characters; default no limit."""


@dataclass(frozen=True, kw_only=True)
class PolicySettings(LoadOptions, ServerOptions):
    """Settings of a policy whose log-probabilities are rewards, loaded here or behind vLLM."""

    reference: str | None = None
    """The model that training started from; default the base of a PEFT adapter."""
    reference_free: Literal["sum", "mean"] | None = None
    """Use no reference: the `sum` or the `mean` of the response's token log-probabilities."""
    beta: Positive | None = None
    """DPO's beta; default as in the files beside the weights, else 0.1 (1 without a reference)."""
    reference_endpoint: str | None = None
    """The server of the reference; default that of the policy."""
    reference_served_name: str | None = None
    """The server's name for the reference; default the reference's own."""


@dataclass(frozen=True, kw_only=True)
class FunctionSettings:
    """Settings of a Python function that rewards responses."""

    name: str | None = None
    """Name in reports and run folders; default the function's own."""
    scale: Literal["reward", "utility", "log_odds", "probability", "logprob", "rating", "logit", "none"] = (
        "reward"
    )
    """What its numbers are, as for `--scale`."""
    identity: Any = None
    """JSON that stands for what changes the numbers, such as a version; default a hash of the source."""
    batched: bool = False
    """The function takes many prompts at once: lists of prompts and of lists of responses."""
    batch_size: Count = 32
    """Prompts per chunk; a killed run loses at most one chunk."""


def checked_settings(cls: type[T], given: Mapping[str, Any]) -> T:
    """Return settings with the given values; an unknown name or a wrong value is a `ValueError`.

    Values may be texts, as on a command line: numbers, yes or no, and lists with commas.

    >>> checked_settings(LoadOptions, {"max_length": "512", "allow_pickle": "yes"}).max_length
    512
    >>> checked_settings(LoadOptions, {"devise": "cpu"})
    Traceback (most recent call last):
    ValueError: devise: unknown setting (did you mean 'device'?)
    >>> checked_settings(PolicySettings, {"beta": "much"})
    Traceback (most recent call last):
    ValueError: beta: 'much': Input should be a valid number, unable to parse string as a number
    """
    from pydantic import ValidationError

    check_names(given, [field.name for field in dataclasses.fields(cls)])  # type: ignore[arg-type]
    try:
        settings: T = adapter(cls).validate_python(dict(given))  # type: ignore[arg-type]
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{first['loc'][0]}: {first['input']!r}: {first['msg']}") from None
    return settings


def parsed_settings(cls: type[Any], given: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of settings that were written as text.

    >>> parsed_settings(LoadOptions, {"max_length": "512", "allow_pickle": "yes"})
    {'max_length': 512, 'allow_pickle': True}
    """
    checked = checked_settings(cls, given)
    return {name: getattr(checked, name) for name in given}


def setting_help(cls: type[Any]) -> dict[str, str]:
    """Return the help of each field of a settings class: the text under it.

    >>> setting_help(ServedSettings)["concurrency"]
    'The most requests at a time.'
    """
    help_of: dict[str, str] = {}
    for part in reversed(cls.__mro__[:-1]):
        body: Any = ast.parse(textwrap.dedent(inspect.getsource(part))).body[0]
        for field, text in zip(body.body, body.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                help_of[ast.unparse(field.target)] = inspect.cleandoc(ast.literal_eval(text.value))
    return {field.name: help_of.get(field.name, "") for field in dataclasses.fields(cls)}


def field_types(cls: type[Any]) -> dict[str, Any]:
    """Return the types of the fields of a dataclass."""
    hints = get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}
