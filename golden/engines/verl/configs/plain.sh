#!/usr/bin/env bash
# A GRPO script as many are written: what is not stated here is verl's default.
max_response_length=$((1024 * 20))
prompts=512
mini_batch=${MINI_BATCH:-512}
python3 -m verl.trainer.main_ppo \
    data.train_batch_size=${prompts} \
    data.max_prompt_length=2048 \
    data.max_response_length=${max_response_length} \
    actor_rollout_ref.rollout.name=vllm \
    actor_rollout_ref.rollout.n=16 \
    actor_rollout_ref.actor.use_dynamic_bsz=True \
    actor_rollout_ref.actor.ppo_mini_batch_size=${mini_batch} \
    actor_rollout_ref.actor.clip_ratio_high=0.28 \
    actor_rollout_ref.actor.grad_clip=0.5 \
    actor_rollout_ref.actor.optim.lr_warmup_steps=10 $@
