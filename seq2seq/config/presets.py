"""Presets: named sets of default values.

`config` fills a section with them before it is checked; written keys take precedence.
"""

from typing import Any

PRESETS: dict[str, dict[str, Any]] = {
    "tiny": dict(d_model=128, num_heads=4, num_encoder_layers=2, num_decoder_layers=2, d_ff=512),
    "small": dict(d_model=256, num_heads=4, num_encoder_layers=3, num_decoder_layers=3, d_ff=1024),
    # A deep encoder and one decoder layer, which alone is computed for each piece of a translation (Kasai et al. 2021).
    "student": dict(d_model=256, num_heads=4, num_encoder_layers=6, num_decoder_layers=1, d_ff=1024),
    "base": dict(d_model=512, num_heads=8, num_encoder_layers=6, num_decoder_layers=6, d_ff=2048),
    "big": dict(d_model=1024, num_heads=16, num_encoder_layers=6, num_decoder_layers=6, d_ff=4096, dropout=0.3),
    # The shape of OPUS-MT models, which s2s convert --to marian can write.
    "marian": dict(
        d_model=512, num_heads=8, num_encoder_layers=6, num_decoder_layers=6, d_ff=2048, activation="silu",
        norm_position="post", position_layout="halves", output_bias=True, max_length=512,
    ),
}  # fmt: skip
TRAINING_PRESETS: dict[str, dict[str, Any]] = {
    "scratch": {},
    # For a trained model: a small constant learning rate, averaged weights instead of decay, and frequent validation,
    # because the best step may come early.
    "finetune": dict(
        learning_rate=1e-4, warmup_steps=100, schedule="constant", ema=0.999, validate_every=200, checkpoint_every=200,
        patience=5,
    ),
}  # fmt: skip
