"""Tiny checkpoints with the published names, configuration and files of reward models, and their rewards.

Each function writes the files of one family to a folder, and returns what the model reads and how it computes
a reward: the original's arithmetic in a few lines of torch, from the tensors as they were saved.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from tests.hub import tiny

Tensors = dict[str, Tensor]
PROMPT, RESPONSES = "What is two plus two?", ("It is four.", "Five, or blue.", "")


@dataclass
class Layout:
    """A saved model: its id on the Hub, the text that it reads, the reward of token ids, settings to load it."""

    model: str
    folder: Path
    text: Callable[[str, str], str]
    reward: Callable[[Tensor], Tensor]
    options: dict[str, Any] = field(default_factory=dict)
    needs: dict[str, Path] = field(default_factory=dict)  # other repositories
    tokenizer: Any = field(default_factory=tiny.tiny_tokenizer)

    def expected(self) -> list[float]:
        """Return the rewards of the responses, by the original's arithmetic."""
        texts = [self.text(PROMPT, response) for response in RESPONSES]
        with torch.no_grad():
            return [float(self.reward(torch.tensor(self.tokenizer(text)["input_ids"]))) for text in texts]


def chat(prompt: str, response: str) -> str:
    return f"<|user|>{prompt}<|end|><|assistant|>{response}<|end|>"


