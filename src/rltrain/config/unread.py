"""Pass-through keys of Megatron and vLLM that nothing reads or that can't work in rltrain, each with the reason.

Keys that are set from others stand in `passthrough.py`; what stands in neither list is handed on.
"""

from __future__ import annotations

from collections.abc import Mapping

ATTENTION = "is of Megatron's own attention, in whose place rltrain's packed one computes"
ROTARY = "is of Megatron's own rotary positions, in whose place rltrain's module turns queries and keys"
HEAD = "is of Megatron's own output layer and loss, in whose place rltrain's log-probs are computed"
MODEL = "belongs to the model's architecture, which its directory decides for the trainer and the engine alike"
LIBRARIES = "needs TransformerEngine or Apex, which rltrain does without"
GRAPHS = "needs micro-batches of one shape, and packed ones differ"
INFERENCE = "is for Megatron's inference, and vLLM generates here"
OTHER_LAYERS = "is of layers that no supported model has"
START = "is of Megatron's own initial weights, and rltrain loads or draws them (actor.model.init)"
CODE = "takes code, and a config has only values"
MEASURED = "is of Megatron's own timers and logs, which rltrain doesn't read"
LOSS_SCALE = "is for float16, and models are float32 or bfloat16 here"
ADAM = "is of another optimizer than AdamW"
GRADIENTS = "changes what gradients are divided by: rltrain divides sums once, by the step's tokens"
SHARDING = "is of Megatron's FSDP, which isn't supported"
GROUPS = "needs process groups that rltrain doesn't make"
LOADING = "is of loading weights from files, and an engine's come from the trainer"
DISTRIBUTION = "changes the distribution or the log-probs of samples, which the trainer must know"
SERVING = "is of vLLM's servers, and engines here are called directly"
MULTIMODAL = "is for images, video and sound, and models here read text"
ADAPTERS = "is for LoRA adapters, which aren't supported"
NODES = "lays an engine out over nodes or copies, which rltrain does (rollout.engines, rollout.tensor_parallel)"


def _by_name(reasons: Mapping[str, str]) -> dict[str, str]:
    """From reasons with names parted by blanks to each name's reason."""
    return {name: reason for reason, names in reasons.items() for name in names.split()}


