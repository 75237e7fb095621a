// Groups of multiprocessors on a real device: kernels run on as many as a group has, and on no
// other one; of a stream, and of a graph whatever stream it is launched in.

#include <stdio.h>
#include <string.h>

#include "protocol/command.h"
#include "tests/gpu/backend_bed.h"

/* Of one device, and blocks that are enough for all of them. */
#define MOST   1024u
#define BLOCKS 4096u

struct marks_params {
	uint64_t out;
};

static void clear(struct backend_stream *stream)
{
	ok(OPS->set(
		stream, &(struct frmps_set){.dst = WINDOW, .width = MOST, .height = 1, .element_bytes = 4}));
}

/* Adds each multiprocessor that is marked to `ret_where`. Return: how many there are */
static uint32_t count(struct backend_stream *stream, uint32_t ret_where[MOST])
{
	uint32_t found = 0;

	ok(copy_line(stream, HOST_DATA, WINDOW, MOST * 4));
	wait_stream(stream);
	for (uint32_t i = 0; i < MOST; i++) {
		found += ((uint32_t *)at(HOST_DATA))[i] != 0;
		ret_where[i] += ((uint32_t *)at(HOST_DATA))[i] != 0;
	}
	return found;
}

static uint32_t count_launch(struct backend_stream *stream, uint32_t where[MOST])
{
	struct marks_params params = {.out = WINDOW};

	clear(stream);
	ok(launch(stream, "marks", &params, BLOCKS, 32));
	return count(stream, where);
}

/* @own: the kernel's; 0: that of the graph */
static uint32_t count_graph(struct backend_stream *stream, uint64_t sms, uint64_t own, uint32_t where[MOST])
{
	struct marks_params params = {.out = WINDOW};
	struct backend_node node = {.op = FRMPS_OP_LAUNCH,
		.sms = own,
		.launch = {.grid = {BLOCKS, 1, 1},
			.block = {32, 1, 1},
			.info = &info,
			.arguments = (const uint8_t *)&params,
			.argument_bytes = sizeof(params)}};
	struct backend_graph *graph = NULL;
	uint32_t found;

	ok(OPS->function_find(module, "marks", true, &node.launch.function, &info));
	ok(OPS->graph_make(&node, 1, 0, sms, &graph));
	clear(stream);
	ok(OPS->graph_launch(stream, graph));
	found = count(stream, where);
	ok(OPS->graph_free(graph));
	return found;
}

/* Those beside all units, alone and with some: `where` has units 0 to 6. */
static void check_beside(struct backend_stream *everywhere, uint32_t where[MOST])
{
	const uint64_t beside = backend_all_sms(&device) & ~BACKEND_SMS(0, device.sm_units);
	const uint64_t groups[] = {beside, beside | BACKEND_SMS(7, 2)};
	struct backend_stream *stream = NULL;

	printf("multiprocessors beside all units: %u\n", beside ? backend_sms_count(&device, beside) : 0);
	for (unsigned i = 0; beside && i < 2; i++) {
		uint32_t twice = 0;

		ok(OPS->sms_make(groups[i]));
		ok(OPS->stream_create(0, groups[i], &stream));
		check(count_launch(stream, where) == backend_sms_count(&device, groups[i]));
		check(count_graph(everywhere, 0, groups[i], where) == backend_sms_count(&device, groups[i]));
		for (uint32_t sm = 0; sm < MOST; sm++)
			twice += where[sm] == 1;
		/* Each of units 0 to 6 was seen once, no other one. */
		check(twice == 7 * device.sm_granule);
		ok(OPS->stream_destroy(stream));
	}
}

void check_groups(void)
{
	const uint64_t first = BACKEND_SMS(0, 4), second = BACKEND_SMS(4, 3);
	struct backend_stream *everywhere = stream_new(), *streams[2] = {NULL};
	uint32_t all = (uint32_t)device.attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT];
	uint32_t where[MOST] = {0}, unused[MOST] = {0}, twice = 0;
	double begin;

	printf("multiprocessors: %u units of %u, of %u\n", device.sm_units, device.sm_granule, all);
	if (device.sm_units < 7) {
		refused(OPS->sms_make(first), device.sm_units ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED);
		return;
	}
	refused(OPS->stream_create(0, first, &streams[0]), CUDA_ERROR_INVALID_VALUE);
	refused(OPS->sms_make(BACKEND_SMS(2, device.sm_units)), CUDA_ERROR_INVALID_VALUE);
	begin = now_us();
	ok(OPS->sms_make(first));
	ok(OPS->sms_make(second));
	ok(OPS->sms_make(first));
	printf("two groups of multiprocessors: %.0f us\n", now_us() - begin);
	ok(OPS->stream_create(0, first, &streams[0]));
	ok(OPS->stream_create(0, second, &streams[1]));
	check(count_launch(everywhere, unused) == all);
	check(count_launch(streams[0], where) == 4 * device.sm_granule);
	check(count_launch(streams[1], where) == 3 * device.sm_granule);
	for (uint32_t i = 0; i < MOST; i++)
		twice += where[i] > 1;
	check(!twice);
	/* The graph's own, and the same ones. */
	memset(where, 0, sizeof(where));
	check(count_graph(everywhere, first, 0, where) == 4 * device.sm_granule);
	check(count_graph(streams[1], first, 0, where) == 4 * device.sm_granule);
	check(count_launch(streams[0], where) == 4 * device.sm_granule);
	for (uint32_t i = 0; i < MOST; i++)
		twice += where[i] == 3;
	check(twice == 4 * device.sm_granule);
	check(count_graph(streams[0], 0, 0, unused) == all);
	memset(where, 0, sizeof(where));
	check(count_graph(everywhere, 0, first, where) == 4 * device.sm_granule);
	check(count_graph(everywhere, first, second, where) == 3 * device.sm_granule);
	check_beside(everywhere, where);
	for (int i = 0; i < 2; i++)
		ok(OPS->stream_destroy(streams[i]));
	ok(OPS->stream_destroy(everywhere));
}
