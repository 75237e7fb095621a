"""The scenarios, an entry each. measure.py has the measurements, play.py the order.

A new scenario is an entry here. Its numbers have a unit and a better direction; the report plots numbers by their
form: a strip for distributions, bars for single numbers, lines over points, a timeline for faults.
"""

import dataclasses
import typing

import measure
import shares

LESS, MORE, NEITHER = "less", "more", ""


@dataclasses.dataclass(frozen=True)
class Number:
    name: str  # in the values of a measurement
    title: str
    unit: str
    better: str = LESS
    ours: bool = False  # its subject does not exist natively or with stock MPS


@dataclasses.dataclass(frozen=True)
class Group:
    """Scenarios that a single service serves in sequence. All systems measure a group before the next begins."""

    name: str
    title: str
    seconds: int  # of all systems in a quick round, about; until a round has measured it
    fresh: bool = False  # a service of its own for each scenario and point
    devices: str = "0"  # key of the service's configuration


@dataclasses.dataclass(frozen=True)
class Scenario:
    name: str
    group: str
    title: str
    text: str  # its meaning, a sentence or two
    measure: typing.Callable
    numbers: tuple
    plot: str  # strips, bars, lines, timeline
    points: tuple = (None,)
    quick: typing.Optional[tuple] = (None,)  # its points with --quick; None: not run
    host: typing.Optional[tuple] = None  # its points on the host backend; None: meaningless there
    axis: str = ""  # meaning of the points
    most: typing.Mapping = dataclasses.field(default_factory=dict)  # largest point of a system
    systems: tuple = ()  # the compared systems; none: all
    only: typing.Mapping = dataclasses.field(default_factory=dict)  # the systems of a point, if not all
    needs: str = ""  # "nvcc", "torch", "criu", or "gpus": two of them, and PyTorch


GROUPS = (
    Group("transport", "The ring", 8),
    Group("calls", "Calls", 40),
    Group("faults", "Faults", 50, fresh=True),
    Group("clients", "Many programs", 35),
    Group("start", "Start", 15),
    Group("sharing", "Quality of service", 35),
    Group("weights", "Weighted shares", 90),
    Group("portions", "Parts of the device", 60),
    Group("classes", "Online beside offline", 180),
    Group("crowds", "As many programs as possible", 60),
    Group("scale", "Many streams, modules, allocations", 35),
    Group("code", "Faults beside loaded code", 60, fresh=True),
    Group("programs", "PyTorch programs", 50),
    Group("gpus", "Several GPUs", 60, devices="all"),
)

WAIT = Number("launch_and_wait", "launch and wait", "µs")
FAULT_NUMBERS = (Number("survived", "survivors that are exact", "%", MORE),
                 Number("pause", "longest pause of a survivor", "ms"),
                 Number("quiet", "longest pause before the fault", "ms", NEITHER),
                 Number("told", "until the culprit has its error", "ms", NEITHER))
SCALE_NUMBERS = (WAIT, Number("make", "making one", "µs"), Number("first_use", "first launch of one", "µs"),
                 Number("use", "a later launch of one, all in turn", "µs"), Number("release", "releasing one", "µs"))
GRAPH_NUMBERS = (Number("none", "a launch, nothing changed", "µs"), Number("some", "one node in ten changed", "µs"),
                 Number("all", "all changed", "µs"), Number("wait_none", "launch and wait, nothing changed", "µs"),
                 Number("wait_all", "all changed", "µs"), Number("change", "one change", "µs"),
                 Number("submit", "a launch behind changes of all, for its caller", "µs"),
                 Number("captured", "all captured anew", "µs"))
SHARE_NUMBERS = (Number("deviation", "largest deviation from the weights' shares", "% points", ours=True),
                 Number("kept", "kernels with weights, of those without", "%", MORE, ours=True),
                 Number("uneven", "largest deviation from even shares, without", "% points", NEITHER),
                 Number("rate", "kernels of all, without weights", "/s", MORE),
                 Number("alone", "a kernel of one program alone", "ms", NEITHER))
ONLINE_NUMBERS = (Number("request", "a request", "ms"), Number("request_p99", "99th percentile", "ms"),
                  Number("request_max", "longest", "ms"), Number("request_ratio", "a request, to that alone", "×"),
                  Number("request_p99_ratio", "99th percentile, to that alone", "×"),
                  Number("request_max_ratio", "longest, to that alone", "×"),
                  Number("offline_rate", "kernels of the offline program", "/s", MORE))
