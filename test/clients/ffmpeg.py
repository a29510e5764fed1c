# SPDX-License-Identifier: Apache-2.0
"""FFmpeg as a client: frames that go to the GPU and come back, its CUDA filters, and a share that is too small."""
from expect import expect

MIB = 1 << 20
SECONDS, RATE = 1, 25
FRAMES = SECONDS * RATE

# FFmpeg 5.1's thumbnail filter frees its memory when no context is current any more, which no driver allows.
TOLERATED = ("cu->cuMemFree(s->data) failed -> CUDA_ERROR_INVALID_CONTEXT",)


def command(graph, size, *options):
    """One line per frame, with the frame's checksum, on stdout."""
    source = f"testsrc=duration={SECONDS}:rate={RATE}:size={size}"
    return [
        "ffmpeg", "-hide_banner", "-loglevel", "error", *options,
        "-f", "lavfi", "-i", source, "-filter_complex", graph, "-f", "framemd5", "-",
    ]  # fmt: skip


def frames(name, done):
    """The frames' lines: stream, times, bytes, checksum."""
    expect(done.returncode == 0, f"{name}: exit status {done.returncode}\n{done.stderr[-1000:]}")
    said = [line for line in done.stderr.splitlines() if not any(word in line for word in TOLERATED)]
    expect(not said, f"{name}: FFmpeg said\n" + "\n".join(said[-8:]))
    return [line for line in done.stdout.splitlines() if not line.startswith("#")]


def expect_refused(bench, argv):
    """The proof that a share limits this command: where not even a context fits, it fails with FFmpeg's own error."""
    expect_out_of_memory("context", bench.limited(argv, limit=200 * MIB), "AVHWDeviceContext")


def expect_out_of_memory(what, done, *words):
    expect(done.returncode != 0, f"a {what} went through a share that it does not fit into")
    expect(0 < done.returncode < 125, f"{what}: exit status {done.returncode} is not FFmpeg's\n{done.stderr[-1000:]}")
    for word in ("CUDA_ERROR_OUT_OF_MEMORY", *words):
        expect(word in done.stderr, f"{what}: FFmpeg does not say {word!r}:\n{done.stderr[-1000:]}")


def expect_same(name, seen, wanted):
    expect(len(seen) == len(wanted), f"{name}: {len(seen)} frames instead of {len(wanted)}")
    for number, (got, sent) in enumerate(zip(seen, wanted)):
        expect(got == sent, f"{name}: frame {number} changed on its way through the GPU\n  sent {sent}\n  got  {got}")


ANY_CONTEXT = ("-init_hw_device", "cuda")
PRIMARY_CONTEXT = ("-init_hw_device", "cuda=gpu:0,primary_ctx=1")

# Pixel format, filter that uploads, options: planes and depths, and the ways to the device.
ROUTES = [
    ("nv12", "hwupload", ANY_CONTEXT),
    ("yuv444p", "hwupload", ANY_CONTEXT),
    ("p010le", "hwupload", PRIMARY_CONTEXT),
    ("yuv420p", "hwupload_cuda", ()),
]


def client_transfer(bench, _python):
    for layout, upload, options in ROUTES:
        wanted = frames("on the host", bench.bare(command(f"format={layout}", "640x360")))
        expect(len(set(wanted)) == FRAMES, f"FFmpeg made {len(set(wanted))} different frames, not {FRAMES}")
        gpu = command(f"format={layout},{upload},hwdownload,format={layout}", "640x360", *options)
        expect_same(f"bare, {layout}", frames("bare", bench.bare(gpu)), wanted)
        expect_same(f"limited, {layout}", frames("limited", bench.limited(gpu)), wanted)
        expect_refused(bench, gpu)


# Filter graph, frames that come out, bytes of each. simgpu computes nothing, so what is in them is not looked at.
FILTERS = [
    ("format=nv12,hwupload,scale_cuda=320:180,hwdownload,format=nv12", FRAMES, 320 * 180 * 3 // 2),
    ("format=nv12,hwupload,scale_cuda=format=p010le,hwdownload,format=p010le", FRAMES, 640 * 360 * 3),
    ("format=nv12,hwupload,thumbnail_cuda=5,hwdownload,format=nv12", FRAMES // 5, 640 * 360 * 3 // 2),
    ("format=nv12,hwupload,yadif_cuda,hwdownload,format=nv12", FRAMES, 640 * 360 * 3 // 2),
    ("format=yuv420p,hwupload,chromakey_cuda=green,hwdownload,format=yuva420p", FRAMES, 640 * 360 * 5 // 2),
    (
        "format=nv12,split[a][b];[a]hwupload[main];[b]scale=160:90,hwupload[logo];"
        "[main][logo]overlay_cuda=x=10:y=10,hwdownload,format=nv12",
        FRAMES,
        640 * 360 * 3 // 2,
    ),
]


def client_filters(bench, _python):
    for graph, count, size in FILTERS:
        argv = command(graph, "640x360", *ANY_CONTEXT)
        for name, run in (("bare", bench.bare), ("limited", bench.limited)):
            lines = frames(f"{name}, {graph}", run(argv))
            expect(len(lines) == count, f"{name}, {graph}: {len(lines)} frames instead of {count}")
            sizes = {int(line.split(",")[4]) for line in lines}
            expect(sizes == {size}, f"{name}, {graph}: frames of {sizes} bytes instead of {size}")
        expect_refused(bench, argv)


def client_too_small(bench, _python):
    """Frames of 12 MiB where a share holds little more than a context: FFmpeg's own error, and no crash."""
    argv = command("format=nv12,hwupload,hwdownload,format=nv12", "3840x2160", *ANY_CONTEXT)
    wanted = frames("bare", bench.bare(argv))
    expect_same("a share they fit into", frames("limited", bench.limited(argv, limit=400 * MIB)), wanted)
    done = bench.limited(argv, limit=304 * MIB)
    expect_out_of_memory("frame", done, "cuMemAlloc(", "Cannot allocate memory")
