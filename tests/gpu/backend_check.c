// The cuda backend against a real GPU: the keeper role in a child process, an executor in this one,
// and every operation of backend.h with a result that is compared. Exit status 0: all good; 1:
// something is wrong; 77: no GPU here.
//
//   backend_check          run
//   backend_check --ptx    print the kernels' text (for ptxas)
//   backend_check --fence [fault]       the fence alone, also beside a fault
//   backend_check --trial [off|[leave] TIMES]   the proof that faults are contained: as it is,
//                                               where they are not, or so often, with leave of
//                                               warps that are not in their kernel's code
//
// The last check loses the context on purpose. Timings are printed for the reader and judged only
// where waiting for the device would be a bug.

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zstd.h>

#include "server/backend/cuda/cuda.h"
#include "server/backend/fatbin.h"
#include "server/role.h"
#include "tests/gpu/backend_bed.h"
#include "tests/gpu/backend_ptx.h"

static void check_device(void)
{
	printf("device: %s, driver %d, %.1f GiB, compute capability %d.%d, %d multiprocessors, priorities %d "
	       "… %d\n",
		device.name, device.driver_version, (double)device.total_bytes / (1 << 30),
		device.attributes[75], device.attributes[76], device.attributes[16], device.priority_least,
		device.priority_greatest);
	check(device.attributes[CU_DEVICE_ATTRIBUTE_WARP_SIZE] == 32);
	check(device.limits[CU_LIMIT_STACK_SIZE] > 0);
	check(device.priority_greatest < device.priority_least);
}

/* As the driver has them, and again for what is asked next. */
static void check_limits(void)
{
	uint64_t value = 0;

	ok(OPS->limit_set(CU_LIMIT_STACK_SIZE, 4096, &value));
	check(value >= 4096 && value < 8192);
	ok(OPS->limit_set(CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT, 5000, &value));
	check(value >= 5000);
	refused(OPS->limit_set(CU_LIMIT_STACK_SIZE, UINT64_C(1) << 40, &value), CUDA_ERROR_INVALID_VALUE);
	check(device.limits[CU_LIMIT_CIG_ENABLED] == BACKEND_NO_LIMIT ||
		device.limits[CU_LIMIT_CIG_ENABLED] < 2);
}

static void check_memory(int fd)
{
	uint64_t free_bytes = 0, total = 0;
	double begin;

	ok(OPS->window_reserve(WINDOW, WINDOW_BYTES));
	check(OPS->window_reserve(WINDOW, WINDOW_BYTES) != CUDA_SUCCESS);
	begin = now_us();
	ok(OPS->chunk_map(WINDOW, CHUNK_BYTES, fd));
	printf("map 64 MiB: %.0f us\n", now_us() - begin);
	check(OPS->chunk_map(WINDOW, CHUNK_BYTES, fd) != CUDA_SUCCESS);
	ok(OPS->memory_info(&free_bytes, &total));
	check(free_bytes < total && total >= CHUNK_BYTES);
}

