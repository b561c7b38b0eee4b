"""Writes tests/golden/hybrid-transformers.jsonl: what `transformers` makes of the tiny models with recurrent layers.

  cargo run -p testkit --example tiny -- DIR
  hybrid_transformers.py DIR > hybrid-transformers.jsonl       (needs torch, transformers and gguf)

The files' tensors are turned back into what `transformers` has: what converters bake in is taken out again.
"""

import json
import pathlib
import sys

import gguf
import torch
from transformers import Qwen3NextConfig, Qwen3NextForCausalLM
from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5TextConfig
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5ForCausalLM
from transformers.models.qwen3_5_moe.configuration_qwen3_5_moe import Qwen3_5MoeTextConfig
from transformers.models.qwen3_5_moe.modeling_qwen3_5_moe import Qwen3_5MoeForCausalLM

TOKENS = 70
KINDS = {
    "qwen35": (Qwen3_5TextConfig, Qwen3_5ForCausalLM),
    "qwen35moe": (Qwen3_5MoeTextConfig, Qwen3_5MoeForCausalLM),
    "qwen3next": (Qwen3NextConfig, Qwen3NextForCausalLM),
}


def read(path):
    reader = gguf.GGUFReader(path)
    keys = {key: field.contents() for key, field in reader.fields.items()}
    arch = keys["general.architecture"]
    tensors = {t.name: torch.tensor(t.data.copy()).float().reshape(list(t.shape)[::-1]) for t in reader.tensors}
    for name in [name for name in tensors if name.endswith(".scale")]:
        scale, weight = tensors.pop(name), name.removesuffix("scale") + "weight"
        tensors[weight] = tensors[weight] * scale.reshape([-1] + [1] * (tensors[weight].dim() - 1))
    return arch, lambda key: keys.get(f"{arch}.{key}"), tensors


def config_of(arch, key, tensors):
    settings = dict(
        vocab_size=tensors["token_embd.weight"].shape[0],
        hidden_size=key("embedding_length"),
        intermediate_size=key("feed_forward_length"),
        num_hidden_layers=key("block_count"),
        num_attention_heads=key("attention.head_count"),
        num_key_value_heads=key("attention.head_count_kv"),
        head_dim=key("attention.key_length"),
        rms_norm_eps=key("attention.layer_norm_rms_epsilon"),
        rope_parameters=dict(
            rope_type="default",
            rope_theta=key("rope.freq_base"),
            partial_rotary_factor=key("rope.dimension_count") / key("attention.key_length"),
        ),
        linear_num_key_heads=key("ssm.group_count"),
        linear_num_value_heads=key("ssm.time_step_rank"),
        linear_key_head_dim=key("ssm.state_size"),
        linear_value_head_dim=key("ssm.state_size"),
        linear_conv_kernel_dim=key("ssm.conv_kernel"),
    )
    if key("expert_count"):
        settings |= dict(
            num_experts=key("expert_count"),
            num_experts_per_tok=key("expert_used_count"),
            moe_intermediate_size=key("expert_feed_forward_length"),
            shared_expert_intermediate_size=key("expert_shared_feed_forward_length"),
            norm_topk_prob=True,
        )
    return KINDS[arch][0](**settings)


