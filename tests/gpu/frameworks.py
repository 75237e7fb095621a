#!/usr/bin/env python3
"""Programs of the usual frameworks, each with output that does not change from run to run.

    frameworks.py --list     names of the cases whose framework is installed
    frameworks.py CASE       runs one and prints what it computed

run.sh starts every case natively and through the service and compares the output to the byte. Seeds are fixed,
reduced precision is left as the framework has it, and kernels that add in no fixed order are switched off: what
differs then differs because of the service.
"""

import importlib.util
import os
import subprocess
import sys
import tempfile
import zlib

CASES = {}


def case(frameworks, **environment):
    def register(function):
        CASES[function.__name__] = (frameworks, environment, function)
        return function

    return register


def torch_ready():
    import torch

    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
    return torch


def show(name, tensor):
    """A checksum of every bit, and a number for people."""
    import torch

    data = tensor.detach().cpu().contiguous().reshape(-1)
    bits = data.view(torch.uint8).numpy().tobytes()
    print(f"{name} {zlib.crc32(bits):08x} {float(data.double().sum()):.6g}")


def train(torch, model, x, optimizer, steps, autocast=None):
    for _ in range(steps):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=autocast or torch.bfloat16, enabled=autocast is not None):
            loss = model(x).float().square().mean()
        loss.backward()
        optimizer.step()
    return loss


@case("torch")
def torch_convolution_adam():
    torch = torch_ready()
    nn = torch.nn
    net = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 8, 3), nn.Flatten(), nn.Linear(8 * 28 * 28, 10))
    net.cuda()
    loss = train(torch, net, torch.randn(8, 3, 32, 32, device="cuda"), torch.optim.Adam(net.parameters()), 10)
    show("loss", loss)
    show("weights", torch.cat([p.flatten() for p in net.parameters()]))


@case("torchvision")
def torch_resnet50_half():
    torch = torch_ready()
    from torchvision.models import resnet50

    net = resnet50(weights=None).cuda().half().eval()
    with torch.no_grad():
        show("logits", net(torch.randn(8, 3, 224, 224, device="cuda", dtype=torch.half)))