static void check_host(void)
{
	int fd = memfd_create("backend_check", MFD_CLOEXEC);
	void *got;

	check(fd >= 0 && !ftruncate(fd, HOST_BYTES));
	got = mmap(at(HOST), HOST_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0);
	check(got == at(HOST));
	close(fd);
	ok(OPS->host_register(at(HOST), HOST_BYTES));
	check(OPS->host_register(at(HOST), HOST_BYTES) == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
}

static size_t write_ptx(char *text, size_t size)
{
	size_t length = (size_t)snprintf(text, size, "%s.visible .entry many(", ptx_head);

	for (int i = 0; i < PTX_MANY_WORDS; i++)
		length += (size_t)snprintf(text + length, size - length, ".param .u32 p%d, ", i);
	length += (size_t)snprintf(text + length, size - length, ".param .u64 out)\n%s", ptx_many);
	return length;
}

/* Code as compilers pack it. Return: on the heap */
static uint8_t *pack(const void *code, size_t bytes, size_t *ret_bytes)
{
	struct fatbin_header header = {FATBIN_MAGIC, 1, sizeof(header), 0};
	struct fatbin_entry entry = {FATBIN_KIND_ELF, 0x101, sizeof(entry) + sizeof(struct fatbin_target), 0};
	struct fatbin_target target = {
		.arch = cuda_arch(), .flags = FATBIN_FLAG_ZSTD, .unpacked_bytes = bytes};
	size_t room = ZSTD_compressBound(bytes), packed;
	uint8_t *fat = calloc(1, sizeof(header) + entry.header_bytes + room + 8),
		*at = fat + sizeof(header) + entry.header_bytes;

	packed = ZSTD_compress(at, room, code, bytes, 3);
	check(!ZSTD_isError(packed));
	target.packed_bytes = (uint32_t)packed;
	entry.payload_bytes = (packed + 7) / 8 * 8;
	header.payload_bytes = entry.header_bytes + entry.payload_bytes;
	memcpy(fat, &header, sizeof(header));
	memcpy(fat + sizeof(header), &entry, sizeof(entry));
	memcpy(fat + sizeof(header) + sizeof(entry), &target, sizeof(target));
	*ret_bytes = sizeof(header) + header.payload_bytes;
	return fat;
}

/* Compressed code is loaded if there is room for all of it, and not a byte less. */
static void check_room(const void *code, size_t bytes)
{
	size_t fat_bytes;
	uint8_t *fat = pack(code, bytes, &fat_bytes);
	struct backend_load load = {.image = fat, .bytes = fat_bytes, .room = bytes - 1};
	struct backend_module *packed;

	refused(OPS->module_load(&load, &packed), CUDA_ERROR_OUT_OF_MEMORY);
	load.room = bytes;
	ok(OPS->module_load(&load, &packed));
	check(load.unpacked == bytes);
	ok(OPS->module_unload(packed));
	free(fat);
}

static void check_modules(void)
{
	static const struct wire_option options[] = {
		{CU_JIT_MAX_REGISTERS, 0, 64}, {CU_JIT_INFO_LOG_BUFFER, 0, 99}};
	static const struct wire_option bad[] = {{CU_JIT_GLOBAL_SYMBOL_NAMES, 0, 1}};
	static const char bad_elf[80] = "\177ELF\2\1\1";
	struct backend_module *none;
	struct backend_load load;
	const char *names[16];
	char text[16384], log[1024] = "";
	size_t length = write_ptx(text, sizeof(text)), bytes;
	void *code;
	struct backend_global global;
	uint32_t count = 16;
	double begin = now_us();

	text[length] = 'x'; /* no NUL behind it, and something that does not belong to it */
	load = (struct backend_load){.image = text, .room = UINT64_MAX, .bytes = length};
	refused(OPS->module_load(&load, &none), CUDA_ERROR_JIT_COMPILER_NOT_FOUND);
	ok(OPS->module_compile(text, length, UINT64_MAX, &(struct wire_options){options, 2}, log, sizeof(log),
		&code, &bytes));
	load = (struct backend_load){.image = code, .room = UINT64_MAX, .bytes = bytes};
	ok(OPS->module_load(&load, &module));
	check_room(code, bytes);
	free(code);
	printf("compile and load text: %.0f us; log \"%.60s\"\n", now_us() - begin, log);
	refused(OPS->module_compile(text, length, UINT64_MAX, &(struct wire_options){bad, 1}, log,
			sizeof(log), &code, &bytes),
		CUDA_ERROR_NOT_SUPPORTED);
	refused(OPS->module_compile(
			".version 8.0\nnonsense", 21, UINT64_MAX, NULL, log, sizeof(log), &code, &bytes),
		CUDA_ERROR_INVALID_PTX);
	check(log[0]);
	printf("log of a bad text: %.60s\n", log);
	load = (struct backend_load){.room = UINT64_MAX,
		.image = bad_elf,
		.bytes = sizeof(bad_elf),
		.log = log,
		.log_bytes = sizeof(log)};
	refused(OPS->module_load(&load, &none), CUDA_ERROR_INVALID_IMAGE);
	ok(OPS->function_list(module, 0, names, &count));
	check(count == 10);
	count = 1;
	ok(OPS->function_list(module, 9, names, &count));
	check(count == 10 && !strcmp(names[0], names[9]));
	ok(OPS->global_find(module, "counter", false, &global));
	check(global.address && global.bytes == 4 && !global.constant);
	refused(OPS->global_find(module, "nothing_there", true, &global), CUDA_ERROR_NOT_FOUND);
}

struct echo_params {
	uint8_t a;
	uint64_t b;
	uint16_t c;
	uint32_t d[6];
	uint64_t out;
};

static void check_functions(void)
{
	static const uint32_t offsets[] = {0, 8, 16, 20, 48}, sizes[] = {1, 8, 2, 24, 8};
	struct backend_function *function = NULL;

	refused(OPS->function_find(module, "not_there", true, &function, &info), CUDA_ERROR_NOT_FOUND);
	ok(OPS->function_find(module, "echo", false, &function, &info));
	check(info.param_count == 5 && info.argument_bytes == sizeof(struct echo_params));
	for (int i = 0; i < 5; i++)
		check(info.params[i].offset == offsets[i] && info.params[i].size == sizes[i]);
	check(info.attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] >= 256);
	ok(OPS->function_set(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 65536));
	ok(OPS->function_find(module, "echo", true, &function, &info));
	check(info.attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] == 65536);
	ok(OPS->function_set(function, 1000, CU_FUNC_CACHE_PREFER_L1));
	check(OPS->function_set(function, CU_FUNC_ATTRIBUTE_NUM_REGS, 3) != CUDA_SUCCESS);
	ok(OPS->function_find(module, "nothing", true, &function, &info));
	check(info.param_count == 0 && info.argument_bytes == 0);
}

