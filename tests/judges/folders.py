"""Model folders with their own heads, adapters and code, and their rewards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rmcalib.judges import RewardModel
from tests.hub import tiny

IDS = torch.tensor([[3, 20, 30, 40, 6, 4, 50, 60, 6], [3, 21, 31, 41, 6, 4, 51, 61, 70]])
OWN_CODE = """
import torch
from transformers import LlamaModel, LlamaPreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

class OwnRewardModel(LlamaPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.model = LlamaModel(config)
        self.gate = torch.nn.Linear(config.hidden_size, 1, bias=False)
        self.post_init()

    def forward(self, input_ids=None, attention_mask=None, **kwargs):
        states = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        last = attention_mask.sum(-1) - 1
        return SequenceClassifierOutput(logits=10 * self.gate(states[torch.arange(len(states)), last]))
"""


def rewards(model: RewardModel, ids: torch.Tensor = IDS) -> torch.Tensor:
    """Return the rewards of texts without padding, from the last token."""
    mask = torch.ones_like(ids)
    with torch.no_grad():
        if model.kind != "causal":
            return model.score(ids, mask)
        states = model.backbone(input_ids=ids, attention_mask=mask).last_hidden_state
        return torch.as_tensor(model.head(states[:, -1]))


def copied(folder: Path, target: Path, **config: Any) -> Path:
    """Copy a model, with changes to its config.json (None removes a field)."""
    target.mkdir()
    for path in folder.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    values = json.loads((folder / "config.json").read_text()) | config
    (target / "config.json").write_text(json.dumps({k: v for k, v in values.items() if v is not None}))
    return target


class CustomHead(nn.Module):
    """A transformer with a head of any name, saved as such models are."""

    def __init__(self, layers: list[nn.Linear], backbone: Any = None) -> None:
        super().__init__()
        self.backbone = backbone or tiny.tiny_classifier().base_model
        parts: list[nn.Module] = []
        for layer in layers:
            parts += [nn.ReLU(), layer] if parts else [layer]
        self.layers = nn.Sequential(*parts)

    def save(self, folder: Path, prefix: str, *, backbone: str = "model", **config: Any) -> Path:
        from safetensors.torch import save_file

        tensors = {f"{backbone}.{k}": v for k, v in self.backbone.state_dict().items()}
        single = len(self.layers) == 1
        state = self.layers[0].state_dict() if single else self.layers.state_dict()
        tensors |= {f"{prefix}.{k}": v for k, v in state.items()}
        tiny.tiny_tokenizer().save_pretrained(folder)
        values = self.backbone.config.to_dict() | {"architectures": ["Custom"]} | config
        (folder / "config.json").write_text(json.dumps(values))
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return folder

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        states = self.backbone(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
        return torch.as_tensor(self.layers(states[:, -1])[:, 0])


def adapter_of(base: Path, folder: Path, *, with_head: bool = True) -> tuple[Path, torch.Tensor]:
    """Save a LoRA adapter with random matrices; return its folder and its rewards."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForSequenceClassification

    model = AutoModelForSequenceClassification.from_pretrained(base, num_labels=1)
    config = LoraConfig(
        task_type="SEQ_CLS" if with_head else None,
        r=4,
        target_modules=["q_proj", "v_proj"],
        modules_to_save=["score"] if with_head else None,
    )
    wrapped = get_peft_model(model, config)
    torch.manual_seed(7)
    for name, parameter in wrapped.named_parameters():
        if "lora_" in name or "modules_to_save" in name:
            nn.init.normal_(parameter, std=0.3)
    wrapped.eval().save_pretrained(str(folder))
    with torch.no_grad():
        logits = wrapped(input_ids=IDS, attention_mask=torch.ones_like(IDS)).logits[:, 0]
    return folder, torch.as_tensor(logits)
