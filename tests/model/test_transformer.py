"""Laws of the whole model (architecture: nothing looks ahead, padding changes nothing, cached equals full)."""

import itertools

import pytest
import torch
from torch import nn

from seq2seq.config.schema import PRESETS, ClassifierConfig, ModelConfig
from seq2seq.model.attention import capture_attention
from seq2seq.model.classifier import EncoderClassifier
from seq2seq.model.decoding import DecoderCache, decode_step
from seq2seq.model.transformer import Transformer

VOCAB = 40
VARIANTS = [
    dict(zip(("positions", "norm_position", "activation", "norm"), values, strict=True))
    for values in itertools.product(
        ("sinusoidal", "learned", "rotary"), ("pre", "post"), ("relu", "gelu", "silu", "swiglu"), ("layer", "rms")
    )
]


def build(**values) -> Transformer:
    config = ModelConfig(**{"preset": "tiny", "d_model": 32, "d_ff": 48, "num_heads": 4, **values})
    return Transformer(config, VOCAB, VOCAB).eval()


def example(source_length=7, target_length=6):
    source, target = torch.randint(4, VOCAB, (3, source_length)), torch.randint(4, VOCAB, (3, target_length))
    mask = torch.ones(3, source_length, dtype=torch.bool)
    mask[1, source_length - 3 :] = False
    return source, mask, target


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: "-".join(variant.values()))
@torch.no_grad()
def test_cached_steps_equal_the_full_decode(variant):
    model, (source, mask, target) = build(**variant), example()
    full = model(source, mask, target)
    cache = DecoderCache(model, model.encode(source, mask), mask, beam_size=1, max_length=target.size(1))
    steps = torch.stack([decode_step(model, target[:, t], cache) for t in range(target.size(1))], dim=1)
    torch.testing.assert_close(steps, full, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary"])
@torch.no_grad()
def test_future_targets_change_no_past_state(positions):
    model, (source, mask, target) = build(positions=positions), example()
    changed = target.clone()
    changed[:, 3:] = torch.randint(4, VOCAB, (3, 3))
    before, after = model(source, mask, target), model(source, mask, changed)
    torch.testing.assert_close(before[:, :3], after[:, :3])
    assert not torch.allclose(before[:, 3:], after[:, 3:], atol=1e-3)


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary"])
@torch.no_grad()
def test_extra_padding_changes_nothing(positions):
    model, (source, mask, target) = build(positions=positions), example()
    wide_source = torch.cat([source, torch.randint(0, VOCAB, (3, 5))], dim=1)
    wide_mask = torch.cat([mask, torch.zeros(3, 5, dtype=torch.bool)], dim=1)
    wide_target = torch.cat([target, torch.randint(0, VOCAB, (3, 4))], dim=1)
    torch.testing.assert_close(
        model(wide_source, wide_mask, wide_target)[:, :6], model(source, mask, target), atol=1e-5, rtol=1e-4
    )


@torch.no_grad()
def test_the_source_is_read():
    model, (source, mask, target) = build(), example()
    changed = source.clone()
    changed[:, 0] = (changed[:, 0] + 1) % VOCAB
    assert not torch.allclose(model(source, mask, target), model(changed, mask, target), atol=1e-3)


@torch.no_grad()
def test_a_row_of_padding_alone_stays_finite():
    model, (source, mask, target) = build(), example()
    mask[2] = False
    assert torch.isfinite(model(source, mask, target)).all()


@pytest.mark.parametrize(("tied", "storages"), [("none", 3), ("decoder", 2), ("all", 1)])
def test_tied_embeddings_are_one_storage(tied, storages):
    model = build(tied_embeddings=tied)
    matrices = (model.encoder.embedding.tokens.weight, model.decoder.embedding.tokens.weight, model.output.weight)
    assert len({matrix.data_ptr() for matrix in matrices}) == storages
    count = sum(parameter.numel() for parameter in model.parameters())
    assert (
        count
        == sum(parameter.numel() for parameter in build(tied_embeddings="all").parameters())
        + (storages - 1) * VOCAB * 32
    )


def test_head_dim_is_free_and_depths_differ():
    model, (source, mask, target) = build(head_dim=12, num_encoder_layers=3, num_decoder_layers=1), example()
    assert model(source, mask, target).shape == (3, 6, 32)
    assert model.encoder.layers[0].attention.query_key_value.weight.shape == (3 * 4 * 12, 32)
    assert (len(model.encoder.layers), len(model.decoder.layers)) == (3, 1)


def test_reordered_cache_continues_the_chosen_rows():
    model, (source, mask, target) = build(), example()
    with torch.no_grad():
        memory = model.encode(source, mask)
        cache = DecoderCache(model, memory, mask, beam_size=2, max_length=6)
        beams = target.repeat_interleave(2, dim=0)  # (6, T)
        beams[1::2, 1:] = torch.randint(4, VOCAB, (3, 5))  # the rows of a sentence begin alike
        decode_step(model, target[:, 0], cache)
        cache.spread()
        for t in (1, 2):
            decode_step(model, beams[:, t], cache)
        rows = torch.tensor([1, 1, 2, 3, 5, 4])
        cache.reorder(rows)
        hidden = decode_step(model, beams[:, 3], cache)
        history = torch.cat([beams[rows, :3], beams[:, 3:4]], dim=1)
        full = model(source.repeat_interleave(2, 0), mask.repeat_interleave(2, 0), history)[:, -1]
    torch.testing.assert_close(hidden, full, atol=1e-5, rtol=1e-4)


def test_sentences_that_stay_are_not_changed_by_those_that_leave():
    model, (source, mask, target) = build(), example()
    with torch.no_grad():
        cache = DecoderCache(model, model.encode(source, mask), mask, beam_size=1, max_length=6)
        for t in range(2):
            decode_step(model, target[:, t], cache)
        cache.reorder(torch.tensor([0, 2]), torch.tensor([0, 2]))
        hidden = decode_step(model, target[[0, 2], 2], cache)
        full = model(source, mask, target)[[0, 2], 2]
    torch.testing.assert_close(hidden, full, atol=1e-5, rtol=1e-4)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("norm_position", ["pre", "post"])
def test_parity_with_torch(norm_position):
    """The same weights in torch's own layers give the same states."""
    model = build(norm_position=norm_position, num_encoder_layers=2, num_decoder_layers=2)
    source, mask, target = example()
    theirs = nn.Transformer(
        32, 4, 2, 2, 48, dropout=0.0, batch_first=True, norm_first=norm_position == "pre", layer_norm_eps=1e-5
    ).eval()
    theirs.encoder.enable_nested_tensor = False
    if norm_position == "post":
        theirs.encoder.norm = theirs.decoder.norm = None
    _copy_weights(model, theirs)
    with torch.no_grad():
        expected = theirs(
            model.encoder.embedding(source),
            model.decoder.embedding(target),
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(6).isinf(),
            src_key_padding_mask=~mask,
            memory_key_padding_mask=~mask,
        )
        torch.testing.assert_close(model(source, mask, target), expected, atol=2e-5, rtol=1e-4)


def _copy_weights(ours: Transformer, theirs: nn.Transformer) -> None:
    def copy_attention(target, query_key_value, output):
        target.in_proj_weight.data = torch.cat([layer.weight.data for layer in query_key_value])
        target.in_proj_bias.data = torch.cat([layer.bias.data for layer in query_key_value])
        target.out_proj.weight.data, target.out_proj.bias.data = output.weight.data, output.bias.data

    for mine, other in zip(ours.encoder.layers, theirs.encoder.layers, strict=True):
        copy_attention(other.self_attn, [mine.attention.query_key_value], mine.attention.output)
        other.norm1, other.norm2 = mine.attention_residual.norm, mine.feed_forward_residual.norm
        other.linear1, other.linear2 = mine.feed_forward.inner, mine.feed_forward.output
    for mine, other in zip(ours.decoder.layers, theirs.decoder.layers, strict=True):
        copy_attention(other.self_attn, [mine.attention.query_key_value], mine.attention.output)
        cross = mine.cross_attention
        copy_attention(other.multihead_attn, [cross.query, cross.key_value], cross.output)
        other.norm1, other.norm2 = mine.attention_residual.norm, mine.cross_residual.norm
        other.norm3 = mine.feed_forward_residual.norm
        other.linear1, other.linear2 = mine.feed_forward.inner, mine.feed_forward.output
    if theirs.encoder.norm is not None:
        theirs.encoder.norm, theirs.decoder.norm = ours.encoder.norm, ours.decoder.norm


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_builds_and_its_initial_logits_are_tame(preset):
    config = ModelConfig(preset=preset)
    with torch.device("meta"):
        Transformer(config, VOCAB, VOCAB)
    if config.d_model <= 512:
        model, (source, mask, target) = Transformer(config, VOCAB, VOCAB).eval(), example()
        with torch.no_grad():
            logits = model.project(model(source, mask, target))
        assert 0.3 < logits.std() < 3.0, "neither silent nor sure of itself before it has seen a sentence"


@pytest.mark.slow
def test_the_tutorial_shape_trains():
    """d_model 512, 8 heads, feed-forward 2048, dropout 0.1, 5 layers, to 200 tokens: one batch is learnt by heart."""
    config = ModelConfig(
        preset="base", num_encoder_layers=5, num_decoder_layers=5, dropout=0.1, norm_position="post", max_length=200
    )
    assert (config.d_model, config.num_heads, config.d_ff, config.dropout) == (512, 8, 2048, 0.1)
    assert (config.num_encoder_layers, config.num_decoder_layers, config.max_length) == (5, 5, 200)
    model, (source, mask, target) = Transformer(config, VOCAB, VOCAB).train(), example(5, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-4)
    losses = []
    for _ in range(25):
        logits = model.project(model(source, mask, target[:, :-1]))
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if losses[-1] < 0.5 * losses[0]:
            return
    pytest.fail(f"the loss did not halve: {losses}")


POOLINGS = ["first", "mean_max", "mean"]


@pytest.mark.parametrize("pooling", POOLINGS)
@torch.no_grad()
def test_classifier_ignores_padding_and_shares_the_encoder(pooling):
    config = ModelConfig(preset="tiny", d_model=32, num_heads=4)
    classifier = EncoderClassifier(config, ClassifierConfig(pooling=pooling), VOCAB, 3).eval()
    source, mask, _ = example()
    wide = torch.cat([source, torch.randint(0, VOCAB, (3, 4))], dim=1)
    wide_mask = torch.cat([mask, torch.zeros(3, 4, dtype=torch.bool)], dim=1)
    torch.testing.assert_close(classifier(wide, wide_mask), classifier(source, mask), atol=1e-5, rtol=1e-4)
    translation = Transformer(config, VOCAB, VOCAB)
    classifier.encoder.load_state_dict(translation.encoder.state_dict())
    torch.testing.assert_close(
        classifier.encoder(source, classifier.encoder.source_bias(mask)), translation.eval().encode(source, mask)
    )


@torch.no_grad()
def test_mean_max_is_the_mean_and_beside_it_the_maximum():
    config = ModelConfig(preset="tiny", d_model=32, num_heads=4)
    both, mean = (EncoderClassifier(config, ClassifierConfig(pooling=kind), VOCAB, 3).eval() for kind in POOLINGS[1:])
    both.encoder.load_state_dict(mean.encoder.state_dict())
    source, mask, _ = example()
    both.output.bias.zero_()
    both.output.weight[:, :32], both.output.weight[:, 32:] = mean.output.weight, 0.0
    torch.testing.assert_close(both(source, mask) + mean.output.bias, mean(source, mask))
    both.output.weight[:, :32], both.output.weight[:, 32:] = 0.0, torch.eye(32)[:3]
    memory = mean.encoder(source, mean.encoder.source_bias(mask))
    highest = [states[real, :3].amax(dim=0) for states, real in zip(memory, mask, strict=True)]
    torch.testing.assert_close(both(source, mask), torch.stack(highest))


@torch.no_grad()
def test_mimetic_attention_looks_at_what_is_alike():
    model = build(initialization="mimetic", positions="learned")
    layer = model.encoder.layers[0].attention
    states = torch.randn(1, 7, 32)
    with capture_attention(model) as captured:
        layer(states)
        model.decoder.layers[0].cross_attention(states, states)
    assert len(captured) == 2
    for weights in captured.values():  # (1, H, T, S)
        assert weights.mean(1).argmax(-1).tolist() == [list(range(7))]
    assert build(positions="learned").state_dict().keys() == model.state_dict().keys()