static void check_occupancy(void)
{
	struct frmps_launch_attribute cluster = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value = {2}};
	uint32_t grid[3] = {64, 1, 1}, block[3] = {128, 1, 1};
	struct wire_occupancy query = {
		.block_size = 128, .blocks = 2, .grid = {grid, 3}, .block = {block, 3}};
	struct backend_function *function = NULL;
	uint64_t value[4] = {0};

	cluster.value[4] = cluster.value[8] = 1;
	ok(OPS->function_find(module, "add", true, &function, &info));
	for (query.query = 0; query.query < 4; query.query++) {
		/* The last two ask about clusters, which began with compute capability 9.0. */
		if (query.query >= 2 && device.attributes[CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH] == 0)
			continue;
		query.attributes = query.query == 3
					   ? (struct wire_bytes){(const uint8_t *)&cluster, sizeof(cluster)}
					   : (struct wire_bytes){0};
		ok(OPS->occupancy(function, &query, 0, &value[query.query]));
		check(value[query.query] > 0);
	}
	printf("occupancy: %lu blocks, %lu bytes shared, cluster of %lu, %lu clusters\n",
		(unsigned long)value[0], (unsigned long)value[1], (unsigned long)value[2],
		(unsigned long)value[3]);
	query.query = 4;
	refused(OPS->occupancy(function, &query, 0, value), CUDA_ERROR_INVALID_VALUE);
}

struct add_params {
	uint64_t out, a, b;
	uint32_t count;
};

static void check_launch(void)
{
	struct backend_stream *stream = stream_new();
	uint32_t *a = at(HOST_DATA), *b = a + 4096, *out = b + 4096, wrong = 0;
	struct add_params params = {.out = WINDOW + 65536, .a = WINDOW, .b = WINDOW + 16384, .count = 4000};

	for (uint32_t i = 0; i < 4096; i++) {
		a[i] = i;
		b[i] = 5 * i + 1;
		out[i] = 0;
	}
	ok(copy_line(stream, WINDOW, HOST_DATA, 32768));
	ok(launch(stream, "add", &params, 16, 256));
	memset(&params, 0, sizeof(params)); /* the launch has its copy */
	ok(copy_line(stream, HOST_DATA + 32768, WINDOW + 65536, 16384));
	ok(OPS->mark(stream, at(MARK), 1));
	wait_mark(1);
	for (uint32_t i = 0; i < 4096; i++)
		wrong += out[i] != (i < 4000 ? 6 * i + 1 : 0);
	check(!wrong); /* beyond 4000: as the memory was made */
	wait_stream(stream);
	ok(OPS->stream_destroy(stream));
}

