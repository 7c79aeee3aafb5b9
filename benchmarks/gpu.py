"""Sums and steps on a GPU against plain torch on it: `python -m benchmarks.gpu [sums] [samples] [networks]`.

Synthetic records, tables in Markdown, each part under a minute. A sum includes its copy to the host, and a network's
step its own Poisson sample, its noise and the move. Opacus, where it is installed, gets a resident batch of the
expected size. Torch's profiler counts launches and waits of the host. Without a GPU nothing is measured.
"""

import gc
import statistics
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from time import perf_counter

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from core.losses.losses import Logistic, Mallows, curvature_bound, gradient_bound
from core.mechanisms.generator import SystemGenerator
from core.mechanisms.public_start import draw_start
from core.mechanisms.sampling import rate_parts
from core.models.network.layers import Activation, Conv2d, Flatten, Layer, Linear, Pool2d, Shape
from core.oracle.filters import UnlimitedFilter
from core.oracle.noise import grid_for
from core.oracle.samples import PoissonOracle
from core.privacy.facts import Adjacency, Facts
from core.queries.gradients import Curvature, Gradient, Question
from core.queries.reencoded import ReencodedCurvature, ReencodedGradient
from core.queries.sums.linear import LinearProblem
from core.queries.sums.network.problem import NetworkProblem

WEIGHTS = Mallows(bound=8.0)
SHAPES = ((1_000_000, 20), (5_000_000, 50))
BATCHES, RECORDS = (256, 2048), 60_000
SECONDS = 5.0
"""The most that one figure takes."""

_IMAGES: Shape = (1, 28, 28)
_CIFAR = tuple(
    one
    for channels in (32, 64, 128)
    for one in (
        *(2 * (Conv2d(channels=channels, kernel=3, padding=1), Activation(of="tanh"))),
        Pool2d(of="mean", kernel=2),
    )
)
NETWORKS: dict[str, tuple[tuple[Layer, ...], Shape]] = {
    "CNN": (
        (
            *(Conv2d(channels=16, kernel=8, stride=2, padding=3), Activation(), Pool2d(kernel=2, stride=1)),
            *(Conv2d(channels=32, kernel=4, stride=2), Activation(), Pool2d(kernel=2, stride=1)),
            *(Flatten(), Linear(units=32), Activation(), Linear(units=10)),
        ),
        _IMAGES,
    ),
    "MLP": (
        (Flatten(), Linear(units=256), Activation(), Linear(units=128), Activation(), Linear(units=10)),
        _IMAGES,
    ),
    "CNN of Papernot et al.": (
        (*_CIFAR, Flatten(), Linear(units=128), Activation(of="tanh"), Linear(units=10)),
        (3, 32, 32),
    ),
}


def milliseconds(run: Callable[[], object], repeats: int = 15) -> float:
    """Return the median of a call's wall time, the device's work included."""
    for _ in range(2):
        run()
    torch.cuda.synchronize()
    found, begun = list[float](), perf_counter()
    while len(found) < repeats and perf_counter() - begun < SECONDS:
        start = perf_counter()
        run()
        torch.cuda.synchronize()
        found.append((perf_counter() - start) * 1e3)
    return statistics.median(found)


def megabytes(run: Callable[[], object]) -> float:
    """Return the most that a call takes of the device's memory beyond what is there."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    torch.cuda.synchronize()
    return float(torch.cuda.max_memory_allocated() - before) / 2**20


def counted(run: Callable[[], object]) -> tuple[int, int]:
    """Return a call's launches, and how often the host waits for the device."""
    run()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
        run()
    counts = Counter({one.key: one.count for one in found.key_averages()})
    launches = sum(many for name, many in counts.items() if name.startswith(("cudaLaunch", "cuLaunch")))
    return launches, counts["cudaStreamSynchronize"] + counts["cudaEventSynchronize"]


def sums(device: torch.device) -> None:
    """Print full sums of a logistic model beside plain torch's in double precision."""
    print("| full sums | plain torch, ms | ours, ms | ratio | launches | waits | MB |\n|---|---|---|---|---|---|---|")
    for units, width in SHAPES:
        _sums_of(device, units, width)
        gc.collect()
        torch.cuda.empty_cache()