@case("torchvision")
def torch_resnet18_training_scaled():
    torch = torch_ready()
    from torchvision.models import resnet18

    net = resnet18(weights=None).to("cuda", memory_format=torch.channels_last)
    images = torch.randn(8, 3, 64, 64, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.arange(8, device="cuda")
    optimizer, scaler = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9), torch.amp.GradScaler()
    for _ in range(6):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.half):
            loss = torch.nn.functional.cross_entropy(net(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    show("loss", loss)
    show("weights", torch.cat([p.flatten() for p in net.parameters()]))
    print("scale", scaler.get_scale())


@case("torch")
def torch_transformer_amp_fused_adamw():
    torch = torch_ready()
    layer = torch.nn.TransformerEncoderLayer(256, 8, dropout=0.0, batch_first=True).cuda()
    x = torch.randn(4, 64, 256, device="cuda")
    show("loss", train(torch, layer, x, torch.optim.AdamW(layer.parameters(), fused=True), 10, torch.bfloat16))
    show("weights", torch.cat([p.flatten() for p in layer.parameters()]))


@case("torch")
def torch_attention():
    torch = torch_ready()
    q, k, v = (torch.randn(2, 8, 256, 64, device="cuda", dtype=torch.half) for _ in range(3))
    show("causal", torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True))


@case("torch")
def torch_linear_algebra():
    torch = torch_ready()
    a = torch.randn(96, 96, device="cuda", dtype=torch.float64)
    for name, value in (("svd", torch.linalg.svdvals(a)), ("inverse", torch.linalg.inv(a)),
                        ("eigenvalues", torch.linalg.eigvalsh(a + a.T)), ("qr", torch.linalg.qr(a)[1]),
                        ("solve", torch.linalg.solve(a, a[:, :4])), ("cholesky", torch.linalg.cholesky(a @ a.T))):
        show(name, value)


@case("torch")
def torch_fft():
    torch = torch_ready()
    show("fft", torch.view_as_real(torch.fft.fft(torch.randn(64, 1000, device="cuda"))))
    show("rfft2", torch.view_as_real(torch.fft.rfft2(torch.randn(4, 128, 96, device="cuda"))))


@case("torch")
def torch_sparse_and_random():
    torch = torch_ready()
    dense = torch.randn(200, 200, device="cuda")
    sparse = torch.where(dense.abs() > 1.5, dense, 0).to_sparse_csr()
    show("csr product", sparse @ torch.eye(200, device="cuda"))
    show("normal", torch.empty(10000, device="cuda").normal_())
    show("permutation", torch.randperm(10000, device="cuda"))


@case("torch")
def torch_compile():
    torch = torch_ready()

    @torch.compile
    def f(x):
        return torch.softmax(x.sin() + x.cos() * 2, dim=-1)

    show("softmax", f(torch.randn(64, 512, device="cuda")))


@case("torch")
def torch_graph():
    torch = torch_ready()
    x, graph = torch.zeros(4096, device="cuda"), torch.cuda.CUDAGraph()
    weights = torch.randn(64, 64, device="cuda")
    weights @ weights
    with torch.cuda.graph(graph):
        x.add_(1)
        y = weights @ weights
    for _ in range(50):
        graph.replay()
    show("in place", x)
    show("product", y)


@case("torch")
def torch_streams():
    torch = torch_ready()
    streams = [torch.cuda.Stream() for _ in range(4)]
    parts = [torch.full((1 << 16,), float(i), device="cuda") for i in range(4)]
    for _ in range(20):
        for i, stream in enumerate(streams):
            stream.wait_stream(streams[i - 1])
            with torch.cuda.stream(stream):
                parts[i].add_(parts[i - 1], alpha=0.25)
    torch.cuda.synchronize()
    for i, part in enumerate(parts):
        show(f"part {i}", part)


@case("torch")
def torch_pinned_loader():
    torch = torch_ready()
    data = torch.utils.data.TensorDataset(torch.arange(4000).float())
    loader = torch.utils.data.DataLoader(data, batch_size=250, num_workers=2, pin_memory=True)
    show("sum", sum(x.to("cuda", non_blocking=True).sum() for (x,) in loader))


@case("torch")
def torch_out_of_memory():
    torch = torch_ready()
    try:
        torch.empty(1 << 45, device="cuda", dtype=torch.uint8)
    except torch.OutOfMemoryError:
        print("torch.OutOfMemoryError")
    show("afterwards", torch.ones(1000, device="cuda"))


@case("torch", PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True", PYTORCH_ALLOC_CONF="expandable_segments:True")
def torch_expandable_segments():
    torch = torch_ready()
    for size in (1 << 18, 1 << 24, 1 << 20):
        parts = [torch.full((size,), float(i), device="cuda") for i in range(8)]
        show(f"{size}", torch.stack([part.sum() for part in parts]))
        del parts
    torch.cuda.empty_cache()
    print(torch.cuda.memory_reserved())


@case("torch")
def torch_nccl_one_rank():
    torch = torch_ready()
    import torch.distributed as distributed

    meeting = tempfile.mktemp(prefix="frmps-nccl-")
    distributed.init_process_group("nccl", init_method=f"file://{meeting}", rank=0, world_size=1)
    x = torch.arange(10000.0, device="cuda")
    distributed.all_reduce(x)
    show("sum", x)
    distributed.destroy_process_group()


@case("torch")
def torch_attention_kinds():
    torch = torch_ready()
    from torch.nn.attention import SDPBackend, sdpa_kernel

    for kind in (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION,
                 SDPBackend.CUDNN_ATTENTION):
        parts = [torch.randn(2, 4, 128, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]
        with sdpa_kernel(kind):
            result = torch.nn.functional.scaled_dot_product_attention(*parts)
            result.float().square().sum().backward()
        show(kind.name, result)
        show(f"{kind.name} gradient of keys", parts[1].grad)


@case("torch")
def torch_compile_training():
    torch = torch_ready()
    nn = torch.nn
    net = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 8)).cuda()
    x = torch.randn(32, 64, device="cuda")
    loss = train(torch, torch.compile(net, mode="reduce-overhead"), x, torch.optim.SGD(net.parameters(), lr=0.1), 8)
    show("loss", loss)
    show("weights", torch.cat([p.flatten() for p in net.parameters()]))


@case("torch")
def torch_triton_kernel():
    torch = torch_ready()
    import triton
    from triton import language as tl

    @triton.jit
    def scaled(x, y, count, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(y + at, tl.load(x + at, mask=at < count) * 3 + 1, mask=at < count)

    x = torch.arange(10000.0, device="cuda")
    y = torch.empty_like(x)
    scaled[(triton.cdiv(10000, 1024),)](x, y, 10000, BLOCK=1024)
    show("scaled", y)


@case("torch")
def torch_graph_of_training():
    torch = torch_ready()
    net = torch.nn.Linear(128, 128).cuda()
    optimizer = torch.optim.Adam(net.parameters(), capturable=True)
    x = torch.randn(64, 128, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        train(torch, net, x, optimizer, 3)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        train(torch, net, x, optimizer, 1)
    for _ in range(20):
        graph.replay()
    show("weights", net.weight)


@case("torch", PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync", PYTORCH_ALLOC_CONF="backend:cudaMallocAsync")
def torch_malloc_async():
    torch = torch_ready()
    side = torch.cuda.Stream()
    total = torch.zeros((), device="cuda")
    for i in range(50):
        part = torch.full((1 << (10 + i % 12),), float(i), device="cuda")
        with torch.cuda.stream(side):
            other = torch.full((1 << 16,), 1.0, device="cuda").cumsum(0)
        side.synchronize()
        total += part.sum() + other[-1]
    show("total", total)


@case("torch")
def torch_profiler():
    """The profiler must not disturb: what it sees of the device is not compared."""
    torch = torch_ready()
    from torch.profiler import ProfilerActivity, profile

    x = torch.randn(256, 256, device="cuda")
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        for _ in range(3):
            x = torch.tanh(x @ x)
        torch.cuda.synchronize()
    print("calls of matmul:", sum(event.count for event in seen.key_averages() if event.key == "aten::matmul"))
    show("product", x)


@case("torch")
def torch_loader_spawn():
    torch = torch_ready()
    data = torch.utils.data.TensorDataset(torch.arange(2000).float())
    loader = torch.utils.data.DataLoader(data, batch_size=250, num_workers=2, pin_memory=True,
                                         multiprocessing_context="spawn")
    warm = torch.ones(1, device="cuda")
    show("sum", warm + sum(x.to("cuda", non_blocking=True).sum() for (x,) in loader))


@case("torch")
def torch_fork_after_start():
    """A forked child may not use the device, and its parent must not notice that it tried."""
    torch = torch_ready()
    x = torch.arange(1000.0, device="cuda")
    child = os.fork()
    if child == 0:
        try:
            torch.ones(1, device="cuda")
        except RuntimeError as told:
            print(str(told).splitlines()[0], flush=True)
        os._exit(0)
    print("child:", os.waitpid(child, 0)[1])
    show("parent", x * 2)


@case("torch")
def torch_fork_and_exec():
    """A program started by a program: a session of its own."""
    torch = torch_ready()
    x = torch.arange(1000.0, device="cuda")
    program = "import torch; print(torch.arange(100., device='cuda').sum().item())"
    child = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True)
    print("child:", child.stdout.strip())
    show("parent", x * 2)


def double_what_comes(orders, answers):
    """The other process of torch_tensors_of_another_process."""
    import torch

    shared = orders.get()
    shared.mul_(2)
    own = torch.full((1000,), 7.0, device="cuda")
    torch.cuda.synchronize()
    answers.put(own)
    orders.get()  # keeps its tensor until then


@case("torch")
def torch_tensors_of_another_process():
    """Tensors on the device, there and back, without a copy."""
    torch = torch_ready()
    context = torch.multiprocessing.get_context("spawn")
    orders, answers = context.SimpleQueue(), context.SimpleQueue()
    other = context.Process(target=double_what_comes, args=(orders, answers))
    other.start()
    shared = torch.arange(1000.0, device="cuda")
    orders.put(shared)
    own = answers.get()
    show("shared, doubled there", shared)
    show("made there", own)
    del own
    orders.put(None)
    other.join()
    print("exit status", other.exitcode)


@case("transformers")
def transformers_generate():
    """A decoder with a growing cache and one with a static one."""
    torch = torch_ready()
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    words = torch.arange(10, 26, device="cuda").view(1, -1)
    nets = {
        "GPT-2": (GPT2LMHeadModel(GPT2Config(n_layer=4, n_embd=256, n_head=4, vocab_size=1000)), {}),
        "Llama": (LlamaForCausalLM(LlamaConfig(num_hidden_layers=3, hidden_size=256, intermediate_size=512,
                                               num_attention_heads=4, num_key_value_heads=2, vocab_size=1000)),
                  {"cache_implementation": "static", "disable_compile": True}),
    }
    for name, (net, options) in nets.items():
        net.cuda().half().eval()
        out = net.generate(words, attention_mask=torch.ones_like(words), max_new_tokens=40, do_sample=False,
                           pad_token_id=0, eos_token_id=None, **options)
        show(name, out)
        show(f"{name} scores", net(out).logits)


@case("jax", XLA_PYTHON_CLIENT_PREALLOCATE="false")
def jax_jit():
    import jax
    import jax.numpy as jnp

    # Whole numbers below 2**24: exact whichever way the compiler multiplies today.
    x = (jnp.arange(512 * 512) % 7).astype(jnp.float32).reshape(512, 512)
    print(float(jax.jit(lambda a: (a @ a.T)[3, 5] + jnp.max(a @ a))(x)))
    print(float(jax.grad(lambda a: (3 * a * a).sum())(x).sum()))


@case("jax", XLA_PYTHON_CLIENT_PREALLOCATE="false")
def jax_whole_numbers():
    import jax
    import jax.numpy as jnp
    from jax import lax

    x = jax.random.randint(jax.random.key(1), (1000,), 0, 1 << 20)
    print(int(jnp.sort(x)[500]), int(lax.associative_scan(jnp.add, x)[-1]), int(jnp.bitwise_xor.reduce(x)))
    step = jax.jit(lambda carry, row: ((carry * 33 + row.sum()) & 0xFFFFF, carry))
    print(int(lax.scan(step, 5, x.reshape(100, 10))[0]))
    print(jax.vmap(lambda row: row.max() - row.min())(x.reshape(10, 100)).tolist())


@case("jax", XLA_PYTHON_CLIENT_PREALLOCATE="false",
      XLA_FLAGS="--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0")
def jax_training():
    import jax
    import jax.numpy as jnp

    keys = jax.random.split(jax.random.key(1), 4)
    weights = {"filter": jax.random.normal(keys[0], (3, 3, 3, 8)) * 0.1,
               "out": jax.random.normal(keys[1], (2048, 10)) * 0.1}
    images, labels = jax.random.normal(keys[2], (16, 16, 16, 3)), jax.random.randint(keys[3], (16,), 0, 10)

    def loss(weights):
        hidden = jax.lax.conv_general_dilated(images, weights["filter"], (1, 1), "SAME",
                                              dimension_numbers=("NHWC", "HWIO", "NHWC"))
        scores = jax.nn.relu(hidden).reshape(16, -1) @ weights["out"]
        return -jnp.mean(jax.nn.log_softmax(scores)[jnp.arange(16), labels])

    step = jax.jit(lambda weights: jax.tree.map(lambda w, g: w - 0.1 * g, weights, jax.grad(loss)(weights)))
    for _ in range(10):
        weights = step(weights)
    print(f"{float(loss(weights)):.9g}", zlib.crc32(bytes(memoryview(weights["out"].__array__()))))


@case("cupy")
def cupy_libraries():
    """cuBLAS, cuSOLVER, cuSPARSE, cuRAND, cuFFT, and kernels that CuPy makes."""
    import cupy
    import cupyx.scipy.sparse

    def total(name, array):
        print(name, f"{zlib.crc32(cupy.ascontiguousarray(array).get().tobytes()):08x}")

    cupy.random.seed(1)
    a = cupy.random.standard_normal((64, 64))
    total("cuRAND", a)
    total("cuBLAS", a @ a.T)
    total("cuSOLVER", cupy.linalg.solve(a, a[:, :3]))
    total("cuSOLVER, singular values", cupy.linalg.svd(a, compute_uv=False))
    total("cuSPARSE", cupyx.scipy.sparse.csr_matrix(cupy.where(a > 1, a, 0)) @ a)
    total("cuFFT", cupy.fft.fft2(a))
    total("sorted", cupy.sort(a.ravel()))
    total("reduced", cupy.ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "length_of_rows")(a, axis=1))


@case("cupy")
def cupy_streams_and_pools():
    import cupy

    cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(3)]
    parts = []
    for i, stream in enumerate(streams):
        with stream:
            parts.append(cupy.arange(100000, dtype=cupy.int64) * (i + 1))
    for stream in streams:
        stream.synchronize()
    print([int(part.sum()) for part in parts])


@case("cupy torch")
def cupy_and_torch_share_memory():
    torch = torch_ready()
    import cupy

    x = torch.arange(1000.0, device="cuda")
    seen = cupy.from_dlpack(x)
    seen *= 3
    cupy.cuda.get_current_stream().synchronize()
    show("tripled by CuPy", x)
    y = torch.from_dlpack(cupy.arange(1000, dtype=cupy.float32) + seen)
    cupy.cuda.get_current_stream().synchronize()
    show("added by CuPy", y)


@case("cupy")
def cupy_arithmetic_and_raw_kernel():
    import cupy

    a = cupy.arange(10000, dtype=cupy.float32)
    kernel = cupy.RawKernel(
        'extern "C" __global__ void twice(float *a, int n) {'
        " int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) a[i] *= 2; }", "twice")
    kernel((40,), (256,), (a, 10000))
    print(float(a.sum()), float(cupy.sqrt(a).max()), a[:5].tolist())


def main():
    if sys.argv[1:] == ["--list"]:
        for name, (frameworks, _, _) in CASES.items():
            if all(importlib.util.find_spec(framework) for framework in frameworks.split()):
                print(name)
        return 0
    if len(sys.argv) != 2 or sys.argv[1] not in CASES:
        print(__doc__, file=sys.stderr)
        return 2
    _, environment, function = CASES[sys.argv[1]]
    os.environ.update(environment)
    function()
    return 0


if __name__ == "__main__":
    sys.exit(main())