PORTION_NUMBERS = (Number("granted", "multiprocessors that the program sees", "", NEITHER),
                   Number("used", "its kernels, of what so many multiprocessors do", "%", MORE),
                   Number("used_beside", "those of the program beside it, the same", "%", MORE),
                   Number("rate", "its kernels", "/s", NEITHER))
PORTION_POINTS = (shares.ALONE, *shares.CAPS, *shares.PARTITIONS)
ONLINE_ONLY = {**dict.fromkeys(shares.MPS_SETTINGS, ("MPS",)), **dict.fromkeys(shares.CALLED, ("frmps",))}
ONLINE_POINTS = (shares.ALONE, shares.BESIDE, *shares.CALLED, *shares.MPS_SETTINGS)
MPS_CLIENTS = {"native": 48, "MPS": 48}  # stock MPS admits 48 clients before CUDA 13.1; native: contexts
CODE_POINTS = (0, 16, 64, 256)
WORKLOADS = ("resnet50_batch1", "resnet50_batch8", "resnet50_batch64", "training", "decoding", "decoding_graph")


def fault_scenario(kind, survivors, title, text, **more):
    return Scenario(f"fault_{kind}_{survivors}", "faults", title, text, measure.fault(kind, survivors), FAULT_NUMBERS,
                    "timeline", **more)


def weights_scenario(count):
    return Scenario(f"weights_{count}", "weights", f"{count} greedy programs with weights",
                    f"Each keeps kernels of 1 ms on the device that fill it; weights are 1 to {count}. How far a "
                    "program's share was from its weight's, at most, in three windows of a second. Native and stock MPS "
                    "have no weights: their shares are those without.", shares.weights(count), SHARE_NUMBERS, "bars",
                    quick=None, host=(None,))


def online_scenario(work, title, offline, measured, **more):
    return Scenario(f"online_beside_{work}", "classes", title,
                    "A request every 4 ms: ResNet-50 as a CUDA graph where there is PyTorch, else 20 small kernels. "
                    f"Beside it {offline}, which frmps serves as offline, and once as offline with sm_percent = 50. "
                    "Stock MPS as it is, with 50 percent of the threads for that program, and with its lower client "
                    "priority.", measured, ONLINE_NUMBERS, "bars",
                    points=ONLINE_POINTS, quick=None, only=ONLINE_ONLY, **more)


