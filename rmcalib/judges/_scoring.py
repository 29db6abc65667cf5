"""A Hugging Face reward model as a judge: score the responses of prompts.

Prompts are processed in windows: 32 prompts on a CPU, 128 on other devices, where a larger choice of texts
means less padding. A window is tokenised, sorted by length into batches, scored, and yielded in chunks of 32
prompts. The responses of a prompt share its computation if the model allows it (`_sharing`); some texts are
scored alone too, to check that this changes nothing. A reward does not depend on the other texts in its batch,
up to rounding: about 1e-6 in float32. On a CPU, where a window is a chunk, a resumed run gives exactly the same
rewards.

A pass does not wait for the device: its inputs are copied in one transfer from pinned memory, and its rewards
stay on the device until all passes of a window have been started.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rmcalib._util.arrays import FloatArray
from rmcalib.judges import _devices as devices
from rmcalib.judges import _sharing
from rmcalib.judges._files import asked_for, check_model_name, model_from
from rmcalib.judges._judge import Progress, ScoredItem
from rmcalib.judges._model import RewardModel, load_model
from rmcalib.judges._registry import ABOUT, Recipe, hashed_recipe, scale_of
from rmcalib.judges._settings import LoadOptions
from rmcalib.judges._sharing import Row, Sharing, Text, Tree, row_length
from rmcalib.judges._templates import Encoded, checkpoint_pad, encode, pooled_position, text_ids
from rmcalib.scores.scale import Scale

if TYPE_CHECKING:
    import torch

    from rmcalib.benchmarks import Item

SCORING_VERSION = 1  # raise it when the same inputs would get other scores
CHUNK = 32
"""Number of prompts in a chunk: enough to fill rows, few enough that a killed run loses little."""

_WINDOW = 128  # prompts that are sorted together on an accelerator
_MOST_TOKENS, _MOST_TOKENS_CPU = 32_768, 8_192  # in one pass
_PASS_COST, _PASS_COST_CPU = 1_024, 16  # of starting a pass, as a number of tokens that take the same time
_ROW_TOKENS_CPU = 1_024  # enough for all cores; the activations of a layer should fit into the caches
_TIMES_THE_NOISE = 4.0
# Largest difference of a reward, in epsilons of its dtype. In bfloat16, sharing changed rewards by up to 1.5
# epsilons of the largest one.
_EPSILONS = {"float32": 1_000.0, "float16": 8.0, "bfloat16": 4.0}


class Classifier:
    """A Hugging Face reward model as a judge: from the Hub, from a folder, or already loaded.

    A model that is given by name is loaded when it is first used. Until then the judge is small and can be
    sent to another process.

    Parameters
    ----------
    model : str | RewardModel
        A Hub id, a folder, `"demo"`, or a loaded `RewardModel`. A loaded model is identified by its name and
        revision. If its weights have changed, as in training, do not resume an earlier run.
    options : LoadOptions, optional
        Settings for loading and running it. For a loaded model, only `token_budget` has an effect.

    Examples
    --------
    >>> from rmcalib.benchmarks import load_benchmark
    >>> judge = Classifier("demo", LoadOptions(device="cpu"))
    >>> judge.name, judge.scale.kind
    ('demo', 'utility')
    >>> [len(chunk) for chunk in judge.score(load_benchmark("demo").items[:40])]
    [32, 8]
    """

    def __init__(self, model: str | RewardModel, options: LoadOptions | None = None) -> None:
        """Keep the settings; nothing is loaded yet."""
        self.options = options or LoadOptions()
        self.name = check_model_name(model) if isinstance(model, str) else model.name
        self._loaded = None if isinstance(model, str) else model
        self._by_name = isinstance(model, str)
        self._scorer: ItemScorer | None = None

    @property
    def model(self) -> RewardModel:
        """The model. The first access loads it."""
        if self._loaded is None:
            self._loaded = load_model(self.name, self.options)
        return self._loaded

    @property
    def recipe(self) -> Recipe:
        """The recipe of the model."""
        return self._loaded.recipe if self._loaded is not None else self.options.recipe_for(self.name)

    @property
    def scale(self) -> Scale | str:
        """The scale of the rewards, from the recipe."""
        return scale_of(self.recipe)

    def identity(self) -> dict[str, Any]:
        """Return everything that changes a reward; this loads the model."""
        model = self.model
        return {
            "model_revision": model.revision,
            "model_sources": dict(model.sources),
            "recipe": hashed_recipe(model.recipe),
            "kind": model.kind,
            "own_code": _own_code(model),
            # the attention that transformers has chosen, because each one rounds differently
            "attention": getattr(_sharing.running_config(model), "_attn_implementation", None),
            "dtype": str(model.dtype).removeprefix("torch."),
            "max_length": model.max_length,
            "scoring_version": SCORING_VERSION,
        }

    def asked(self) -> dict[str, Any] | None:
        """Return what determines `identity` and is known without the weights; None for a loaded model."""
        return asked_for(self.name, self.options) | {"version": SCORING_VERSION} if self._by_name else None

    def about(self) -> dict[str, Any]:
        """Return the device, where the model is from, and what is known about it."""
        from rmcalib.judges._packing import count_packed

        return {
            "device": str(self.model.device),
            "packed_layers": count_packed(self.model.backbone),
            "dtype_from": self.model.dtype_from,
            **({"model_from": model_from(self.name)} if self._by_name else {}),
            "about_model": {name: getattr(self.model.recipe, name) for name in ABOUT},
        }

    def work(self) -> dict[str, int]:
        """Return the number of forward passes, and of tokens: scored, shared and padding."""
        return {} if self._scorer is None else dataclasses.asdict(self._scorer.work)

    def score(self, items: Sequence[Item], *, progress: Progress | None = None) -> Iterator[list[ScoredItem]]:
        """Score prompts in chunks of 32; `progress` is called after each forward pass."""
        yield from self._scorer_for(progress).chunks(items)

    def score_texts(self, texts: Sequence[str | Sequence[int]]) -> list[float]:
        """Score whole texts, or token ids, as they are: no chat template is applied."""
        return self._scorer_for(None).texts(texts)

    def _scorer_for(self, progress: Progress | None) -> ItemScorer:
        if self._scorer is None:  # kept: it learns how many tokens fit and whether prompts can be shared
            self._scorer = ItemScorer(self.model, self.options.token_budget)
        self._scorer.progress = progress
        return self._scorer


@dataclass
class Work:
    """The work of a scorer's forward passes.

    `tokens` are those of all texts, each with its prompt; `shared` were not computed again, because another
    response had the same prompt; `padding` were computed for nothing.
    """

    passes: int = 0
    tokens: int = 0
    shared: int = 0
    padding: int = 0

    def add(self, texts: Sequence[Text], lengths: Sequence[int]) -> None:
        """Count a pass with rows of these lengths."""
        tokens = sum(map(len, texts))
        self.passes += 1
        self.tokens += tokens
        self.shared += tokens - sum(lengths)
        self.padding += len(lengths) * max(lengths) - sum(lengths)


class ItemScorer:
    """Scores items, and remembers how many tokens fit and whether prompts can be shared.

    Parameters
    ----------
    model : RewardModel
        A loaded model.
    token_budget : int, optional
        The most tokens in one forward pass, padding included; a longer text is scored alone. Default: 8,192
        on a CPU, 32,768 elsewhere. It is halved if memory runs out.
    share : bool
        Compute a prompt once for all its responses if the architecture allows it.
    progress : Progress, optional
        Called after each forward pass with the numbers of responses and tokens it has scored.
    """

    def __init__(
        self,
        model: RewardModel,
        token_budget: int | None = None,
        *,
        share: bool = True,
        progress: Progress | None = None,
    ) -> None:
        """Decide how to score; nothing is scored yet."""
        model.backbone.eval()
        self.model, self.progress, self.work = model, progress, Work()
        self.sharing = _sharing.how_to_share(model) if share else None
        if share and self.sharing is None and model.kind == "causal":
            self._share_no_more("its layers, attention or rotary embeddings do not allow it")
        self.budget = token_budget or (_MOST_TOKENS_CPU if model.device.type == "cpu" else _MOST_TOKENS)
        self._checked = 0  # the length of the longest text that was checked
        self._noise = 0.0

    def chunks(self, items: Sequence[Item]) -> Iterator[list[ScoredItem]]:
        """Score all responses of `items`; yield chunks of 32 prompts, in order, as they are finished."""
        model, size = self.model, CHUNK if self.model.device.type == "cpu" else _WINDOW
        # The first window is small, because it is scored again if sharing does not work.
        starts = [0, *range(CHUNK if self.sharing else size, len(items), size)]
        for start, stop in zip(starts, [*starts[1:], len(items)], strict=True):
            window = items[start:stop]
            encoded = encode(
                window,
                model.tokenizer,
                max_length=model.max_length,
                template=model.recipe.template,
                append=model.recipe.append_token_id,
            )
            scored = scored_items(window, encoded, self.rewards(encoded).tolist()) if window else []
            for first in range(0, len(scored), CHUNK):
                yield scored[first : first + CHUNK]

    def texts(self, texts: Sequence[str | Sequence[int]]) -> list[float]:
        """Return the rewards of whole texts, or of token ids."""
        model, longest = self.model, self.model.max_length
        written = [text for text in texts if isinstance(text, str)]
        append = model.recipe.append_token_id
        rows = iter(text_ids(written, model.tokenizer, max_length=longest, append=append) if written else ())
        encoded = []
        for text in texts:
            ids, truncated = (
                next(rows) if isinstance(text, str) else (list(text)[:longest], len(text) > longest)
            )
            if not ids:
                raise ValueError("a text without any token")
            encoded.append((Encoded(tuple(ids), len(ids), truncated),))
        return self.rewards(encoded).tolist() if encoded else []

    def rewards(self, encoded: Sequence[tuple[Encoded, ...]]) -> FloatArray:
        """Return the rewards of the responses of some prompts as a flat array, prompt after prompt."""
        recipe, pad = self.model.recipe, checkpoint_pad(self.model.config)
        texts: list[Text] = []
        for prompt, responses in enumerate(encoded):
            for text in responses:
                pooled = pooled_position(text.input_ids, pooling=recipe.pooling, pad=pad)
                texts.append(Text(len(texts), prompt, text, pooled))
        rewards = self._computed(texts)
        if self.sharing is not None and (difference := self._disagreement(self._sample(texts), rewards)):
            self._share_no_more(f"rewards differ by up to {difference:.2g}")
            rewards = self._computed(texts, again=True)
        return rewards

    def _computed(self, texts: Sequence[Text], *, again: bool = False) -> FloatArray:
        """Return the rewards of `texts`. With `again`, progress has been reported for them already."""
        from accelerate.utils.memory import clear_device_cache

        rewards = np.full(len(texts), np.nan)
        pending = {text.index: text for text in texts}
        while pending:
            done, failed = self._passes(list(pending.values()), again)
            if done:  # the only place where the CPU waits for the device
                order = [index for indices, _ in done for index in indices]
                rewards[order] = _collected([values for _, values in done])
                for index in order:
                    del pending[index]
            if failed:  # not where the error is caught: it still holds the tensors of the failed pass
                clear_device_cache(garbage_collection=True)
                self.budget = max(1, min(self.budget, failed) // 2)
        if self.sharing is not None:
            # A NaN of one text spreads through its row, so the texts of the row are scored alone.
            for index in np.flatnonzero(~np.isfinite(rewards)).tolist():
                rewards[index] = float(plain_rewards(self.model, [texts[index]])[1])
        return rewards

    def _passes(self, texts: Sequence[Text], again: bool) -> tuple[list[tuple[Sequence[int], Any]], int]:
        """Run passes until all `texts` are done, or one fails.

        Returns the results of the passes, and the tokens of the pass that did not fit into memory, or 0.
        """
        done: list[tuple[Sequence[int], Any]] = []
        for rows in plan(self.model, self.sharing, texts, self.budget):
            batch = [text for row in rows for tree in row for text in tree.texts]
            try:
                if self.sharing is not None:
                    done.append(shared_rewards(self.model, rows, self.sharing))
                else:
                    done.append(plain_rewards(self.model, batch))
            except Exception as error:
                if devices.is_out_of_memory(error):
                    if len(batch) > 1:
                        return done, sum(map(row_length, rows))
                    raise MemoryError(
                        f"a response of {len(batch[0])} tokens does not fit into the memory of "
                        f"{self.model.device}: lower max_length=..., or use a narrower dtype=..."
                    ) from error
                if self.sharing is None or self._checked:  # if sharing is known to work, this is a real error
                    raise
                self._share_no_more(f"{type(error).__name__}: {error}")
                return done, 0
            self.work.add(batch, [row_length(row) for row in rows])
            if self.progress is not None and not again:
                self.progress(len(batch), sum(map(len, batch)))
        return done, 0

    def _sample(self, texts: Sequence[Text]) -> list[Text]:
        """Return the texts of a window to score alone; empty if a longer one was checked before.

        In the first window, these are the longest text, and a response of each of the two shortest prompts,
        which share rows with others. Later, it is the longest text.
        """
        longest = max(texts, key=len)
        if self._checked:
            return [longest] if len(longest) > self._checked else []
        prompts: dict[int, list[Text]] = {}
        for text in texts:
            prompts.setdefault(text.prompt, []).append(text)
        groups = sorted(prompts.values(), key=lambda group: sum(map(len, group)))
        # The last response: if the mask were wrong, it would attend to the responses before it.
        short = [group[-1] for group in groups[:2] if group[-1] is not longest]
        return [*short, longest]

    def _disagreement(self, sample: list[Text], rewards: FloatArray) -> float:
        """Score each text of `sample` alone; return the largest difference from `rewards` if it is too large.

        Otherwise return 0. The tolerance is measured, because rewards also change a little when the same
        texts are scored in one batch, padded to one length. A reward that is not finite is not a disagreement;
        it is reported later. Texts that do not fit into memory alone are left out.
        """
        if not sample:
            return 0.0
        try:
            alone = np.array([float(plain_rewards(self.model, [text])[1]) for text in sample])
            if len(sample) > 1:
                together = plain_rewards(self.model, sample[:2])[1].double().cpu().numpy()
                self._noise = max(self._noise, float(np.abs(together - alone[:2]).max()))
        except Exception as error:
            if not devices.is_out_of_memory(error):
                raise
            return self._disagreement(sample[:-1], rewards)
        tolerance = max(_TIMES_THE_NOISE * self._noise, rounding(self.model.dtype, alone))
        difference = float(np.abs(rewards[[text.index for text in sample]] - alone).max())
        if difference <= tolerance or not np.isfinite(alone).all():
            self._checked = max(self._checked, *map(len, sample))
            return 0.0
        return difference

    def _share_no_more(self, reason: str) -> None:
        self.sharing = None
        warnings.warn(
            f"{self.model.name}: computing a prompt once for all its responses does not work for this model "
            f"({reason}). Every response is scored with its own copy of the prompt. This is slower and gives "
            "the same rewards",
            stacklevel=2,
        )


def plan(model: RewardModel, sharing: Sharing | None, texts: Sequence[Text], budget: int) -> list[list[Row]]:
    """Return the batches of rows for some texts, each of at most `budget` tokens if possible.

    Without sharing, a row is one text. With masks, it is a prompt with its responses. Branch by branch, a
    batch is one row of several prompts, without padding.
    """
    import torch

    cpu, same_length = model.device.type == "cpu", False
    usual = min(budget, _ROW_TOKENS_CPU * max(1, torch.get_num_threads() // 4)) if cpu else budget
    if sharing is None:
        trees, budget = [Tree((text,)) for text in texts], usual
        same_length = _sharing.needs_same_length(model)
    elif sharing.branches:
        return [[row] for row in full_rows(grow_trees(texts, longest=budget), usual)]
    else:  # the work and the memory of a mask grow with the square of the row
        trees = grow_trees(texts, longest=min(budget, 2 * model.max_length))
    padding = 0 if same_length else _PASS_COST_CPU if cpu else _PASS_COST
    return sorted_batches([(tree,) for tree in trees], budget=budget, padding=padding)


def sorted_batches(rows: Iterable[Row], *, budget: int, padding: int) -> list[list[Row]]:
    """Sort rows by length into batches of at most `budget` tokens, padding included.

    A batch has at most `padding` tokens of padding: as many as starting another pass costs. A row longer than
    the budget is a separate batch.
    """
    batches: list[list[Row]] = []
    longest = wasted = 0
    for row in sorted(rows, key=lambda row: (-row_length(row), row[0].texts[0].index)):
        missing = longest - row_length(row)
        fits = batches and (len(batches[-1]) + 1) * longest <= budget
        if fits and wasted + missing <= padding:
            batches[-1].append(row)
            wasted += missing
        else:
            batches.append([row])
            longest, wasted = row_length(row), 0
    return batches


def full_rows(trees: Iterable[Tree], length: int) -> list[Row]:
    """Put trees into rows of about `length` tokens: first fit, longest first."""
    rows: list[list[Tree]] = []
    room: list[int] = []
    for tree in sorted(trees, key=lambda tree: (-len(tree), tree.texts[0].index)):
        place = next((number for number, left in enumerate(room) if len(tree) <= left), None)
        if place is None:
            rows.append([tree])
            room.append(length - len(tree))
        else:
            rows[place].append(tree)
            room[place] -= len(tree)
    return sorted((tuple(row) for row in rows), key=row_length, reverse=True)


def grow_trees(texts: Iterable[Text], *, longest: int) -> list[Tree]:
    """Gather the texts of each prompt into trees of at most `longest` tokens."""
    trees: list[list[Text]] = []
    prompt, length = -1, 0
    for text in sorted(texts, key=lambda text: text.prompt):
        longer = length + len(text) - text.encoded.prefix_len
        if text.prompt == prompt and longer <= longest:
            trees[-1].append(text)
            length = longer
        else:
            trees.append([text])
            prompt, length = text.prompt, len(text)
    return [Tree(tuple(tree)) for tree in trees]


def plain_rewards(model: RewardModel, texts: Sequence[Text]) -> tuple[list[int], torch.Tensor]:
    """Score texts padded on the right; return their indices in the chunk, and the rewards on the device."""
    import torch

    longest = max(len(text) for text in texts)
    ids = np.zeros((len(texts), longest), dtype=np.int64)
    mask = np.zeros_like(ids)
    for row, text in enumerate(texts):
        ids[row, : len(text)] = text.encoded.input_ids
        mask[row, : len(text)] = 1
    # The id of the padding does not matter: the mask hides it, and the pooled positions are known.
    pooled = np.array([row * longest + text.pooled for row, text in enumerate(texts)], dtype=np.int64)
    input_ids, attention_mask = devices.upload([ids, mask], model.device)
    if "dynamic" in _sharing.rotary_kinds(_sharing.running_config(model)):
        _forget_lengths(model.backbone)
    with torch.inference_mode(), devices.kernels(model.device):
        if model.kind != "causal":
            rewards = model.score(input_ids, attention_mask)
        else:
            outputs = model.backbone(input_ids=input_ids, attention_mask=attention_mask, use_cache=False)
            states = outputs.last_hidden_state.flatten(0, 1)
            (at,) = devices.upload([pooled], states.device)
            rewards = model.head(states.index_select(0, at).float())
    return [text.index for text in texts], rewards.float()


def _forget_lengths(backbone: Any) -> None:
    """Reset dynamic rotary embeddings, which remember the longest text so far."""
    rotary = getattr(backbone, "rotary_emb", None)
    if rotary is not None:
        rotary.inv_freq = rotary.original_inv_freq.to(rotary.inv_freq.device)
        rotary.max_seq_len_cached = rotary.original_max_seq_len


def shared_rewards(
    model: RewardModel, rows: Sequence[Row], sharing: Sharing
) -> tuple[tuple[int, ...], torch.Tensor]:
    """Score the texts of packed `rows`; return their indices in the chunk, and the rewards on the device."""
    import torch

    packed = _sharing.pack(rows)
    with torch.inference_mode(), devices.kernels(model.device):
        rewards = model.head(_sharing.packed_states(model, packed, sharing).float())
    return packed.order, rewards.float()


def _collected(parts: Sequence[torch.Tensor]) -> FloatArray:
    import torch

    rewards: FloatArray = torch.cat(list(parts)).cpu().numpy()
    return rewards


def _own_code(model: RewardModel) -> list[str]:
    """Return the classes that came with the checkpoint: other code with the same files is another model."""
    kinds = {type(part) for part in (*model.backbone.modules(), model.tokenizer, model.config)}
    return sorted(kind.__name__ for kind in kinds if kind.__module__.startswith("transformers_modules"))


def rounding(dtype: torch.dtype, rewards: FloatArray) -> float:
    """Return the largest difference of rewards by rounding: some epsilons times their range (at least 1).

    >>> import torch
    >>> rounding(torch.bfloat16, np.array([-1.0, 3.0]))
    0.125
    """
    import torch

    factor = _EPSILONS.get(str(dtype).removeprefix("torch."), 4.0)
    scale = max(1.0, float(np.ptp(rewards))) if len(rewards) else 1.0
    return factor * float(torch.finfo(dtype).eps) * scale


def scored_items(
    items: Sequence[Item], encoded: Sequence[tuple[Encoded, ...]], rewards: Sequence[float]
) -> list[ScoredItem]:
    """Return the prompts with their rewards, which are given prompt after prompt."""
    scored, start = [], 0
    for item, texts in zip(items, encoded, strict=True):
        of_item = tuple(rewards[start : start + len(texts)])
        start += len(texts)
        lengths, truncated = [len(text) for text in texts], [text.truncated for text in texts]
        scored.append(ScoredItem(item.id, of_item, tuple(lengths), tuple(truncated)))
    return scored