static void check_arguments(void)
{
	struct backend_stream *stream = stream_new();
	struct echo_params echo = {
		.a = 0xa1, .b = 0x1122334455667788, .c = 0xbeef, .d = {[5] = 0xcafe0001}, .out = HOST_DATA};
	struct {
		uint32_t words[PTX_MANY_WORDS];
		uint64_t out;
	} many = {.words = {[0] = 40, [PTX_MANY_WORDS - 1] = 2}, .out = HOST_DATA + 64};
	struct backend_launch short_one = {.grid = {1, 1, 1}, .block = {1, 1, 1}, .info = &info};
	uint8_t *out = at(HOST_DATA);

	memset(out, 0, 128);
	ok(launch(stream, "echo", &echo, 1, 1));
	ok(launch(stream, "many", &many, 1, 1));
	check(info.param_count == PTX_MANY_WORDS + 1);
	wait_stream(stream);
	check(!memcmp(out, &echo.b, 8) && !memcmp(out + 8, &echo.d[5], 4) && !memcmp(out + 12, &echo.c, 2) &&
		out[14] == echo.a);
	check(*(uint32_t *)(void *)(out + 64) == 42);
	ok(OPS->function_find(module, "echo", true, &short_one.function, &info));
	short_one.arguments = (const uint8_t *)&echo;
	short_one.argument_bytes = info.argument_bytes - 1;
	refused(OPS->launch(stream, &short_one), CUDA_ERROR_INVALID_VALUE);
	refused(launch(stream, "nothing", NULL, 1, 2048), CUDA_ERROR_INVALID_VALUE);
	refused(launch(stream, "nothing", NULL, 0, 1), CUDA_ERROR_INVALID_VALUE);
	ok(OPS->stream_destroy(stream));
}

