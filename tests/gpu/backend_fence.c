// The fence: behind it nothing of this process writes, although a kernel that never ends was
// writing and copies ran back to back, beside a fault or without one. This is the end of the
// context.

#include <stdio.h>

#include "tests/gpu/backend_bed.h"

#define COPIES	   400
#define COPY_BYTES (UINT64_C(4) << 20)
#define BEFORE_US  20e3	 /* so long everything runs before the fence */
#define FAULT_US   5e3	 /* so long ago is the fault then */
#define LOOK_US	   300e3 /* so long a late write is looked for */

static void wait_us(double us)
{
	double until = now_us() + us;

	while (now_us() < until)
		;
}

static uint64_t digest(void)
{
	const volatile uint64_t *words = at(HOST_DATA);
	uint64_t sum = 0;

	for (uint64_t i = 0; i < COPY_BYTES / sizeof(*words); i += 32)
		sum = sum * 31 + words[i];
	return sum;
}

static void fill(struct backend_stream *stream, uint64_t address, uint32_t value)
{
	ok(OPS->set(stream, &(struct frmps_set){.dst = address,
				    .width = COPY_BYTES,
				    .height = 1,
				    .value = value,
				    .element_bytes = 1}));
}

void check_fence(bool fault)
{
	struct backend_stream *kernel = stream_new(), *copies = stream_new(), *bad = stream_new();
	const volatile uint64_t *ticks = at(MARK);
	uint64_t counted, seen, target = MARK;
	double begin;

	fill(copies, WINDOW, 1);
	fill(copies, WINDOW + COPY_BYTES, 2);
	wait_stream(copies);
	ok(launch(kernel, "tick", &target, 1, 1));
	for (int i = 0; i < COPIES; i++)
		ok(copy_line(copies, HOST_DATA, WINDOW + (uint64_t)(i & 1) * COPY_BYTES, COPY_BYTES));
	counted = *ticks;
	wait_us(BEFORE_US);
	check(*ticks > counted);
	check(OPS->stream_query(copies) == CUDA_ERROR_NOT_READY);
	if (fault) {
		ok(launch(bad, "crash", NULL, 1, 1));
		wait_us(FAULT_US);
	}
	begin = now_us();
	ok(OPS->fence());
	printf("off the device after %.2f ms\n", (now_us() - begin) / 1e3);
	counted = *ticks;
	seen = digest();
	wait_us(LOOK_US);
	check(*ticks == counted);
	check(digest() == seen);
}