TRANSFORMER_UNREAD = _by_name(
    {
        ATTENTION: """apply_query_key_layer_scaling attention_backend attention_softmax_in_fp32 cp_comm_type
            hierarchical_context_parallel_sizes hybrid_context_parallel log_max_attention_logit masked_softmax_fusion
            max_seqlen_per_dp_cp_rank qk_clip qk_clip_alpha qk_clip_threshold softmax_type window_attn_skip_freq
            window_size""",
        ROTARY: "apply_rope_fusion fused_single_qkv_rope mrope_section no_rope_freq rotary_interleaved",
        HEAD: """calculate_per_token_loss cross_entropy_fusion_impl cross_entropy_loss_fusion
            defer_embedding_wgrad_compute mtp_loss_scaling_factor mtp_num_layers mtp_standalone wgrad_deferral_limit""",
        MODEL: """activation_func_clamp_value apply_residual_connection_post_layernorm attention_output_gate
            fp32_residual_connection glu_linear_offset layernorm_zero_centered_gamma moe_apply_probs_on_input
            moe_expert_capacity_factor moe_ffn_hidden_size moe_input_jitter_eps moe_latent_size moe_layer_freq
            moe_pad_expert_input_to_capacity moe_router_enable_expert_bias moe_router_force_load_balancing
            moe_router_group_topk moe_router_num_groups moe_router_pre_softmax moe_router_score_function moe_router_topk
            moe_router_topk_limited_devices moe_router_topk_scaling_factor moe_shared_expert_gate
            moe_shared_expert_intermediate_size moe_token_drop_policy multi_latent_attention num_moe_experts qk_l2_norm
            softmax_scale""",
        LIBRARIES: """activation_func_fp8_input_store batch_invariant_mode cpu_offloading cpu_offloading_activations
            cpu_offloading_double_buffering cpu_offloading_num_layers cpu_offloading_weights delay_wgrad_compute
            disable_parameter_transpose_cache fine_grained_activation_offloading first_last_layers_bf16 fp4 fp4_param
            fp4_recipe fp8 fp8_amax_compute_algo fp8_amax_history_len fp8_dot_product_attention fp8_interval fp8_margin
            fp8_multi_head_attention fp8_param fp8_recipe fp8_wgrad gradient_accumulation_fusion
            kitchen_attention_backend memory_efficient_layer_norm min_offloaded_tensor_size num_layers_at_end_in_bf16
            num_layers_at_start_in_bf16 offload_modules persist_layer_norm quant_recipe symmetric_ar_type
            tp_comm_atomic_ag tp_comm_atomic_rs tp_comm_bootstrap_backend tp_comm_bulk_dgrad tp_comm_bulk_wgrad
            tp_comm_overlap tp_comm_overlap_ag tp_comm_overlap_disable_fc1 tp_comm_overlap_disable_qkv
            tp_comm_overlap_rs tp_comm_overlap_rs_dgrad tp_comm_split_ag tp_comm_split_rs tp_only_amax_red
            transformer_impl use_kitchen use_kitchen_attention use_te_activation_func use_te_rng_tracker""",
        GRAPHS: """cuda_graph_impl cuda_graph_retain_backward_graph cuda_graph_scope cuda_graph_use_single_mempool
            cuda_graph_warmup_steps enable_cuda_graph external_cuda_graph""",
        INFERENCE: """flash_decode inference_fuse_tp_communication inference_rng_tracker inference_sampling_seed
            mlp_chunks_for_prefill use_inference_optimized_layers""",
        OTHER_LAYERS: """dsa_indexer_head_dim dsa_indexer_loss_coeff dsa_indexer_n_heads dsa_indexer_topk
            dsa_indexer_use_sparse_loss experimental_attention_variant heterogeneous_block_specs
            hetereogenous_dist_checkpoint is_hybrid_model linear_attention_freq linear_conv_kernel_dim
            linear_key_head_dim linear_num_key_heads linear_num_value_heads linear_value_head_dim mamba_head_dim
            mamba_num_groups mamba_num_heads mamba_state_dim use_fused_weighted_squared_relu use_mamba_mem_eff_path""",
        START: """embedding_init_method_std init_method_std init_model_with_meta_device perform_initialization
            use_cpu_initialization""",
        CODE: """_cpu_offloading_context activation_func autocast_dtype embedding_init_method finalize_model_grads_func
            fp4_quantizer_factory fp8_quantizer_factory grad_scale_func grad_sync_func init_method no_sync_func
            output_layer_init_method param_sync_func timers""",
        MEASURED: "barrier_with_L1_time config_logger_dir moe_per_layer_logging test_mode",
        "does nothing in this release of Megatron": """async_tensor_model_parallel_allreduce moe_extended_tp
            moe_enable_deepep moe_token_dropping""",
    }
)
OPTIMIZER_UNREAD = _by_name(
    {
        LOSS_SCALE: "hysteresis initial_loss_scale loss_scale loss_scale_window min_loss_scale",
        ADAM: """muon_extra_scale_factor muon_fp32_matmul_prec muon_momentum muon_num_ns_steps muon_scale_mode
            muon_split_qkv muon_tp_mode muon_use_nesterov sgd_momentum""",
        LIBRARIES: """exp_avg_dtype exp_avg_sq_dtype fp8_recipe main_grads_dtype main_params_dtype
            reuse_grad_buf_for_mxfp8_param_ag store_param_remainders use_precision_aware_optimizer""",
        MEASURED: "barrier_with_L1_time config_logger_dir log_num_zeros_in_grad timers",
        "needs Megatron's own training loop": "overlap_param_gather_with_optimizer_step",
    }
)
DDP_UNREAD = _by_name(
    {
        GRADIENTS: "average_in_collective gradient_reduce_div_fusion",
        LIBRARIES: "delay_wgrad_compute fp8_param_gather keep_fp8_transpose_cache reuse_grad_buf_for_mxfp8_param_ag",
        SHARDING: """data_parallel_sharding_strategy disable_symmetric_registration fsdp_double_buffer
            fsdp_manual_registration nccl_ub outer_dp_sharding_strategy preserve_fp32_weights
            suggested_communication_unit_size use_custom_fsdp use_megatron_fsdp""",
        GROUPS: "num_distributed_optimizer_instances",
    }
)
VLLM_UNREAD = _by_name(
    {
        MODEL: """code_revision config_format convert hf_config_path hf_overrides model_class_overrides model_weights
            pooler_config quantization_config revision runner tokenizer_mode tokenizer_revision""",
        LOADING: """allow_deprecated_quantization download_dir hf_token ignore_patterns max_parallel_loading_workers
            model_loader_extra_config pt_load_map_location safetensors_load_strategy use_tqdm_on_load
            weight_transfer_config""",
        DISTRIBUTION: """logits_processors override_generation_config spec_method spec_model spec_tokens
            speculative_config watermark watermark_config""",
        SERVING: """_api_process_count _api_process_rank reasoning_config reasoning_parser reasoning_parser_plugin
            served_model_name shutdown_timeout stream_interval structured_outputs_config tokens_only""",
        MULTIMODAL: """allowed_local_media_path allowed_media_domains enable_mm_embeds interleave_mm_strings
            limit_mm_per_prompt media_io_kwargs mm_encoder_only mm_processor_cache_gb mm_processor_kwargs
            skip_mm_profiling video_pruning_rate""",
        ADAPTERS: """default_mm_loras enable_tower_connector_lora fully_sharded_loras lora_dtype lora_target_modules
            max_cpu_loras max_lora_rank max_loras specialize_active_lora""",
        NODES: """data_parallel_address data_parallel_backend data_parallel_external_lb data_parallel_hybrid_lb
            data_parallel_rank data_parallel_rpc_port data_parallel_size_local data_parallel_start_rank device_ids
            distributed_executor_backend master_addr master_port nnodes node_rank""",
    }
)
