"""Mixtral, Qwen3-MoE and DeepSeek-V3 of transformers in tiny, with random weights that are the same on every rank."""

import torch
import transformers

COMMON = {
    "vocab_size": 256,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "use_cache": True,
}

TINY_MODELS = {
    "mixtral": (
        transformers.MixtralConfig,
        {"intermediate_size": 128, "num_local_experts": 8, "num_experts_per_tok": 2},
    ),
    # Experts that do not divide by the ranks.
    "qwen3_moe": (
        transformers.Qwen3MoeConfig,
        {
            "intermediate_size": 128,
            "moe_intermediate_size": 32,
            "num_experts": 18,
            "num_experts_per_tok": 4,
            "decoder_sparse_step": 1,
            "head_dim": 16,
            "norm_topk_prob": True,
        },
    ),
    # Groups of experts, a shared one, a dense first layer, and weights that add up to 2.5.
    "deepseek_v3": (
        transformers.DeepseekV3Config,
        {
            "intermediate_size": 128,
            "moe_intermediate_size": 32,
            "n_routed_experts": 16,
            "n_shared_experts": 1,
            "num_experts_per_tok": 4,
            "n_group": 4,
            "topk_group": 2,
            "first_k_dense_replace": 1,
            "num_hidden_layers": 3,
            "num_key_value_heads": 4,
            "routed_scaling_factor": 2.5,
            "q_lora_rank": 32,
            "kv_lora_rank": 16,
            "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 16,
            "v_head_dim": 16,
        },
    ),
}


def make_model(name, config_type=None, **fields):
    """One of TINY_MODELS, or of another configuration."""
    if config_type is None:
        config_type, known = TINY_MODELS[name]
        fields = {**known, **fields}
    config = config_type(**{**COMMON, **fields})
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(config)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:  # so large that experts show in the logits
                parameter.normal_(0, parameter.shape[-1] ** -0.5, generator=generator)
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.normal_(0, 0.1, generator=generator)
    return model.train()