def save(folder: Path, tensors: Tensors, config: dict[str, Any], *, tokenizer: Any = None) -> Path:
    """Save a checkpoint; the tokenizer has a chat template unless another one is given."""
    (tokenizer or tiny.tiny_tokenizer()).save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(config))
    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(contiguous, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def silent() -> Any:
    return tiny.tiny_tokenizer(chat_template=None)


def backbone_of(family: str, **changes: Any) -> Any:
    return tiny.tiny_classifier(family, **changes).base_model


def parts(backbone: Any, prefix: str = "model") -> Tensors:
    return {f"{prefix}.{name}" if prefix else name: value for name, value in backbone.state_dict().items()}


def config_of(backbone: Any, **changes: Any) -> dict[str, Any]:
    values = {**backbone.config.to_dict(), **changes}
    return {name: value for name, value in values.items() if value is not None}


def last_state(backbone: Any, ids: Tensor) -> Tensor:
    return torch.as_tensor(backbone(input_ids=ids[None]).last_hidden_state[0, -1])


def layers(*widths: int, bias: bool = True, seed: int = 1) -> list[nn.Linear]:
    torch.manual_seed(seed)
    return [nn.Linear(a, b, bias=bias) for a, b in pairwise(widths)]


def sequential(prefix: str, linear: list[nn.Linear], step: int = 2) -> Tensors:
    """Name layers as `nn.Sequential` does, with `step` - 1 modules without tensors between them."""
    return {
        f"{prefix}.{step * i}.{name}": value
        for i, layer in enumerate(linear)
        for name, value in layer.state_dict().items()
    }


def single(prefix: str, layer: nn.Linear) -> Tensors:
    return {f"{prefix}.{name}": value for name, value in layer.state_dict().items()}


# Stock transformers with other heads


def two_layers(folder: Path, model: str, family: str, **config: Any) -> Layout:
    backbone, (first, second) = backbone_of(family), layers(32, 32, 1)
    tensors = parts(backbone) | sequential("score", [first, second])
    save(folder, tensors, config_of(backbone, **config))
    return Layout(model, folder, chat, lambda ids: second(first(last_state(backbone, ids)).relu())[0])


def inf_orm(folder: Path) -> Layout:
    classes = {"architectures": ["INFORMForSequenceClassification"]}
    return two_layers(folder, "infly/INF-ORM-Llama3.1-70B", "llama", **classes)


def world_pm(folder: Path) -> Layout:
    code = {"AutoModel": "modeling_qwen2_rm.Qwen2ForRewardModel"}
    config = {"architectures": ["Qwen2ForRewardModel"], "auto_map": code}
    return two_layers(folder, "Qwen/WorldPM-72B", "qwen2", **config)


def grm(folder: Path) -> Layout:
    backbone, (first, second) = backbone_of("llama"), layers(32, 16, 1)
    config = config_of(backbone, vhead_layer_type="mlp", vhead_num_neurons=16, vhead_num_layers=1)
    save(folder, parts(backbone) | sequential("v_head.summary", [first, second]), config)
    return Layout(
        "Ray2333/GRM-llama3-8B-sftreg",
        folder,
        chat,
        lambda ids: second(first(last_state(backbone, ids)).relu())[0],
    )


def ultra_rm(folder: Path) -> Layout:
    backbone, (head,) = backbone_of("llama"), layers(32, 1, bias=False)
    config = config_of(backbone, architectures=["LlamaRewardModel"])
    save(folder, parts(backbone) | single("regression_head", head), config, tokenizer=silent())
    return Layout(
        "openbmb/UltraRM-13b",
        folder,
        lambda prompt, response: f"User: {prompt}\n\nAssistant: {response}\n\n",
        lambda ids: head(last_state(backbone, ids))[0],
    )


def eurus(folder: Path) -> Layout:
    backbone, (head,) = backbone_of("mistral"), layers(32, 1, bias=False)
    code = {"AutoModel": "modeling_eurus_rm.EurusRewardModel"}
    config = config_of(backbone, architectures=["EurusRewardModel"], auto_map=code)
    save(folder, parts(backbone) | single("regression_head", head), config, tokenizer=silent())
    return Layout(
        "openbmb/Eurus-RM-7b",
        folder,
        lambda prompt, response: f"[INST] {prompt} [/INST] {response}</s>",
        lambda ids: head(last_state(backbone, ids))[0],
    )


def starling(folder: Path) -> Layout:
    backbone, (head,) = backbone_of("llama"), layers(32, 1, bias=False)
    tensors = parts(backbone, "transformer") | single("v_head", head)
    save(folder, tensors, config_of(backbone, architectures=["LlamaForSequenceClassification"]))
    for path in folder.glob("token*"):
        path.unlink()
    other = folder.parent / f"{folder.name}-tokenizer"
    silent().save_pretrained(other)
    return Layout(
        "Nexusflow/Starling-RM-34B",
        folder,
        lambda prompt, response: (
            f"<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n{response}<|im_end|>\n"
        ),
        lambda ids: head(last_state(backbone, ids))[0],
        needs={"01-ai/Yi-34B-Chat": other},
    )


def beaver(folder: Path, kind: str) -> Layout:
    backbone, (head,) = backbone_of("llama"), layers(32, 1)
    normal = {"do_normalize": True, "mean": [0.7], "var": [4.0]}
    config = config_of(backbone, architectures=["LlamaModelForScore"], score_type=kind, **normal)
    save(folder, parts(backbone) | single("score_head", head), config, tokenizer=silent())

    def reward(ids: Tensor) -> Tensor:
        score = head(last_state(backbone, ids))[0]  # Safe-RLHF shifts rewards only, and scales both
        return (score - 0.7) / 2.0 if kind == "reward" else -score / 2.0

    return Layout(
        f"PKU-Alignment/beaver-7b-v1.0-{kind}",
        folder,
        lambda prompt, response: f"BEGINNING OF CONVERSATION: USER: {prompt} ASSISTANT: {response} ",
        reward,
    )


def beaver_reward(folder: Path) -> Layout:
    return beaver(folder, "reward")


def beaver_cost(folder: Path) -> Layout:
    return beaver(folder, "cost")


def oasst(folder: Path) -> Layout:
    """Pickled weights, and a model type that transformers does not know."""
    backbone, (head,) = backbone_of("gpt_neox"), layers(32, 1)
    more = {"model_type": "gpt_neox_reward_model", "architectures": ["GPTNeoXRewardModel"], "pooling": "last"}
    save(folder, {}, config_of(backbone, **more), tokenizer=silent())
    (folder / "model.safetensors").unlink()
    torch.save(parts(backbone, "gpt_neox") | single("out_proj", head), folder / "pytorch_model.bin")
    return Layout(
        "OpenAssistant/oasst-rm-2.1-pythia-1.4b-epoch-2.5",
        folder,
        lambda prompt, response: f"<|prompter|>{prompt}<|endoftext|><|assistant|>{response}<|endoftext|>",
        lambda ids: head(last_state(backbone, ids))[0],
        {"allow_pickle": True},
    )


def deberta(folder: Path) -> Layout:
    stock = tiny.tiny_classifier("deberta-v2")
    tiny.save_model(folder, stock, chat_template=None)
    return Layout(
        "OpenAssistant/reward-model-deberta-v3-large-v2",
        folder,
        lambda prompt, response: f"{prompt}{response}",
        lambda ids: stock(input_ids=ids[None], attention_mask=torch.ones_like(ids)[None]).logits[0, 0],
    )


def skywork_vl(folder: Path) -> Layout:
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    rope = {"rope_type": "default", "mrope_section": [1, 1, 2]}
    text = tiny.tiny_config("qwen2").to_dict() | {"rope_parameters": rope, "rope_scaling": rope}
    text.pop("model_type")
    vision = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 32}
    torch.manual_seed(0)
    config: Any = Qwen2_5_VLConfig(text_config=text, vision_config=vision)
    whole: Any = Qwen2_5_VLForConditionalGeneration(config).eval()
    tiny.save_model(folder, whole)
    (head,) = layers(32, 1)
    save_file(single("v_head.summary", head), folder / "value_head.safetensors")
    return Layout(
        "Skywork/Skywork-VL-Reward-7B", folder, chat, lambda ids: head(last_state(whole.model, ids))[0]
    )


