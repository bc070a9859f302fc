"""What `runtime.start` decides of a GPU, on a machine that has none; and what counts as out of memory."""

import os

import pytest
import torch

from seq2seq import memory, runtime
from seq2seq.errors import RunError, UserError
from seq2seq.training import ranks


@pytest.fixture
def gpus(monkeypatch):
    """Pretends that this machine has GPUs, and returns what was set; computes nothing on them."""
    done = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: done.append(("device", str(device))))
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: True)
    monkeypatch.setattr(torch, "set_float32_matmul_precision", lambda value: pytest.fail("float32 is float32"))
    monkeypatch.setattr(torch.backends.cuda, "enable_cudnn_sdp", lambda value: done.append(("cudnn", value)))
    return done


def test_attention_on_a_gpu_is_not_cudnns(gpus):
    started = runtime.start("auto", "auto")
    assert (str(started.device), started.precision) == ("cuda:0", torch.bfloat16)
    assert gpus == [("device", "cuda:0"), ("cudnn", False)]


def test_each_rank_has_a_gpu_of_its_own(gpus, monkeypatch):
    joined = {}
    monkeypatch.setattr(runtime.dist, "rendezvous", lambda *_, **__: iter([("store", 1, 2)]))
    monkeypatch.setattr(runtime.dist, "init_process_group", lambda backend, **given: joined.update(given, b=backend))
    for name, value in (("RANK", "1"), ("LOCAL_RANK", "1"), ("WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    assert str(runtime.start("auto").device) == "cuda:1"
    assert (joined["b"], joined["device_id"]) == ("cpu:gloo,cuda:nccl", torch.device("cuda", 1))
    assert gpus[0] == ("device", "cuda:1")
    with pytest.raises(UserError, match="each rank uses its own device; write cuda"):
        runtime.start("cuda:1")
    monkeypatch.setenv("LOCAL_RANK", "2")
    for device in ("auto", "cuda"):
        with pytest.raises(UserError, match="2 CUDA devices; start at most that many ranks"):
            runtime.start(device)


def test_sixteen_bits_are_the_default_of_gpus_alone(gpus):
    assert runtime.start("cuda", None).precision == torch.bfloat16
    assert runtime.start("cuda", "float32").precision == torch.float32
    assert runtime.start("cpu", None).precision == torch.float32


def test_limits_of_kernels_that_the_user_set_stay(monkeypatch):
    monkeypatch.setenv("LRU_CACHE_CAPACITY", "7")
    monkeypatch.delenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", raising=False)
    runtime.keep_few_kernels()
    assert os.environ["LRU_CACHE_CAPACITY"] == "7"
    few = int(os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"])
    monkeypatch.delenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY")
    runtime.keep_many_kernels()
    assert os.environ["LRU_CACHE_CAPACITY"] == "7"
    assert few < 100 < int(os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"])
    monkeypatch.delenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY")


def test_a_run_on_a_cpu_leaves_gpus_alone(gpus, monkeypatch):
    for name in ("get_rng_state", "set_rng_state", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, lambda *_: pytest.fail("a GPU was used"))
    assert runtime.start("cpu").device.type == "cpu"
    state = runtime.random_state()
    runtime.restore_random_state({**state, "cuda": state["cpu"]})
    memory.release()
    assert gpus == []


@pytest.mark.parametrize("words", memory.OUT_OF_MEMORY)
def test_libraries_that_are_out_of_memory_are_understood(words):
    assert memory.is_out_of_memory(RuntimeError(f"{words} (something)"))
    assert not memory.is_out_of_memory(ValueError(words))
    assert not memory.is_out_of_memory(RuntimeError("CUDA error: an illegal memory access was encountered"))


def test_a_gpu_is_not_waited_for_when_a_rank_is_lost(monkeypatch):
    """Its kernels would end only with the other rank's."""
    done = []
    monkeypatch.setattr(ranks.dist.distributed_c10d, "_get_default_store", ranks.dist.HashStore)
    monkeypatch.setattr(ranks.dist.distributed_c10d, "_abort_process_group", lambda: done.append("aborted"))
    monkeypatch.setattr(ranks, "SECONDS_TO_REPORT", 0.1)
    for device, expected in (("cpu", []), ("cuda", ["aborted"])):
        here = runtime.Runtime(torch.device(device), torch.float32, world_size=2)
        with pytest.raises(RunError, match="rank 1 of 2 ended without a report"), ranks.naming_lost_ranks(here):
            raise RuntimeError("Connection closed by peer")
        assert done == expected