static void check_attributes(void)
{
	struct backend_stream *stream = stream_new();
	struct frmps_launch_attribute attributes[2] = {{.id = CU_LAUNCH_ATTRIBUTE_PRIORITY},
		{.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value = {2}}};
	struct backend_launch shape = {.grid = {8, 1, 1},
		.block = {32, 1, 1},
		.cooperative = true,
		.attributes = attributes,
		.attribute_count = 1};
	uint64_t out = HOST_DATA;
	uint32_t *ranks = at(HOST_DATA), wrong = 0;

	attributes[1].value[4] = attributes[1].value[8] = 1;
	memset(ranks, 0, 64);
	ok(launch_shaped(stream, "rank", &out, &shape));
	wait_stream(stream);
	for (uint32_t i = 0; i < 8; i++)
		wrong += ranks[i] != i + 1;
	shape.cooperative = false;
	shape.attribute_count = 2;
	memset(ranks, 0, 64);
	if (device.attributes[CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH]) {
		ok(launch_shaped(stream, "rank", &out, &shape));
		wait_stream(stream);
		for (uint32_t i = 0; i < 8; i++)
			wrong += ranks[i] != i + 1;
	}
	check(!wrong);
	attributes[0].id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
	refused(launch_shaped(stream, "rank", &out, &shape), CUDA_ERROR_NOT_SUPPORTED);
	shape = (struct backend_launch){.grid = {100000, 1, 1}, .block = {1024, 1, 1}, .cooperative = true};
	refused(launch_shaped(stream, "nothing", NULL, &shape), CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
	ok(OPS->stream_destroy(stream));
}

static void check_words(void)
{
	struct backend_stream *stream = stream_new();
	uint64_t *words = at(HOST_DATA);

	words[0] = words[1] = words[2] = UINT64_MAX;
	ok(OPS->write_value(stream,
		&(struct frmps_write_value){.address = HOST_DATA, .value = 0x1122334455667788, .bytes = 8}));
	ok(OPS->write_value(
		stream, &(struct frmps_write_value){
				.address = HOST_DATA + 8, .value = 0x99aabbcc, .bytes = 4, .flags = 1}));
	ok(OPS->write_value(
		stream, &(struct frmps_write_value){.address = WINDOW + 512, .value = 77, .bytes = 8}));
	ok(copy_line(stream, HOST_DATA + 16, WINDOW + 512, 8));
	wait_stream(stream);
	check(words[0] == 0x1122334455667788 && words[1] == 0xffffffff99aabbcc && words[2] == 77);
	refused(OPS->write_value(stream, &(struct frmps_write_value){.address = HOST_DATA, .bytes = 2}),
		CUDA_ERROR_INVALID_VALUE);
	ok(OPS->stream_destroy(stream));
}

static void check_events(void)
{
	struct backend_stream *first = stream_new(), *second = stream_new();
	struct backend_event *start = NULL, *end = NULL, *join = NULL;
	struct backend_time from, to;

	ok(OPS->event_create(true, &start));
	ok(OPS->event_create(true, &end));
	ok(OPS->event_create(false, &join));
	word_set((word64 *)at(MARK), 0);
	ok(OPS->event_record(start, first));
	close_gate(first, 1, 1);
	ok(OPS->event_record(end, first));
	ok(OPS->event_record(join, first));
	ok(OPS->stream_wait(second, join));
	ok(OPS->event_destroy(join));
	ok(OPS->mark(second, at(MARK), 5));
	refused(OPS->stream_query(first), CUDA_ERROR_NOT_READY);
	refused(OPS->stream_query(second), CUDA_ERROR_NOT_READY);
	refused(OPS->event_time(end, &to), CUDA_ERROR_NOT_READY);
	usleep(20000); /* a length to measure */
	check(word_acquire((word64 *)at(MARK)) == 0);
	open_gate();
	wait_mark(5);
	wait_stream(first);
	ok(OPS->event_time(start, &from));
	ok(OPS->event_time(end, &to));
	check(to.local - from.local >= 15000000 && to.local - from.local < INT64_C(10000000000));
	check(to.device - from.device == to.local - from.local);
	ok(OPS->event_destroy(start));
	ok(OPS->event_destroy(end));
	ok(OPS->stream_destroy(first));
	ok(OPS->stream_destroy(second));
}

/* A kernel is looked up and runs beside one that does not end. */
static void check_lookup_beside(void)
{
	struct backend_stream *busy = stream_new(), *other = stream_new();
	struct backend_launch late = {.grid = {1, 1, 1}, .block = {1, 1, 1}, .info = &info};
	pthread_t thread;

	close_gate(busy, 1, 1);
	pthread_create(&thread, NULL, watchdog, (void *)(uintptr_t)3000);
	ok(OPS->function_find(module, "late", false, &late.function, &info));
	ok(OPS->launch(other, &late));
	wait_stream(other);
	check(!gate_is_open());
	open_gate();
	pthread_join(thread, NULL);
	wait_stream(busy);
	ok(OPS->stream_destroy(busy));
	ok(OPS->stream_destroy(other));
}

static void observe_rates(void)
{
	enum { COUNT = 20000 };
	struct backend_stream *stream = stream_new();
	struct backend_launch launch_one = {.grid = {1, 1, 1}, .block = {32, 1, 1}, .info = &info};
	double begin, issued;

	ok(OPS->function_find(module, "nothing", true, &launch_one.function, &info));
	for (uint64_t every = 1; every <= 32; every *= 32) {
		begin = now_us();
		for (uint64_t i = 1; i <= COUNT; i++) {
			ok(OPS->launch(stream, &launch_one));
			if (i % every == 0)
				ok(OPS->mark(stream, at(MARK), 1000000 * every + i));
		}
		issued = now_us();
		wait_mark(1000000 * every + COUNT);
		printf("launch with a mark every %lu: %.2f us issued, %.2f us done\n", (unsigned long)every,
			(issued - begin) / COUNT, (now_us() - begin) / COUNT);
	}
	ok(OPS->stream_destroy(stream));
}

/* The end of the context, seen by a query, and what survives it. */
static void check_loss(uint64_t handle)
{
	struct backend_stream *stream = stream_new();
	double begin = now_us();
	CUresult code;

	ok(launch(stream, "crash", NULL, 1, 1));
	while ((code = OPS->stream_query(stream)) == CUDA_ERROR_NOT_READY && now_us() < begin + 10e6)
		;
	printf("a trap: code %d after %.0f ms\n", (int)code, (now_us() - begin) / 1e3);
	check(code == CUDA_ERROR_LAUNCH_FAILED && backend_is_fatal(code));
	check(backend_is_fatal(OPS->mark(stream, at(MARK), 1)));
	ask(WIRE_PING, 0, 0);
	ok((CUresult)keeper.answer.reply.code);
	ask(WIRE_RELEASE_CHUNK, 0, handle);
	ok((CUresult)keeper.answer.reply.code);
}

/* Same memory in a fresh mapping: what the first one wrote is there. */
static void check_remap(int fd)
{
	struct backend_stream *stream = stream_new();
	uint64_t elsewhere = WINDOW + (UINT64_C(1) << 36);
	uint32_t *word = at(HOST_DATA);

	ok(OPS->set(stream,
		&(struct frmps_set){
			.dst = WINDOW + 4096, .width = 1, .height = 1, .value = 4711, .element_bytes = 4}));
	wait_stream(stream);
	ok(OPS->chunk_unmap(WINDOW, CHUNK_BYTES));
	ok(OPS->chunk_map(elsewhere, CHUNK_BYTES, fd));
	*word = 0;
	ok(copy_line(stream, HOST_DATA, elsewhere + 4096, 4));
	wait_stream(stream);
	check(*word == 4711);
	ok(OPS->chunk_unmap(elsewhere, CHUNK_BYTES));
	ok(OPS->window_release(WINDOW, WINDOW_BYTES));
	ok(OPS->stream_destroy(stream));
}

static uint64_t count_others(struct backend_stream *stream, uint64_t address, uint64_t word)
{
	const uint64_t *words = at(HOST_DATA);
	uint64_t others = 0;

	for (uint64_t offset = 0; offset < CHUNK_BYTES; offset += SIDE) {
		ok(copy_line(stream, HOST_DATA, address + offset, SIDE));
		wait_stream(stream);
		for (uint64_t i = 0; i < SIDE / sizeof(*words); i++)
			others += words[i] != word;
	}
	return others;
}

/* A chunk is zero although the one before it, likely in the same place, was not. */
static void check_fresh(void)
{
	const uint64_t address = WINDOW + (UINT64_C(2) << 36);
	struct backend_stream *stream = stream_new();
	uint64_t wrong = 0, handle;

	for (int round = 0; round < 8; round++) {
		int fd = make_chunk(CHUNK_BYTES, &handle);

		ok(OPS->chunk_map(address, CHUNK_BYTES, fd));
		wrong += count_others(stream, address, 0);
		ok(OPS->set(stream, &(struct frmps_set){.dst = address,
					    .width = CHUNK_BYTES,
					    .height = 1,
					    .value = 0xab,
					    .element_bytes = 1}));
		wait_stream(stream);
		ok(OPS->chunk_unmap(address, CHUNK_BYTES));
		close(fd);
		ask(WIRE_RELEASE_CHUNK, 0, handle);
	}
	check(!wrong);
	ok(OPS->stream_destroy(stream));
}

/* What a killed keeper has made is there for whoever maps it, and then for the holder of the
 * descriptor alone.
 * @next: the one that is asked from here on */
static void check_outlives(int fd, const struct keeper_end *next, uint64_t *ret_handle)
{
	struct backend_stream *stream = stream_new();

	ok(OPS->set(stream, &(struct frmps_set){.dst = WINDOW,
				    .width = CHUNK_BYTES,
				    .height = 1,
				    .value = 0x5a,
				    .element_bytes = 1}));
	wait_stream(stream);
	kill_keeper();
	check(!count_others(stream, WINDOW, UINT64_C(0x5a5a5a5a5a5a5a5a)));
	ok(OPS->chunk_unmap(WINDOW, CHUNK_BYTES));
	ok(OPS->chunk_map(WINDOW, CHUNK_BYTES, fd));
	check(!count_others(stream, WINDOW, UINT64_C(0x5a5a5a5a5a5a5a5a)));
	ok(OPS->stream_destroy(stream));
	keeper = *next;
	close(make_chunk(CHUNK_BYTES, ret_handle));
}

static void check_work(void)
{
	check_fresh();

	check_launch();
	check_arguments();
	check_attributes();
	check_copies(false, true);
	check_copies(true, false);
	check_copies(false, false);
	check_sets();
	check_words();
	check_events();
	check_nothing_waits();
	check_lookup_beside();
	check_caches();
	check_constants();
	check_local_memory();
	check_large_module();
	check_changes();
	check_groups();
	observe_rates();
}

/* The process has a context in which kernels have faulted: it ends without the driver's cleaning
 * up. */
static _Noreturn void run_trial(int count, char **words)
{
	bool leave = count > 1 && !strcmp(words[0], "leave");

	if (!count || !strcmp(words[0], "off"))
		check_trial(count > 0);
	else
		check_trials((unsigned)strtoul(words[leave], NULL, 10), leave);
	printf("%d failures\n", failures);
	_exit(failures ? 1 : 0);
}

enum end { END_LOSS, END_FENCE, END_FENCE_FAULT };

static void run(enum end end)
{
	struct keeper_end next = {.socket = -1};
	uint64_t handle = 0;
	double begin;
	int fd;

	/* Both before the driver is opened here: a child of a process that has opened it cannot. */
	if (end == END_LOSS) {
		start_keeper();
		next = keeper;
	}
	start_keeper();
	begin = now_us();
	ok(OPS->open_executor(0, &device));
	ok(OPS->thread_enter());
	printf("context: %.0f ms\n", (now_us() - begin) / 1e3);
	check_device();
	check_limits();
	fd = make_chunk(CHUNK_BYTES, &handle);
	check(fd >= 0);
	check_memory(fd);
	check_host();
	check_modules();
	if (failures)
		return; /* nothing to work with */
	if (end == END_LOSS) {
		check_functions();
		check_occupancy();
		check_work();
		check_outlives(fd, &next, &handle);
		check_remap(fd);
		check_loss(handle);
	} else {
		check_fence(end == END_FENCE_FAULT);
	}
	close(fd);
	end_keeper();
}

int main(int argc, char **argv)
{
	char queues[16];
	struct backend_probe probe;
	char text[16384];
	CUresult code;

	if (argc > 1 && !strcmp(argv[1], "--ptx")) {
		write_ptx(text, sizeof(text));
		return puts(text) < 0;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	code = OPS->probe(&probe);
	printf("probe: %s\n", probe.text);
	if (code)
		return 77;
	check(probe.unfit[0] == UNFIT_NOT);
	setenv("CUDA_MODULE_LOADING", "LAZY", 1);
	snprintf(queues, sizeof(queues), "%d", HERITAGE_QUEUES);
	setenv("CUDA_DEVICE_MAX_CONNECTIONS", queues, 1);
	if (argc > 1 && !strcmp(argv[1], "--trial"))
		run_trial(argc - 2, &argv[2]);
	run(argc > 1 && !strcmp(argv[1], "--fence") ? argc > 2 ? END_FENCE_FAULT : END_FENCE : END_LOSS);
	printf("%d failures\n", failures);
	return failures ? 1 : 0;
}