SCENARIOS = (
    Scenario("ring", "transport", "The ring between two processes",
             "Records of 128 bytes from one process to another, without a service: what the writer pays, how many "
             "pass, and how long a record and its answer take.",
             measure.summaries("ring"),
             (Number("ring_issue", "writing one record", "ns"), Number("ring_round_trip", "record and answer", "ns"),
              Number("ring_rate", "records", "M/s", MORE)), "strips", host=(None,), systems=("frmps",)),

    Scenario("issue", "calls", "Issuing a launch", "What cuLaunchKernel costs its caller while no queue is full.",
             measure.summaries("driver_path", "issue"), (Number("issue", "cuLaunchKernel", "µs"),), "strips",
             host=(None,)),
    Scenario("wait", "calls", "Launch and wait", "An empty kernel, from its launch until cuStreamSynchronize returns.",
             measure.summaries("driver_path", "wait"), (WAIT,), "strips", host=(None,)),
    Scenario("elapsed", "calls", "Timing with events",
             "cuEventElapsedTime right behind a wait, again, and a launch between two records with its wait and that "
             "question.",
             measure.summaries("driver_path", "elapsed"),
             (Number("elapsed_first", "first question", "µs"), Number("elapsed", "again", "µs"),
              Number("timed_launch", "a timed launch", "µs")), "strips", host=(None,)),
    Scenario("allocate", "calls", "Allocation and release",
             "A pair of calls: device memory of three sizes, 1 MiB of pinned memory, and 1 MiB in the order of a "
             "stream, with a kernel in between.",
             measure.summaries("driver_path", "allocate"),
             (Number("allocate_4k", "device, 4 KiB", "µs"), Number("allocate_1m", "device, 1 MiB", "µs"),
              Number("allocate_64m", "device, 64 MiB", "µs"), Number("allocate_pinned", "pinned, 1 MiB", "µs"),
              Number("allocate_ordered", "stream-ordered, 1 MiB", "µs")), "strips", host=(None,)),
    Scenario("rate", "calls", "Launch rate of one program", "One program that waits once per 100 000 launches.",
             measure.summaries("driver_path", "rate"), (Number("launch_rate", "launches", "k/s", MORE),), "bars",
             host=(None,)),
    Scenario("copies", "calls", "Copies", "Synchronous copies between the device and pinned or pageable memory.",
             measure.copies,
             (Number("pinned_htod", "pinned, to the device", "GB/s", MORE),
              Number("pinned_dtoh", "pinned, from the device", "GB/s", MORE),
              Number("pageable_htod", "pageable, to the device", "GB/s", MORE),
              Number("pageable_dtoh", "pageable, from the device", "GB/s", MORE)), "lines",
             points=(4096, 65536, 1 << 20, 16 << 20, 256 << 20), quick=(4096, 65536, 1 << 20, 16 << 20, 256 << 20),
             axis="bytes"),

    fault_scenario("trap", 4, "A kernel traps beside four programs",
                   "Each of the others keeps four kernels of 100 µs on the device; how many end in each millisecond.",
                   host=(None,)),
    fault_scenario("write", 4, "A kernel writes to nowhere beside four programs", "The same with an illegal address.",
                   host=(None,)),
    fault_scenario("null", 1, "A kernel writes to a null pointer beside one program", "The same with one survivor.",
                   quick=None, host=(None,)),
    fault_scenario("misaligned", 4, "A misaligned write beside four programs", "The same with a misaligned address.",
                   quick=None),
    fault_scenario("shared", 4, "A write beyond shared memory beside four programs", "The same beyond shared memory.",
                   quick=None),
    fault_scenario("killed", 4, "A program is killed with work under way",
                   "SIGKILL for a program that has 64 kernels of 5 ms queued. No kernel faults.", quick=None,
                   host=(None,)),

    Scenario("launching", "clients", "Programs that launch at once", "All launch for the same time.",
             measure.launching_clients,
             (Number("rate_k", "launches of all", "k/s", MORE),
              Number("cpu_us", "processor time a launch, programs and service", "µs"),
              Number("evenness", "slowest program's share of the fastest's", "of 1", MORE)), "lines",
             points=(1, 2, 4, 8, 16, 32, 48, 128, 256), quick=(1, 8), host=(1, 2), axis="programs", most=MPS_CLIENTS),
    Scenario("idle_clients", "clients", "One program beside idle ones",
             "Launch and wait of one program while the others are connected and do nothing.",
             measure.idle_clients, (WAIT,), "lines", points=(1, 8, 16, 32, 48, 128, 256), quick=(8,), host=(1, 8),
             axis="programs", most=MPS_CLIENTS),
    Scenario("idle_service", "clients", "An idle service",
             "Processor time of the service with 16 programs that do nothing, percent of one processor.",
             measure.idle_service,
             (Number("idle_cpu", "of one processor", "%"),), "bars", points=(16,), quick=None, axis="programs",
             systems=("MPS", "frmps")),

    Scenario("first", "start", "First kernel",
             "From the start of a process to the end of its first kernel; the service runs.",
             measure.first_kernel, (Number("first_kernel_ms", "first kernel", "ms"),), "bars", host=(None,)),
    Scenario("torch_first", "start", "First kernel of a PyTorch program",
             "From the start of Python to the end of the first kernel, and the part of it behind import torch.",
             measure.torch_first,
             (Number("torch_first_ms", "from the start", "ms"),
              Number("torch_first_after_import_ms", "behind the import", "ms")), "bars", needs="torch"),

    Scenario("loading", "sharing", "A program while another one loads modules",
             "From end to end of a program's 1 ms kernels, while another one loads a module of 400 kernels and "
             "launches one of "
             "them, ten times.", measure.loading,
             (Number("gap", "from end to end", "ms"), Number("gap_max", "longest gap", "ms"),
              Number("load", "one load", "ms"), Number("use", "its first launch", "ms")), "strips", needs="nvcc"),
    Scenario("loading_beside", "sharing", "Loading code beside long kernels",
             "A program loads a module of 400 kernels, launches one of them and releases the module, three times, beside "
             "another one that always has kernels of so many milliseconds on the device (0: beside nobody; 600000: they "
             "do not end before their program is killed).", measure.loading_beside,
             (Number("beside_load", "a load", "ms"), Number("beside_use", "its first launch", "ms"),
              Number("beside_release", "its release", "ms"),
              Number("beside_worst", "the worst load and launch", "ms")), "lines",
             points=(0, 20, 200, 3000, measure.ENDLESS), quick=(0, 200), axis="ms of a kernel", needs="nvcc"),
    Scenario("mix", "sharing", "A mix of heavy programs",
             "Programs at a time that each take and free memory, load and unload modules of 400 kernels, make streams and run "
             "kernels of 1 ms to 5 s, and check all of it.", measure.mix,
             (Number("mix_all", "until all have ended", "s"),
              Number("mix_beyond", "the most that one took beyond its own kernels", "s")), "bars", points=(8,), quick=None,
             axis="programs", needs="nvcc"),
    Scenario("suspending", "sharing", "A program's memory goes to host memory and comes back",
             "frmpsctl suspend and resume of a program with so much device memory, in pieces of 1 GiB, three times; the best "
             "counts, with all that the command takes. Meanwhile another program always has four 1 ms kernels on the device.",
             measure.suspending,
             (Number("out_gbps", "out", "GB/s", MORE), Number("in_gbps", "in", "GB/s", MORE),
              Number("out_s", "out", "s"), Number("in_s", "in", "s"),
              Number("out_pages", "time of the copying threads for host pages", "%"),
              Number("out_device", "the same for the device", "%"), Number("out_files", "the same for files", "%"),
              Number("beside_gap", "longest gap of the other program", "ms"), Number("alone_gap", "the same alone", "ms"),
              Number("beside_loss", "kernels that it lost", "%")), "bars", points=(16384,), quick=None, host=(256,),
             axis="MiB", systems=("frmps",)),
    Scenario("checkpoint", "sharing", "A program is saved in files while it works",
             "frmpsctl checkpoint of a program with so much device memory in pieces of 1 GiB and four 1 ms kernels on the "
             "device, where the device has room for a copy of it.", measure.checkpoint,
             (Number("stall", "longest gap of the program", "ms"), Number("alone_gap", "the same of one that is not saved", "ms"),
              Number("stood", "how long the service let it stand still", "ms"),
              Number("saved_s", "until all is in files", "s")), "bars", points=(16384, 40960), quick=None, host=(256,),
             axis="MiB", systems=("frmps",), needs="criu"),
    Scenario("restoring", "sharing", "A program comes back from files",
             "frmpsctl restore of a program with so much device memory in pieces of 1 GiB, which was saved in files in memory "
             "and has ended; then a copy from that memory. All of it is checked.", measure.restoring,
             (Number("restored_s", "the restore", "s"), Number("answered_s", "the restore and the copy", "s"),
              Number("restored_gbps", "bytes of the memory by that time", "GB/s", MORE)), "bars", points=(16384,), quick=None,
             host=(256,), axis="MiB", systems=("frmps",), needs="criu"),
    Scenario("urgent", "sharing", "A small kernel beside a program that fills the device",
             "Launch and wait in a stream of the highest priority, beside kernels of blocks of 1 ms that fill every "
             "multiprocessor. Stock MPS gives the other program its lower client priority.", measure.urgent,
             (Number("urgent", "launch and wait", "µs"), Number("urgent_p99", "99th percentile", "µs"),
              Number("flood_rate", "kernels of the other program", "/s", MORE)), "strips"),

    weights_scenario(2), weights_scenario(4), weights_scenario(8),

    Scenario("multiprocessors", "portions", "A program with a part of the multiprocessors",
             "Kernels of 10 ms in 100 waves of blocks. With a percentage the program is alone; a partition has 8 "
             "multiprocessors a chunk, and another program fills the rest.", shares.portions, PORTION_NUMBERS, "bars",
             points=PORTION_POINTS, quick=None,
             only={**dict.fromkeys(shares.CAPS, ("MPS", "frmps")), **dict.fromkeys(shares.PARTITIONS, ("frmps",))}),

    online_scenario("matrix", "Requests beside large matrix products",
                    "a program multiplies matrices of order 4096 without a pause", shares.online_beside("product")),
    online_scenario("kernels20ms", "Requests beside kernels of 20 ms",
                    "a program launches kernels of 20 ms that fill the device",
                    shares.online_beside("work", shares.LONG_MS), host=(shares.ALONE, shares.BESIDE)),

    Scenario("crowd", "crowds", "Programs that launch and wait at once",
             "All start at once, launch and wait for two seconds; one that is refused or not exact fails the scenario. "
             "Stock MPS admits 60 programs since CUDA 13.1, 48 before.", shares.crowd,
             (Number("wait", "launch and wait", "ms"), Number("wait_p99", "99th percentile", "ms"),
              Number("wait_max", "longest", "ms"), Number("rate_k", "waits of all", "k/s", MORE),
              Number("started", "until all are ready", "s")), "lines",
             points=(48, 60, 256), quick=None, host=(1, 32), axis="programs", most={"native": 48, "MPS": 60}),

    Scenario("streams", "scale", "Streams", "A program that has so many streams and has used them all.",
             measure.scale("streams"), SCALE_NUMBERS, "lines", points=(1, 16, 256, 1024, 4096, 16384, 65536),
             quick=(1, 1024), host=(1, 64), axis="streams"),
    Scenario("modules", "scale", "Modules", "A program that has loaded so many modules and launched from each.",
             measure.scale("modules"), SCALE_NUMBERS, "lines", points=(1, 16, 64, 256, 1024), quick=(1, 64),
             host=(1, 16), axis="modules"),
    Scenario("allocations", "scale", "Allocations", "A program that holds so many allocations of 64 KiB.",
             measure.scale("allocations"), tuple(n for n in SCALE_NUMBERS if "use" not in n.name), "lines",
             points=(1, 64, 1024, 16384, 65536), quick=(1, 4096), host=(1, 256), axis="allocations"),

    Scenario("graphs", "scale", "Graphs that are changed",
             "A chain of so many kernels, launched again and again. Before each launch the program changes no node, one "
             "in ten, or all, or captures all anew.", measure.graphs, GRAPH_NUMBERS, "lines", points=(1, 10, 100, 1000), quick=(1, 100),
             host=(1, 100), axis="nodes"),

    Scenario("loaded_code", "code", "Pause against loaded code",
             "A kernel traps beside one program that has loaded a module of 400 kernels so often.",
             measure.fault("trap", 1), FAULT_NUMBERS, "lines", points=CODE_POINTS, quick=None,
             axis="modules of 400 kernels", needs="nvcc"),

    Scenario("torch_alone", "programs", "One PyTorch program",
             "Items a second: images (ResNet-50, binary16), training steps (transformer, mixed precision), tokens "
             "(decoder of GPT-2's size, kernel by kernel or as a CUDA graph). The first results must be the same to "
             "the bit.",
             measure.torch_programs(1),
             (Number("per_s", "items", "/s", MORE),
              Number("cpu_ms", "processor time a step, program and service", "ms")), "bars",
             points=WORKLOADS, quick=("resnet50_batch8", "decoding_graph"), needs="torch"),
    Scenario("torch_two", "programs", "Two PyTorch programs at once", "The same for two such programs, together.",
             measure.torch_programs(2),
             (Number("per_s", "items of both", "/s", MORE), Number("cpu_ms", "processor time a step", "ms")), "bars",
             points=("resnet50_batch8", "training", "decoding", "decoding_graph"), quick=None, needs="torch"),
    Scenario("torch_memory", "programs", "Device memory of PyTorch programs",
             "Programs that each have done ResNet-50 inference, batches of 8: device memory in use, with contexts, code and "
             "whatever the system itself needs.", measure.torch_memory,
             (Number("memory_gib", "in all", "GiB"), Number("memory_more_gib", "since before the programs", "GiB")), "bars",
             points=(8,), quick=None, needs="torch"),

    Scenario("all_reduce", "gpus", "A sum over two GPUs",
             "Two processes, a GPU each, sum so many MiB of both with NCCL, fifty times without a wait in between.",
             measure.all_reduce,
             (Number("reduce_us", "one sum", "µs"), Number("reduce_gbps", "bytes of one GPU", "GB/s", MORE)), "lines",
             points=(1, 16, 64, 512), quick=None, axis="MiB", needs="gpus"),
    Scenario("data_parallel", "gpus", "Training on two GPUs",
             "Data parallel training of a perceptron with PyTorch, two processes, a GPU each. The weights must be the same to "
             "the bit.", measure.data_parallel, (Number("steps", "steps", "/s", MORE),), "bars", quick=None, needs="gpus"),
)

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}


def points(scenario, scale, backend):
    """That are measured; none if the scenario is not run. @scale: quick or full; @backend: cuda or host"""
    if backend == "host":
        return scenario.host or ()
    return (scenario.quick or ()) if scale == "quick" else scenario.points


def points_of(scenario, system, wanted):
    """Those that a system is asked for."""
    if scenario.systems and system not in scenario.systems and system in ("native", "MPS", "frmps"):
        return ()
    most = scenario.most.get(system)
    return tuple(point for point in wanted
                 if (most is None or point <= most) and system in scenario.only.get(point, (system,)))