def delta_net(arch, key, take, name, state):
    heads, size, keys = key("ssm.time_step_rank"), key("ssm.state_size"), key("ssm.group_count")
    group = heads // keys
    # Value heads of one key head stand together here; files of the 3.5 family have them apart by the number of key heads.
    order = [r * keys + k for k in range(keys) for r in range(group)] if arch != "qwen3next" else list(range(heads))
    rows = torch.tensor([j * size + i for j in order for i in range(size)])
    qkv, z = take("attn_qkv.weight"), take("attn_gate.weight")[rows]
    values = torch.cat([torch.arange(2 * keys * size), 2 * keys * size + rows])
    qkv = qkv[values]
    state[name + "conv1d.weight"] = take("ssm_conv1d.weight")[values].unsqueeze(1)
    state[name + "dt_bias"] = take("ssm_dt.bias")[order]
    state[name + "A_log"] = torch.log(-take("ssm_a")[order])
    state[name + "norm.weight"] = take("ssm_norm.weight")
    state[name + "out_proj.weight"] = take("ssm_out.weight")[:, rows]
    if arch != "qwen3next":
        state[name + "in_proj_qkv.weight"], state[name + "in_proj_z.weight"] = qkv, z
        state[name + "in_proj_b.weight"] = take("ssm_beta.weight")[order]
        state[name + "in_proj_a.weight"] = take("ssm_alpha.weight")[order]
        return
    q, k, v = qkv.split([keys * size, keys * size, heads * size])
    parts = [part.reshape(keys, -1, part.shape[-1]) for part in (q, k, v, z)]
    state[name + "in_proj_qkvz.weight"] = torch.cat(parts, 1).reshape(-1, q.shape[-1])
    state[name + "in_proj_ba.weight"] = take("ssm_ba.weight")


def feed_forward(key, take, has, name, state):
    if not key("expert_count"):
        for part in ("gate", "up", "down"):
            state[f"{name}{part}_proj.weight"] = take(f"ffn_{part}.weight")
        return
    state[name + "gate.weight"] = take("ffn_gate_inp.weight")
    fused = has("ffn_gate_up_exps.weight")
    gate_up = ("ffn_gate_up_exps.weight",) if fused else ("ffn_gate_exps.weight", "ffn_up_exps.weight")
    state[name + "experts.gate_up_proj"] = torch.cat([take(part) for part in gate_up], 1)
    state[name + "experts.down_proj"] = take("ffn_down_exps.weight")
    for part in ("gate", "up", "down"):
        state[f"{name}shared_expert.{part}_proj.weight"] = take(f"ffn_{part}_shexp.weight")
    state[name + "shared_expert_gate.weight"] = take("ffn_gate_inp_shexp.weight").unsqueeze(0)


def state_of(arch, key, tensors):
    state = {
        "model.embed_tokens.weight": tensors["token_embd.weight"],
        "model.norm.weight": tensors["output_norm.weight"] - 1,
        "lm_head.weight": tensors["output.weight"],
    }
    for i in range(key("block_count")):
        take, name = lambda part: tensors[f"blk.{i}.{part}"], f"model.layers.{i}."
        has = lambda part: f"blk.{i}.{part}" in tensors
        state[name + "input_layernorm.weight"] = take("attn_norm.weight") - 1
        state[name + "post_attention_layernorm.weight"] = take("post_attention_norm.weight") - 1
        if has("attn_q.weight"):
            for part, file in (("q", "q"), ("k", "k"), ("v", "v"), ("o", "output")):
                state[f"{name}self_attn.{part}_proj.weight"] = take(f"attn_{file}.weight")
            for part in ("q", "k"):
                state[f"{name}self_attn.{part}_norm.weight"] = take(f"attn_{part}_norm.weight") - 1
        else:
            delta_net(arch, key, take, name + "linear_attn.", state)
        feed_forward(key, take, has, name + "mlp.", state)
    return state


for path in sorted(pathlib.Path(sys.argv[1]).glob("hybrid-*.gguf")):
    arch, key, tensors = read(path)
    model = KINDS[arch][1](config_of(arch, key, tensors)).float().eval()
    model.load_state_dict(state_of(arch, key, tensors), strict=True)
    vocab = model.config.vocab_size
    ids = torch.tensor([[(i * 37 + 11) % vocab for i in range(TOKENS)]])
    with torch.no_grad():
        logits = model(ids, use_cache=False).logits[0]
    kept = {str(row): [float(f"{x:.6g}") for x in logits[row].tolist()] for row in (0, TOKENS - 1)}
    line = {"model": path.stem.removeprefix("hybrid-"), "picks": logits.argmax(1).tolist(), "logits": kept}
    print(json.dumps(line, separators=(",", ":")))