def ldl(folder: Path) -> Layout:
    """The transformer without a prefix, and two pickle files: labels (LeakyReLU) and gate (with dropout)."""
    backbone = backbone_of("gemma2")
    backbone.set_attn_implementation("eager")  # others leave out Gemma's soft capping in some releases
    labels, gate = layers(32, 16, 16, 30, seed=2), layers(32, 16, 16, 3, seed=3)
    save(folder, parts(backbone, ""), config_of(backbone, architectures=["Gemma2Model"], num_objectives=30))
    torch.save(sequential("network", labels), folder / "regression_layer.pt")
    torch.save(sequential("network", gate, step=3), folder / "gating_layer.pt")

    def network(linear: list[nn.Linear], x: Tensor) -> Tensor:
        for layer in linear[:-1]:
            x = layer(x)
            x = torch.where(x > 0, x, 0.01 * x)
        return torch.as_tensor(linear[-1](x))

    def reward(ids: Tensor) -> Tensor:
        state = last_state(backbone, ids)
        distributions = network(labels, state).view(3, 10).softmax(-1)
        mixture = network(gate, state) @ distributions
        return (mixture * torch.linspace(0, 1, 10)).sum()

    return Layout("ShikaiChen/LDL-Reward-Gemma-2-27B-v0.1", folder, chat, reward, {"allow_pickle": True})


# InternLM2


def internlm2_tensors(heads: int = 4, key_heads: int = 2, width: int = 32, vocabulary: int = 320) -> Tensors:
    torch.manual_seed(4)
    head = width // heads
    tensors = {"model.tok_embeddings.weight": torch.randn(vocabulary, width)}
    for i in range(2):
        shapes = {
            "attention.wqkv": ((heads + 2 * key_heads) * head, width),
            "attention.wo": (width, width),
            "feed_forward.w1": (48, width),
            "feed_forward.w2": (width, 48),
            "feed_forward.w3": (48, width),
        }
        layer = f"model.layers.{i}"
        tensors |= {f"{layer}.{name}.weight": 0.3 * torch.randn(shape) for name, shape in shapes.items()}
        for norm in ("attention_norm", "ffn_norm"):
            tensors[f"{layer}.{norm}.weight"] = 1 + 0.1 * torch.randn(width)
    tensors["model.norm.weight"] = 1 + 0.1 * torch.randn(width)
    tensors["v_head.weight"] = torch.randn(1, width)
    return tensors