def _sums_of(device: torch.device, units: int, width: int) -> None:
    """Print those of one shape."""
    generator = torch.Generator(device).manual_seed(1)
    x = torch.randn(units, width, generator=generator, dtype=torch.float64, device=device)
    y = (torch.rand(units, generator=generator, device=device) < 0.5).double()
    theta = torch.full((width,), 0.05, dtype=torch.float64)
    encoding = torch.cat((theta.unsqueeze(0), torch.eye(width, dtype=torch.float64)))
    facts = Facts(
        units=units,
        dimension=width,
        adjacency=Adjacency.ZERO_OUT,
        gradient_bound=gradient_bound(Logistic(), WEIGHTS),
        curvature_bound=curvature_bound(Logistic(), WEIGHTS),
    )
    held = LinearProblem(x, y, torch.ones(units, dtype=torch.bool, device=device), Logistic(), WEIGHTS)
    at = theta.to(device)
    plain = {
        "gradient": milliseconds(lambda: x.T @ (torch.sigmoid(x @ at) - y)),
        "Hessian": milliseconds(lambda: x.T @ (x * y.unsqueeze(-1))),
    }
    asked: dict[str, tuple[Question, Tensor]] = {
        "gradient": (Gradient(sigma=30.0), theta),
        "Hessian": (Curvature(of="hessian", sigma=30.0), theta),
        "re-encoded gradient": (ReencodedGradient(sigma=30.0, loss=Logistic(), weight_bound=5.0), encoding),
        "re-encoded Hessian": (
            ReencodedCurvature(sigma=30.0, of="hessian", loss=Logistic(), weight_bound=5.0),
            encoding,
        ),
    }
    for name, (question, point) in asked.items():
        step = grid_for(question, facts, units).part_step

        def run(question: Question = question, point: Tensor = point, step: float = step) -> Tensor:
            return held.integer_sum(question, facts, point, step).cpu()

        base, ours = plain[name.rsplit(" ", 1)[-1]], milliseconds(run)
        launches, waits = counted(run)
        figures = f"{base:.2f} | {ours:.2f} | {ours / base:.1f} | {launches} | {waits} | {megabytes(run):.0f}"
        print(f"| {name}, {units:,} x {width} | {figures} |", flush=True)


def stepping(oracle: PoissonOracle, theta: Tensor, clip: float) -> Callable[[], object]:
    """Return a step of clipped SGD."""
    question = Gradient(sigma=1.0, clip=clip)

    def step() -> object:
        nonlocal theta
        theta = torch.sub(theta, oracle.ask(question, theta).value, alpha=0.1)
        return theta

    return step


def samples(device: torch.device, units: int = 1_000_000, width: int = 20) -> None:
    """Print steps of clipped SGD of a linear model on the device and on one thread of the CPU."""
    print("| clipped SGD, linear | GPU, ms | launches | waits | CPU, one thread, ms |\n|---|---|---|---|---|")
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(units, width, generator=generator, dtype=torch.float64)
    y = (torch.rand(units, generator=generator) < 0.5).double()
    facts = Facts(units=units, dimension=width, adjacency=Adjacency.ZERO_OUT, gradient_bound=1.0)
    for batch in (1024, 4096):
        steps = []
        for place in (device, torch.device("cpu")):
            features, target, present = (one.to(place, copy=True) for one in (x, y, torch.ones(units).bool()))
            held = LinearProblem(features, target, present, Logistic(), WEIGHTS)
            oracle = PoissonOracle(held, facts, UnlimitedFilter(), SystemGenerator(), rate_parts(batch / units))
            steps.append(stepping(oracle, torch.zeros(width, dtype=torch.float64), 1.0))
        threads = torch.get_num_threads()
        ours, (launches, waits) = milliseconds(steps[0], 50), counted(steps[0])
        torch.set_num_threads(1)
        here = milliseconds(steps[1], 50)
        torch.set_num_threads(threads)
        print(f"| {width} columns, batch {batch:,} | {ours:.2f} | {launches} | {waits} | {here:.2f} |", flush=True)


