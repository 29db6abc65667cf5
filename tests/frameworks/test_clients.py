"""The clients of OpenRLHF, LLaMA-Factory and verl themselves take rewards from us: `make test-frameworks`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rmcalib import Calibrator, Reward
from rmcalib.live.policy import PolicyTexts, Texts
from rmcalib.live.server import Limits
from tests.hooks import PATIENCE
from tests.hub.tiny import save_model, tiny_tokenizer
from tests.live_rewards.serving import Length, serving_rewards

PYTHON = os.environ.get("FRAMEWORKS_PYTHON")
pytestmark = pytest.mark.skipif(not PYTHON, reason="FRAMEWORKS_PYTHON is not set (make test-frameworks)")
ROOT = Path(__file__).parents[2]
RESPONSES = ["x" * n for n in range(1, 21)]
CALIBRATOR = Calibrator(2.0, 1.8, 2.2, threshold=3.0, reference=(0.0, 3.0, 30.0))


def client(name: str, tmp_path: Path, env: dict[str, str] | None = None, **task: Any) -> Any:
    """Run a client in the frameworks' environment, and return what it got."""
    paths = [str(ROOT), *(path for path in sys.path if path.endswith("site-packages"))]
    places = {name: str(tmp_path) for name in ("HOME", "TMPDIR", "RAY_TMPDIR")}
    done = subprocess.run(
        [str(PYTHON), str(ROOT / "tests/frameworks/clients.py")],
        input=json.dumps({"client": name, "paths": paths, **task}),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={
            "PATH": os.environ["PATH"],
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
            **places,
            **(env or {}),
        },
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def conversations() -> list[tuple[list[dict[str, str]], str]]:
    return [([{"role": "user", "content": f"Why {n % 4}?"}], text) for n, text in enumerate(RESPONSES)]


def pairs(policy: PolicyTexts) -> list[tuple[str, str]]:
    """The texts that OpenRLHF sends: with the policy's template in them."""
    prompts = [policy.render(messages, header=True) for messages, _ in conversations()]
    return [(f"{prompt}{text}<|end|>", prompt) for prompt, text in zip(prompts, RESPONSES, strict=True)]


def test_openrlhf_asks_the_server(tmp_path: Path) -> None:
    policy = PolicyTexts(tiny_tokenizer())
    with serving_rewards(
        Reward(Length(), calibrator=CALIBRATOR, output="logit"), texts=Texts(policy)
    ) as running:
        answers = client("openrlhf", tmp_path, url=f"{running.url}/get_reward", pairs=pairs(policy))
    assert [answer["rewards"] for answer in answers] == [[(len(text) - 3) / 2] for text in RESPONSES]
    assert all(0 < answer["scores"][0] < 1 for answer in answers)
    assert answers[0]["extra_logs"]["raw"] == [1.0]


def test_openrlhf_waits_while_the_model_is_away(tmp_path: Path) -> None:
    import threading

    policy, judge = PolicyTexts(tiny_tokenizer()), Length()
    reward = Reward(judge, output="raw")
    with serving_rewards(reward, texts=Texts(policy), limits=Limits(hold=60)) as running:
        judge.away = True
        threading.Timer(
            12.0, lambda: setattr(judge, "away", False)
        ).start()  # five quick refusals would be None
        answers = client("openrlhf", tmp_path, url=running.url, pairs=pairs(policy)[:4])
    assert [answer["rewards"] for answer in answers] == [[1.0], [2.0], [3.0], [4.0]]


def test_openrlhf_calls_the_function(tmp_path: Path) -> None:
    tiny_tokenizer().save_pretrained(tmp_path / "policy")
    file = tmp_path / "reward.py"
    file.write_text(
        "from rmcalib import Reward\n"
        "def length(prompt, responses):\n    return [len(text) for text in responses]\n"
        f"reward_func = Reward(length, output='raw').openrlhf(policy={str(tmp_path / 'policy')!r})\n"
    )
    (tmp_path / "policy" / "config.json").write_text("{}")
    answers = client(
        "openrlhf_function", tmp_path, file=str(file), pairs=pairs(PolicyTexts(tiny_tokenizer()))
    )
    assert [answer["rewards"] for answer in answers] == [[float(len(text))] for text in RESPONSES]


def test_llama_factory_asks_the_server(tmp_path: Path) -> None:
    policy = PolicyTexts(tiny_tokenizer())
    texts = [query for query, _ in pairs(policy)]
    with serving_rewards(Reward(Length(), output="raw"), texts=Texts(policy)) as running:
        rewards = client("llama_factory", tmp_path, url=running.url, texts=texts)
    assert rewards == [float(len(text)) for text in RESPONSES]


@pytest.mark.parametrize("form", ["verl_manager", "verl_function"])
def test_verl_imports_the_module(form: str, tmp_path: Path) -> None:
    folder = save_model(tmp_path / "rm")
    CALIBRATOR.save(tmp_path / "calibrator.json")
    settings = tmp_path / "reward.yaml"
    settings.write_text("model: rm\ncalibrator: calibrator.json\ndevice: cpu\n")
    found = client(form, tmp_path, {"RMCALIB_REWARD": str(settings)}, conversations=conversations())
    reward = Reward(str(folder), calibrator=CALIBRATOR, device="cpu")
    expected = reward([list(prompt) for prompt, _ in conversations()], RESPONSES)
    assert [one["reward_score"] for one in found] == pytest.approx(expected, abs=1e-5)
    assert found[0]["reward_extra_info"]["probability"] == found[0]["reward_score"]


def test_verl_asks_the_server_as_if_it_were_vllm(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "rm")
    reward = Reward(str(folder), output="raw", device="cpu")
    with serving_rewards(reward) as running:
        found = client("verl_classify", tmp_path, url=running.url, conversations=conversations())
    judge: Any = reward.judges[0]
    texts = [f"[user]{prompt[0]['content']}[assistant]{text}" for prompt, text in conversations()]
    assert [one["reward_score"] for one in found] == pytest.approx(judge.score_texts(texts), abs=1e-5)