def internlm2_reward(tensors: Tensors, ids: Tensor, heads: int = 4, key_heads: int = 2) -> Tensor:
    """The original's forward pass, for one text: packed projections, rotary embeddings, grouped attention."""

    def norm(x: Tensor, name: str) -> Tensor:
        return x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * tensors[f"{name}.weight"]

    def linear(x: Tensor, name: str) -> Tensor:
        return x @ tensors[f"{name}.weight"].T

    def rotated(x: Tensor) -> Tensor:  # (tokens, heads, size)
        size = x.shape[-1]
        angles = torch.arange(len(x))[:, None] / 1e6 ** (torch.arange(0, size, 2) / size)
        cos, sin = angles.cos().repeat(1, 2)[:, None], angles.sin().repeat(1, 2)[:, None]
        return x * cos + torch.cat([-x[..., size // 2 :], x[..., : size // 2]], -1) * sin

    x = tensors["model.tok_embeddings.weight"][ids]
    future = torch.ones(len(ids), len(ids)).triu(1).bool()
    for i in range(2):
        layer, group = f"model.layers.{i}", heads // key_heads
        qkv = linear(norm(x, f"{layer}.attention_norm"), f"{layer}.attention.wqkv")
        qkv = qkv.view(len(ids), key_heads, group + 2, -1)
        query = rotated(qkv[:, :, :group].flatten(1, 2))
        key = rotated(qkv[:, :, -2]).repeat_interleave(group, 1)
        value = qkv[:, :, -1].repeat_interleave(group, 1)
        scores = torch.einsum("ihd,jhd->hij", query, key) / query.shape[-1] ** 0.5
        attended = torch.einsum("hij,jhd->ihd", scores.masked_fill(future, -torch.inf).softmax(-1), value)
        x = x + linear(attended.flatten(1), f"{layer}.attention.wo")
        y = norm(x, f"{layer}.ffn_norm")
        gated = nn.functional.silu(linear(y, f"{layer}.feed_forward.w1")) * linear(
            y, f"{layer}.feed_forward.w3"
        )
        x = x + linear(gated, f"{layer}.feed_forward.w2")
    return linear(norm(x, "model.norm")[-1], "v_head")[0]


def internlm2_config(reward_token: int) -> dict[str, Any]:
    code = "modeling_internlm2.InternLM2ForRewardModel"
    return {
        "architectures": ["InternLM2ForRewardModel"],
        "attn_implementation": "eager",
        "auto_map": {"AutoConfig": "configuration_internlm2.InternLM2Config", "AutoModel": code},
        "bias": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "hidden_act": "silu",
        "hidden_size": 32,
        "initializer_range": 0.02,
        "intermediate_size": 48,
        "max_position_embeddings": 512,
        "model_type": "internlm2",
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "pad_token_id": 2,
        "reward_token_id": reward_token,
        "rms_norm_eps": 1e-05,
        "rope_scaling": {"type": "dynamic", "factor": 2.0},
        "rope_theta": 1000000,
        "torch_dtype": "float32",
        "use_cache": True,
        "vocab_size": 320,
    }


OWN_TOKENIZER = {
    "auto_map": {
        "AutoTokenizer": [
            "tokenization_internlm2.InternLM2Tokenizer",
            "tokenization_internlm2_fast.InternLM2TokenizerFast",
        ]
    },
    "tokenizer_class": "InternLM2Tokenizer",
}


def internlm2(folder: Path, *, template_ends: bool = True) -> Layout:
    """A template that ends with the reward token, or one that does not; the text ends with one in any case."""
    tokenizer = tiny.tiny_tokenizer(
        chat_template=tiny.CHAT_TEMPLATE + ("<|reward|>" if template_ends else "")
    )
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|reward|>"]})
    tensors = internlm2_tensors()
    save(folder, tensors, internlm2_config(len(tokenizer) - 1), tokenizer=tokenizer)
    settings = folder / "tokenizer_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | OWN_TOKENIZER))
    return Layout(
        "internlm/internlm2-1_8b-reward",
        folder,
        lambda prompt, response: chat(prompt, response) + "<|reward|>",
        lambda ids: internlm2_reward(tensors, ids),
        tokenizer=tokenizer,
    )


def internlm2_silent(folder: Path) -> Layout:
    return internlm2(folder, template_ends=False)


def sentencepiece_model(vocabulary: int = 310, *, dummy_prefix: bool = True, **more: Any) -> bytes:
    """Train a byte-pair model with byte fallback, as Llama's and InternLM2's are."""
    from sentencepiece import SentencePieceTrainer

    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(tiny.TEXTS * 5),
        model_writer=model,
        vocab_size=vocabulary,
        model_type="bpe",
        byte_fallback=True,
        hard_vocab_limit=False,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=dummy_prefix,
        minloglevel=2,
        **more,
    )
    return model.getvalue()


def internlm2_pieces(folder: Path, *, dummy_prefix: bool = True) -> Layout:
    """Only `tokenizer.model`; its unused pieces are the special tokens. The expected ids are sentencepiece's."""
    from sentencepiece import SentencePieceProcessor

    special = ("<|im_start|>", "<|im_end|>", "<|reward|>")
    unused = [f"[UNUSED_TOKEN_{i}]" for i in range(len(special))]
    content = sentencepiece_model(dummy_prefix=dummy_prefix, user_defined_symbols=unused)
    pieces = SentencePieceProcessor(model_proto=content)
    ids = dict(zip(special, (pieces.piece_to_id(each) for each in unused), strict=True))
    tensors = internlm2_tensors()
    save(folder, tensors, internlm2_config(ids["<|reward|>"]))
    for path in folder.glob("token*"):
        path.unlink()
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    (folder / "tokenizer.model").write_bytes(content)
    plain = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    template = (
        "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
        "{% endfor %}<|reward|>"
    )
    settings = {
        "added_tokens_decoder": {str(index): {"content": text, **plain} for text, index in ids.items()},
        "bos_token": "<s>",
        "chat_template": template,
        "eos_token": "</s>",
        "pad_token": "</s>",
        "unk_token": "<unk>",
        **OWN_TOKENIZER,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))

    def tokenised(text: str) -> dict[str, list[int]]:
        """Special tokens by hand, and what is between them by the sentencepiece library."""
        result = [pieces.bos_id()]
        for part in text.split("\0"):
            result += [ids[part]] if part in ids else pieces.encode(part)
        return {"input_ids": result}

    def text(prompt: str, response: str) -> str:
        turns = [("user", prompt), ("assistant", response)]
        marked = [f"\0<|im_start|>\0{role}\n{said}\0<|im_end|>\0\n" for role, said in turns]
        return "".join(marked).removeprefix("\0") + "\0<|reward|>"

    return Layout(
        "internlm/internlm2-7b-reward",
        folder,
        text,
        lambda token_ids: internlm2_reward(tensors, token_ids),
        tokenizer=tokenised,
    )


def internlm2_no_prefix(folder: Path) -> Layout:
    return internlm2_pieces(folder, dummy_prefix=False)


def open_llama(folder: Path) -> Layout:
    """A stock classifier whose tokenizer is only `tokenizer.model`. The expected ids are sentencepiece's."""
    from sentencepiece import SentencePieceProcessor

    stock, content = tiny.tiny_classifier("llama"), sentencepiece_model()
    stock.save_pretrained(folder)
    (folder / "tokenizer.model").write_bytes(content)
    tokens = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "</s>"}
    settings = {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, **tokens}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    pieces = SentencePieceProcessor(model_proto=content)
    return Layout(
        "weqweasdas/hh_rlhf_rm_open_llama_3b",
        folder,
        lambda prompt, response: (
            "A chat between a curious human and an artificial intelligence assistant. The assistant gives "
            "helpful, detailed, and polite answers to the human's questions.\n"
            f"###Human:\n{prompt}\n###Assistant:\n{response}\n"
        ),
        lambda ids: stock(input_ids=ids[None]).logits[0, 0],
        tokenizer=lambda text: {"input_ids": [pieces.bos_id(), *pieces.encode(text)]},
    )