def plain_module(layers: tuple[Layer, ...], given: Shape) -> nn.Sequential:
    """Return the same network in torch's own modules."""
    found = list[nn.Module]()
    for layer in layers:
        match layer:
            case Conv2d():
                found.append(nn.Conv2d(given[0], layer.channels, layer.kernel, layer.stride, layer.padding))
            case Pool2d():
                kind = nn.MaxPool2d if layer.of == "max" else nn.AvgPool2d
                found.append(kind(layer.kernel, layer.stride or layer.kernel, layer.padding))
            case Activation():
                found.append(nn.ReLU() if layer.of == "relu" else nn.Tanh())
            case Linear():
                found.append(nn.Linear(given[0], layer.units))
            case _:
                found.append(nn.Flatten())
        given = layer.output(given)
    return nn.Sequential(*found)


def opacus_step(model: nn.Module, mode: str, given: Tensor, aims: Tensor) -> Callable[[], object]:
    """Return a private step by Opacus on a resident batch.

    Raises:
        ImportError: it is not installed.
    """
    from opacus import PrivacyEngine  # noqa: PLC0415 - where it is installed
    from torch.utils.data import DataLoader, TensorDataset  # noqa: PLC0415 - as above

    loader = DataLoader(TensorDataset(given[:64].cpu(), aims[:64].cpu()), batch_size=32)
    more = {"criterion": nn.CrossEntropyLoss()} if mode == "ghost" else {}
    private, optimizer, *rest = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=loader,
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        poisson_sampling=False,
        grad_sample_mode=mode,
        **more,
    )
    criterion = rest[0] if mode == "ghost" else nn.CrossEntropyLoss()
    optimizer.expected_batch_size = len(given)

    def step() -> object:
        optimizer.zero_grad()
        criterion(private(given), aims).backward()
        return optimizer.step()

    return step


def networks(device: torch.device) -> None:
    """Print steps of networks beside Opacus and plain SGD."""
    print("| a step | B | plain SGD, ms (MB) | Opacus hooks | Opacus ghost | ours, ms (MB) | launches | waits |")
    print("|---|---|---|---|---|---|---|---|")
    for name, (layers, given) in NETWORKS.items():
        generator = torch.Generator(device).manual_seed(2)
        images = torch.randn(RECORDS, *given, generator=generator, device=device)
        aims = torch.randint(0, 10, (RECORDS,), generator=generator, device=device)
        start = torch.cat([one.flatten() for one in draw_start(layers, given, "all").values()]).to(device)
        for batch in BATCHES:
            present = torch.ones(RECORDS, dtype=torch.bool, device=device)
            held = NetworkProblem(
                images.flatten(1).clone(), aims.double(), present, layers, "cross_entropy", given, start
            )
            facts = Facts(
                units=RECORDS,
                dimension=held.dimension,
                adjacency=Adjacency.ZERO_OUT,
                gradient_bound=1.0,
                part_rows=256,
            )
            rate = rate_parts(batch / RECORDS)
            oracle = PoissonOracle(held, facts, UnlimitedFilter(), SystemGenerator(), rate)
            ours = stepping(oracle, torch.zeros(held.dimension), 1.0)
            launches, waits = counted(ours)
            cells = [_cell(ours), f"{launches}", f"{waits}"]
            peers = [_cell(_plain_step(plain_module(layers, given).to(device), images[:batch], aims[:batch]))]
            for mode in ("hooks", "ghost"):
                try:
                    module = plain_module(layers, given).to(device)
                    peers.append(_cell(opacus_step(module, mode, images[:batch], aims[:batch])))
                except ImportError:
                    peers.append("")
            print(f"| {name}, {held.dimension:,} | {batch:,} | {' | '.join(peers + cells)} |", flush=True)
            del held, oracle, ours
            gc.collect()
            torch.cuda.empty_cache()


def _cell(run: Callable[[], object]) -> str:
    return f"{milliseconds(run):.2f} ({megabytes(run):.0f})"


def _plain_step(model: nn.Module, given: Tensor, aims: Tensor) -> Callable[[], object]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> object:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(given), aims).backward()  # type: ignore[no-untyped-call] # torch's stub
        return optimizer.step()

    return step


def main(names: list[str]) -> None:
    """Measure some parts, or all of them."""
    if not torch.cuda.is_available():
        print("There is no GPU here, so nothing was measured.")
        return
    warnings.filterwarnings("ignore")
    device = torch.device("cuda")
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    parts = {"sums": sums, "samples": samples, "networks": networks}
    for name in names or parts:
        parts[name](device)


if __name__ == "__main__":
    main(sys.argv[1:])