# Models that need their own code. This is written here: it has the published names of classes, tensors and
# outputs as far as they are public, and does not test that the published code runs.

GATED = """
import torch
from torch import nn
from transformers import LlamaModel, LlamaPreTrainedModel
from transformers.utils import ModelOutput
from dataclasses import dataclass


@dataclass
class CustomOutput(ModelOutput):
    rewards: torch.Tensor = None
    gating_output: torch.Tensor = None
    score: torch.Tensor = None
    logits: torch.Tensor = None


class LlamaForRewardModelWithGating(LlamaPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.model = LlamaModel(config)
        self.n, self.quantiles = config.num_objectives, getattr(config, "num_quantiles", 1)
        self.regression_layer = nn.Linear(config.hidden_size, self.n * self.quantiles, bias=False)
        self.reward_transform_matrix = nn.Parameter(torch.eye(self.n), requires_grad=False)
        self.gating = nn.Linear(config.hidden_size, self.n)
        self.post_init()

    def forward(self, input_ids=None, attention_mask=None, **_):
        states = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        rows, last = torch.arange(len(states)), attention_mask.sum(-1) - 1
        rewards = self.regression_layer(states[rows, last]).unflatten(-1, (self.n, self.quantiles)).mean(-1)
        rewards = rewards @ self.reward_transform_matrix
        starts = (input_ids == self.config.gate_token).int().argmax(-1)
        gate = self.gating(states[rows, starts]).softmax(-1)
        score = (gate * rewards).sum(-1)
        return CustomOutput(rewards=rewards, gating_output=gate, score=score, logits=rewards)
"""
ATTRIBUTES = """
import torch
from torch import nn
from transformers import LlamaModel, LlamaPreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutputWithPast


class OwnClassifier(LlamaPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.model = LlamaModel(config)
        self.score = nn.Linear(config.hidden_size, config.num_labels, bias=False)
        self.weights = nn.Linear(config.hidden_size, config.num_labels // 2)
        self.post_init()

    def forward(self, input_ids=None, attention_mask=None, **_):
        states = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        last = states[torch.arange(len(states)), attention_mask.sum(-1) - 1]
        means = self.score(last)[:, : self.config.num_labels // 2]
        reward = (means * self.weights(last).softmax(-1)).sum(-1, keepdim=True)
        return SequenceClassifierOutputWithPast(logits=reward)
"""


def gated(folder: Path, model: str, **config: Any) -> Layout:
    backbone, n = backbone_of("llama"), config["num_objectives"]
    quantiles = config.get("num_quantiles", 1)
    (regression,) = layers(32, n * quantiles, bias=False)
    (gate,) = layers(32, n, seed=5)
    matrix = torch.randn(n, n)
    tensors = parts(backbone) | single("regression_layer", regression) | single("gating", gate)
    tensors |= {"reward_transform_matrix": matrix}
    code = {"AutoModelForSequenceClassification": "modeling_custom.LlamaForRewardModelWithGating"}
    assistant = tiny.SPECIAL.index("<|assistant|>")
    classes = {"architectures": ["LlamaForRewardModelWithGating"], "auto_map": code, "gate_token": assistant}
    save(folder, tensors, config_of(backbone, **classes, **config))
    (folder / "modeling_custom.py").write_text(GATED)

    def reward(ids: Tensor) -> Tensor:
        states = backbone(input_ids=ids[None]).last_hidden_state[0]
        expected = regression(states[-1]).view(n, quantiles).mean(-1) @ matrix
        return (gate(states[int((ids == assistant).nonzero()[0])]).softmax(-1) * expected).sum()

    return Layout(model, folder, chat, reward, {"trust_remote_code": True})


def armo_rm(folder: Path) -> Layout:
    return gated(folder, "RLHFlow/ArmoRM-Llama3-8B-v0.1", num_objectives=19, num_labels=19)


def qrm(folder: Path) -> Layout:
    sizes = {"num_objectives": 5, "num_quantiles": 7, "num_labels": 5}
    return gated(folder, "nicolinho/QRM-Llama3.1-8B-v2", **sizes)


def urm(folder: Path) -> Layout:
    """Ten outputs (means and deviations of five attributes) of a class that makes one reward of them."""
    backbone = backbone_of("llama")
    (score,), (weights,) = layers(32, 10, bias=False), layers(32, 5, seed=6)
    tensors = parts(backbone) | single("score", score) | single("weights", weights)
    code = {"AutoModelForSequenceClassification": "modeling_own.OwnClassifier"}
    labels = {"id2label": {str(i): f"LABEL_{i}" for i in range(10)}, "auto_map": code}
    save(folder, tensors, config_of(backbone, architectures=["OwnClassifier"], num_labels=10, **labels))
    (folder / "modeling_own.py").write_text(ATTRIBUTES)

    def reward(ids: Tensor) -> Tensor:
        state = last_state(backbone, ids)
        return (score(state)[:5] * weights(state).softmax(-1)).sum()

    return Layout("LxzGordon/URM-LLaMa-3.1-8B", folder, chat, reward, {"trust_remote_code": True})


LAYOUTS: dict[str, Callable[[Path], Layout]] = {
    "INF-ORM": inf_orm,
    "WorldPM": world_pm,
    "GRM": grm,
    "UltraRM": ultra_rm,
    "Eurus": eurus,
    "Starling": starling,
    "beaver-reward": beaver_reward,
    "beaver-cost": beaver_cost,
    "oasst": oasst,
    "deberta": deberta,
    "Skywork-VL": skywork_vl,
    "LDL": ldl,
    "internlm2": internlm2,
    "internlm2-silent": internlm2_silent,
    "internlm2-pieces": internlm2_pieces,
    "internlm2-no-prefix": internlm2_no_prefix,
    "open-llama": open_llama,
    "URM": urm,
    "QRM": qrm,
    "ArmoRM": armo_rm,
}
