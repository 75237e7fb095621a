// Checks of requests, against the holdings that requests before them have left.

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "protocol/cuda_abi.h"
#include "server/backend/backend.h"
#include "server/loop/shared_fd.h"
#include "server/resource/check.h"
#include "server/session/chunk.h"
#include "server/resource/resource.h"
#include "server/session/holdings.h"
#include "server/session/window.h"
#include "tests/lib/suite.h"
#include "tests/unit/server/fake_children.h"

#define MIB  (UINT64_C(1) << 20)
#define GIB  (UINT64_C(1) << 30)
#define BASE WINDOW_GRID_BASE

static struct holdings *holdings;
static struct check scope;

/* A device of 4096 threads. */
static const struct backend_device device = {.total_bytes = 16 * MIB,
	.attributes = {[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT] = 4,
		[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR] = 1024},
	.limits = {[CU_LIMIT_STACK_SIZE] = 1024}};

static void hold(void)
{
	holdings = malloc(sizeof(*holdings));
	holdings_init(holdings);
	holdings->device = &device;
	scope = (struct check){.window_base = BASE,
		.device_bytes = WINDOW_DEVICE_BYTES,
		.host_bytes = WINDOW_HOST_BYTES,
		.holdings = holdings};
}

static void let_go(void)
{
	holdings_deinit(holdings);
	free(holdings);
}

static void note(const struct wire_message *message)
{
	const struct wire_u64s none = {0};
	struct holding *entry;

	ck_assert_int_eq(resource_note(holdings, message, &none, NULL, NULL, &entry), 0);
}

static int check(struct wire_message *message, int fd)
{
	message->id = message->id ? message->id : 1;
	scope.file = fd;
	scope.finding = (struct check_finding){0};
	return check_request(&scope, message);
}

#define HOST (BASE + WINDOW_DEVICE_BYTES)

static const struct {
	enum wire_type type;
	uint64_t address, bytes;
	int outcome;
} ranges[] = {
	{WIRE_MAP_MEMORY, BASE, 2 * MIB, 0},
	{WIRE_MAP_MEMORY, BASE, WINDOW_DEVICE_BYTES, CHECK_E_BROKEN}, /* over what is mapped */
	{WIRE_MAP_MEMORY, BASE + 2 * MIB, WINDOW_DEVICE_BYTES - 2 * MIB, CHECK_E_BROKEN},
	{WIRE_MAP_MEMORY, HOST - 2 * MIB, 2 * MIB, 0},
	{WIRE_MAP_MEMORY, HOST - 2 * MIB, 4 * MIB, CHECK_E_BROKEN},
	{WIRE_MAP_MEMORY, HOST, 2 * MIB, CHECK_E_BROKEN},
	{WIRE_MAP_MEMORY, BASE - 2 * MIB, 2 * MIB, CHECK_E_BROKEN},
	{WIRE_MAP_MEMORY, 0, 2 * MIB, CHECK_E_BROKEN},
	{WIRE_MAP_MEMORY, BASE, 0, CHECK_E_BROKEN},
	{WIRE_MAP_MEMORY, BASE + 4096, 2 * MIB, CHECK_E_BROKEN},
	{WIRE_MAP_MEMORY, BASE, MIB, CHECK_E_BROKEN},
	{WIRE_MAP_MEMORY, BASE, UINT64_MAX - (2 * MIB - 1), CHECK_E_BROKEN},
	{WIRE_MAP_MEMORY, UINT64_MAX - (2 * MIB - 1), 2 * MIB, CHECK_E_BROKEN},
	{WIRE_MAP_MEMORY, BASE + 10 * MIB, 2 * MIB, CHECK_E_BROKEN},
	{WIRE_MAP_MEMORY, BASE + 8 * MIB, 4 * MIB, CHECK_E_BROKEN},
	{WIRE_MAP_MEMORY, BASE + 12 * MIB, 2 * MIB, 0},
	{WIRE_UNMAP_MEMORY, BASE + 10 * MIB, 2 * MIB, 0},
	{WIRE_UNMAP_MEMORY, BASE + 10 * MIB, 4 * MIB, CHECK_E_BROKEN},
	{WIRE_UNMAP_MEMORY, BASE, 2 * MIB, CHECK_E_BROKEN},
	{WIRE_MAP_HOST, HOST, 4096, 0},
	{WIRE_MAP_HOST, HOST, WINDOW_HOST_BYTES + 4096, CHECK_E_BROKEN},
	{WIRE_MAP_HOST, BASE, 4096, CHECK_E_BROKEN},
	{WIRE_MAP_HOST, HOST + 1, 4096, CHECK_E_BROKEN},
	{WIRE_UNMAP_HOST, HOST, 4096, CHECK_E_BROKEN},
};

TEST_LOOP(requests, ranges_lie_in_the_window_and_apart, 0, sizeof(ranges) / sizeof(ranges[0]))
{
	struct wire_message mapped = {
		.type = WIRE_MAP_MEMORY, .range = {.address = BASE + 10 * MIB, .bytes = 2 * MIB}};
	struct wire_message message = {
		.type = ranges[_i].type, .range = {.address = ranges[_i].address, .bytes = ranges[_i].bytes}};

	note(&mapped);
	ck_assert_int_eq(check(&message, -1), ranges[_i].outcome);
	if (ranges[_i].outcome == CHECK_E_BROKEN)
		ck_assert_ptr_nonnull(scope.finding.reason);
}

/* What kernels allocate lies there, beside what the keeper makes. */
TEST(requests, the_heap_of_kernels_is_device_memory_too)
{
	struct wire_message heap = {.type = WIRE_SET_LIMIT, .limit = {CU_LIMIT_MALLOC_HEAP_SIZE, 7 * MIB}};
	struct wire_message map = {.type = WIRE_MAP_MEMORY, .range = {BASE, 4 * MIB, 0}};

	scope.memory_limit = 6 * MIB;
	ck_assert_int_eq(check(&heap, -1), CHECK_E_ANSWER);
	ck_assert_int_eq(scope.finding.code, CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_str_eq(scope.finding.limit, "memory_limit");
	heap.limit.value = 4 * MIB;
	ck_assert_int_eq(check(&heap, -1), 0);
	note(&heap);
	ck_assert_int_eq(check(&map, -1), CHECK_E_ANSWER);
	/* One takes the other's place. */
	heap.limit.value = 6 * MIB;
	ck_assert_int_eq(check(&heap, -1), 0);
	heap.limit.value = 2 * MIB;
	note(&heap);
	ck_assert_uint_eq(holdings->memory_bytes, 2 * MIB);
	ck_assert_uint_eq(holdings->owned_bytes, 2 * MIB);
	ck_assert_int_eq(check(&map, -1), 0);
	note(&map);
	heap.limit.value = 3 * MIB;
	ck_assert_int_eq(check(&heap, -1), CHECK_E_ANSWER);
	ck_assert_str_eq(scope.finding.limit, "memory_limit");
	/* No device has as much: it is not even asked. */
	scope.memory_limit = 0;
	heap.limit.value = 19 * MIB;
	ck_assert_int_eq(check(&heap, -1), CHECK_E_ANSWER);
	ck_assert_int_eq(scope.finding.code, CUDA_ERROR_OUT_OF_MEMORY);
}

/* All threads of the device have it, beyond what they have in every context. */
TEST(requests, the_stack_of_kernels_is_device_memory_too)
{
	struct wire_message stack = {.type = WIRE_SET_LIMIT, .limit = {CU_LIMIT_STACK_SIZE, 2048}};
	struct wire_message map = {.type = WIRE_MAP_MEMORY, .range = {BASE, 4 * MIB, 0}};

	scope.memory_limit = 6 * MIB;
	ck_assert_int_eq(check(&stack, -1), 0);
	note(&stack);
	ck_assert_uint_eq(holdings->memory_bytes, 4 * MIB);
	ck_assert_uint_eq(holdings->owned_bytes, 4 * MIB);
	ck_assert_int_eq(check(&map, -1), CHECK_E_ANSWER);
	stack.limit.value = 2560;
	ck_assert_int_eq(check(&stack, -1), 0);
	stack.limit.value = 2561;
	ck_assert_int_eq(check(&stack, -1), CHECK_E_ANSWER);
	ck_assert_int_eq(scope.finding.code, CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_str_eq(scope.finding.limit, "memory_limit");
	stack.limit.value = 1024;
	note(&stack);
	ck_assert_uint_eq(holdings->memory_bytes, 0);
	scope.memory_limit = 0;
	stack.limit.value = INT64_MAX;
	ck_assert_int_eq(check(&stack, -1), CHECK_E_ANSWER);
}

TEST(requests, memory_limit_is_an_answer)
{
	struct wire_message message = {.type = WIRE_MAP_MEMORY, .range = {.address = BASE, .bytes = 4 * MIB}};

	scope.memory_limit = 6 * MIB;
	ck_assert_int_eq(check(&message, -1), 0);
	note(&message);
	message.range.address += 4 * MIB;
	ck_assert_int_eq(check(&message, -1), CHECK_E_ANSWER);
	ck_assert_int_eq(scope.finding.code, CUDA_ERROR_OUT_OF_MEMORY);
	message.range.bytes = 2 * MIB;
	ck_assert_int_eq(check(&message, -1), 0);
	holdings_remove(holdings, holdings_find_range(holdings, WIRE_MAP_MEMORY, BASE, 4 * MIB));
	ck_assert_uint_eq(holdings->memory_bytes, 0);
}

/* Against: memory 1 of 4 MiB, free; memory 2 of 2 MiB, mapped at the start of the window; a further
 * window, number 100; host memory 4 of 2 MiB, free; memory 5, lost. */
static const struct {
	enum wire_type type;
	struct wire_memory memory;
	int outcome;
} physical[] = {
	{WIRE_CREATE_MEMORY, {.handle = 3, .bytes = 2 * MIB}, 0},
	{WIRE_CREATE_MEMORY, {.handle = 0, .bytes = 2 * MIB}, CHECK_E_BROKEN},
	{WIRE_CREATE_MEMORY, {.handle = 1, .bytes = 2 * MIB}, CHECK_E_BROKEN},
	{WIRE_CREATE_MEMORY, {.handle = 3, .bytes = 0}, CHECK_E_BROKEN},
	{WIRE_CREATE_MEMORY, {.handle = 3, .bytes = 2 * MIB + 4096}, CHECK_E_BROKEN},
	{WIRE_CREATE_MEMORY, {.handle = 3, .bytes = 64 * MIB}, CHECK_E_ANSWER}, /* over the limit */
	{WIRE_CREATE_MEMORY, {.handle = 3, .bytes = 64 * MIB, .host = true}, 0},
	{WIRE_CREATE_MEMORY, {.handle = 3, .bytes = 128 * MIB, .host = true}, CHECK_E_ANSWER},
	{WIRE_RELEASE_MEMORY, {.handle = 1}, 0},
	{WIRE_RELEASE_MEMORY, {.handle = 4}, 0},
	{WIRE_RELEASE_MEMORY, {.handle = 2}, CHECK_E_BROKEN}, /* is mapped */
	{WIRE_RELEASE_MEMORY, {.handle = 3}, CHECK_E_ANSWER},
	{WIRE_IMPORT_MEMORY, {.handle = 3}, 0},
	{WIRE_IMPORT_MEMORY, {.handle = 1}, CHECK_E_BROKEN},
	{WIRE_MAP_HANDLE, {.handle = 1, .address = BASE + 2 * MIB, .bytes = 4 * MIB}, 0},
	{WIRE_MAP_HANDLE, {.handle = 2, .address = BASE + 2 * MIB, .bytes = 2 * MIB}, 0},
	{WIRE_MAP_HANDLE, {.handle = 3, .address = BASE + 2 * MIB, .bytes = 2 * MIB}, CHECK_E_ANSWER},
	{WIRE_MAP_HANDLE, {.handle = 1, .address = BASE + 2 * MIB, .bytes = 2 * MIB}, CHECK_E_BROKEN},
	{WIRE_MAP_HANDLE, {.handle = 1, .address = BASE, .bytes = 4 * MIB}, CHECK_E_BROKEN}, /* over 2 */
	{WIRE_MAP_HANDLE, {.handle = 1, .address = BASE + 3 * MIB, .bytes = 4 * MIB}, CHECK_E_BROKEN},
	{WIRE_MAP_HANDLE, {.handle = 1, .address = HOST - 2 * MIB, .bytes = 4 * MIB}, CHECK_E_BROKEN},
	{WIRE_MAP_HANDLE, {.handle = 1, .address = HOST, .bytes = 4 * MIB}, CHECK_E_BROKEN},
	{WIRE_MAP_HANDLE, {.handle = 4, .address = HOST, .bytes = 2 * MIB}, 0},
	{WIRE_MAP_HANDLE, {.handle = 4, .address = HOST + MIB, .bytes = 2 * MIB}, CHECK_E_BROKEN},
	{WIRE_MAP_HANDLE, {.handle = 4, .address = BASE + 2 * MIB, .bytes = 2 * MIB}, CHECK_E_ANSWER},
	{WIRE_MAP_HANDLE, {.handle = 4, .address = BASE + 100 * WINDOW_BYTES, .bytes = 2 * MIB},
		CHECK_E_ANSWER},
	{WIRE_MAP_HANDLE, {.handle = 5, .address = BASE + 2 * MIB, .bytes = 2 * MIB}, CHECK_E_ANSWER},
	{WIRE_MAP_HANDLE, {.handle = 1, .address = BASE + 100 * WINDOW_BYTES, .bytes = 4 * MIB}, 0},
	{WIRE_MAP_HANDLE, {.handle = 1, .address = BASE + 101 * WINDOW_BYTES - 4 * MIB, .bytes = 4 * MIB}, 0},
	{WIRE_MAP_HANDLE, {.handle = 1, .address = BASE + 101 * WINDOW_BYTES - 2 * MIB, .bytes = 4 * MIB},
		CHECK_E_BROKEN},
	{WIRE_MAP_HANDLE, {.handle = 1, .address = BASE + 99 * WINDOW_BYTES, .bytes = 4 * MIB},
		CHECK_E_BROKEN},
	{WIRE_MAP_HANDLE, {.handle = 1, .address = UINT64_MAX - (2 * MIB - 1), .bytes = 4 * MIB},
		CHECK_E_BROKEN},
};

TEST_LOOP(requests, physical_memory_is_checked, 0, sizeof(physical) / sizeof(*physical))
{
	struct wire_message had[] = {
		{.type = WIRE_CREATE_MEMORY, .memory = {.handle = 1, .bytes = 4 * MIB}},
		{.type = WIRE_CREATE_MEMORY, .memory = {.handle = 2, .bytes = 2 * MIB}},
		{.type = WIRE_RESERVE_WINDOW,
			.window = {.address = BASE + 100 * WINDOW_BYTES, .bytes = WINDOW_BYTES}},
		{.type = WIRE_MAP_MEMORY, .range = {.address = BASE, .bytes = 2 * MIB}},
		{.type = WIRE_CREATE_MEMORY, .memory = {.handle = 4, .bytes = 2 * MIB}},
		{.type = WIRE_CREATE_MEMORY, .memory = {.handle = 5, .bytes = 2 * MIB}},
	};
	struct wire_message message = {.type = physical[_i].type, .memory = physical[_i].memory};
	static struct shared_fd file;
	static struct chunk chunks[3]; /* the holdings keep them until the teardown */
	struct chunk *const of[] = {&chunks[0], &chunks[1], NULL, &chunks[1], &chunks[2], NULL};
	const struct wire_u64s none = {0};
	struct holding *entry;

	for (int i = 0; i < 3; i++) {
		chunks[i] = (struct chunk){
			.refs = 9, .kind = i == 2 ? CHUNK_HOST : CHUNK_DEVICE, .fd = i == 2 ? &file : NULL};
		TAILQ_INIT(&chunks[i].owners);
	}
	scope.memory_limit = 32 * MIB;
	scope.pinned_limit = 100 * MIB;
	for (int i = 0; i < 6; i++)
		ck_assert_int_eq(resource_note(holdings, &had[i], &none, NULL, of[i], &entry), 0);
	ck_assert_uint_eq(holdings->memory_bytes, 8 * MIB);
	ck_assert_uint_eq(holdings->host_bytes, 2 * MIB);
	ck_assert_uint_eq(chunks[1].holders, 2);
	ck_assert_int_eq(check(&message, -1), physical[_i].outcome);
}

TEST(requests, windows_are_whole_and_their_own)
{
	struct wire_message reserve = {.type = WIRE_RESERVE_WINDOW, .window = {.bytes = (64 * GIB)}};
	struct wire_message release = {.type = WIRE_RELEASE_WINDOW};
	struct wire_message map = {.type = WIRE_MAP_MEMORY};

	ck_assert_int_eq(check(&reserve, -1), 0);
	reserve.window.alignment = 3 * MIB;
	ck_assert_int_eq(check(&reserve, -1), CHECK_E_BROKEN);
	reserve.window = (struct wire_window){.address = BASE + 4096, .bytes = (64 * GIB)};
	ck_assert_int_eq(check(&reserve, -1), CHECK_E_BROKEN);
	reserve.window = (struct wire_window){.bytes = (64 * GIB) + 4096};
	ck_assert_int_eq(check(&reserve, -1), CHECK_E_BROKEN);
	reserve.window.bytes = 0;
	ck_assert_int_eq(check(&reserve, -1), CHECK_E_BROKEN);
	reserve.window =
		(struct wire_window){.address = BASE + 64 * WINDOW_BYTES, .bytes = (64 * GIB) + 2 * MIB};
	ck_assert_int_eq(check(&reserve, -1), 0);
	note(&reserve);

	release.window = reserve.window;
	ck_assert_int_eq(check(&release, -1), 0);
	release.window.bytes -= 2 * MIB;
	ck_assert_int_eq(check(&release, -1), CHECK_E_BROKEN);
	release.window = (struct wire_window){.address = BASE, .bytes = WINDOW_BYTES};
	ck_assert_int_eq(check(&release, -1), CHECK_E_BROKEN);
	map.range.address = reserve.window.address + 4 * MIB;
	map.range.bytes = 2 * MIB;
	note(&map);
	release.window = reserve.window;
	ck_assert_int_eq(check(&release, -1), CHECK_E_BROKEN);

	for (uint32_t i = 1; i < HOLDINGS_WINDOWS_MAX; i++) {
		reserve.window = (struct wire_window){.bytes = 2 * MIB};
		ck_assert_int_eq(check(&reserve, -1), 0);
		reserve.window.address = BASE + 66 * WINDOW_BYTES + i * 2 * MIB;
		note(&reserve);
	}
	ck_assert_int_eq(check(&reserve, -1), CHECK_E_ANSWER);
	ck_assert_int_eq(scope.finding.code, CUDA_ERROR_OUT_OF_MEMORY);
}

/* Where a session has pinned memory of the program's sessions on other devices. */
TEST(requests, windows_for_pinned_memory_have_an_address_and_stay)
{
	const uint64_t far = BASE + 64 * WINDOW_BYTES;
	struct wire_message reserve = {
		.type = WIRE_RESERVE_WINDOW, .window = {.bytes = 64 * GIB, .host = true}};
	struct wire_message release = {.type = WIRE_RELEASE_WINDOW};
	struct wire_message map = {.type = WIRE_MAP_HANDLE, .memory = {.bytes = 2 * MIB, .address = far}};
	struct wire_message plain = {.type = WIRE_MAP_HOST, .range = {far, 4096, 0}}, unmap;
	struct wire_message create = {.type = WIRE_CREATE_MEMORY, .memory = {.bytes = 2 * MIB}}, again;
	static struct chunk chunks[2];
	struct holding *entry;

	ck_assert_int_eq(check(&reserve, -1), CHECK_E_BROKEN);
	reserve.window.address = far;
	ck_assert_int_eq(check(&reserve, -1), 0);
	note(&reserve);
	resource_again(holdings_find_range(holdings, WIRE_RESERVE_WINDOW, far, 64 * GIB), 1, &again);
	ck_assert(again.window.host);
	release.window = reserve.window;
	ck_assert_int_eq(check(&release, -1), CHECK_E_BROKEN);
	for (uint64_t i = 0; i < 2; i++) {
		chunks[i] = (struct chunk){.refs = 9, .kind = i ? CHUNK_HOST : CHUNK_DEVICE};
		TAILQ_INIT(&chunks[i].owners);
		create.memory.handle = map.memory.handle = i + 1;
		ck_assert_int_eq(
			resource_note(holdings, &create, &(struct wire_u64s){0}, NULL, &chunks[i], &entry),
			0);
		ck_assert_int_eq(check(&map, -1), i ? 0 : CHECK_E_BROKEN);
	}
	/* Not over its end, and only memory with a handle. */
	map.memory.address = far + 64 * GIB;
	ck_assert_int_eq(check(&map, -1), CHECK_E_ANSWER);
	ck_assert_int_eq(check(&plain, -1), CHECK_E_BROKEN);
	unmap = (struct wire_message){.type = WIRE_UNMAP_HOST, .range = {far, 2 * MIB, 0}};
	ck_assert_int_eq(check(&unmap, -1), CHECK_E_BROKEN);
	plain.range.bytes = 2 * MIB;
	ck_assert_int_eq(
		resource_note(holdings, &plain, &(struct wire_u64s){0}, NULL, &chunks[1], &entry), 0);
	ck_assert_int_eq(check(&unmap, -1), 0);
}

TEST(requests, tensor_maps_have_the_ranks_that_they_say)
{
	const uint64_t wide[16] = {0};
	const uint32_t narrow[5] = {0};
	struct wire_message map = {.type = WIRE_ENCODE_TENSOR_MAP,
		.tensor_map = {.rank = 2,
			.dims = {wide, 2},
			.strides = {wide, 1},
			.box = {narrow, 2},
			.element_strides = {narrow, 2}}};

	ck_assert_int_eq(check(&map, -1), 0);
	map.tensor_map.strides.count = 0;
	ck_assert_int_eq(check(&map, -1), CHECK_E_BROKEN);
	map.tensor_map.strides.count = 1;
	map.tensor_map.box.count = 1;
	ck_assert_int_eq(check(&map, -1), CHECK_E_BROKEN);
	map.tensor_map.box.count = 2;
	map.tensor_map.kind = 1; /* without corners */
	ck_assert_int_eq(check(&map, -1), CHECK_E_BROKEN);
	map.tensor_map.kind = 2; /* without a map */
	ck_assert_int_eq(check(&map, -1), CHECK_E_BROKEN);
	map.tensor_map.map = (struct wire_u64s){wide, 16};
	ck_assert_int_eq(check(&map, -1), 0);
	map.tensor_map.kind = 3;
	ck_assert_int_eq(check(&map, -1), CHECK_E_BROKEN);
}

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

TEST(requests, images_are_sealed_files_of_the_announced_size)
{
	struct wire_message load = {.type = WIRE_LOAD_MODULE, .load_module = {.module = 1, .bytes = 5000}};
	int good = fake_memfd(5000, SEALS), open_fd = fake_memfd(5000, F_SEAL_SHRINK | F_SEAL_GROW);

	ck_assert_int_eq(check(&load, good), 0);
	ck_assert_int_eq(check(&load, open_fd), CHECK_E_BROKEN);
	ck_assert_int_eq(check(&load, -1), CHECK_E_ANSWER);
	ck_assert_int_eq(scope.finding.code, CUDA_ERROR_ILLEGAL_STATE);
	load.load_module.bytes = 4999;
	ck_assert_int_eq(check(&load, good), CHECK_E_BROKEN);
	load.load_module.bytes = 0;
	ck_assert_int_eq(check(&load, good), CHECK_E_BROKEN);
	load.load_module.bytes = CHECK_IMAGE_MAX + 1;
	ck_assert_int_eq(check(&load, good), CHECK_E_ANSWER);
	load.load_module.bytes = 5000;
	load.load_module.kind = 2;
	ck_assert_int_eq(check(&load, good), CHECK_E_BROKEN);
	load.load_module.kind = 0;
	/* Its variables would be memory that counts for nobody. */
	load.load_module.variables = WIRE_VARIABLES_OF_DRIVER;
	ck_assert_int_eq(check(&load, good), CHECK_E_ANSWER);
	ck_assert_int_eq(scope.finding.code, CUDA_ERROR_OUT_OF_MEMORY);
	load.load_module.variables = WIRE_VARIABLES_ASKED;
	load.load_module.module = 0;
	ck_assert_int_eq(check(&load, good), CHECK_E_BROKEN);
	load.load_module.module = HOLDINGS_IDS;
	ck_assert_int_eq(check(&load, good), CHECK_E_BROKEN);
	close(good);
	close(open_fd);
}

/* A file without pages says to have as much as it likes. */
TEST(requests, texts_have_a_size_that_can_be_copied)
{
	static const char *const begins[] = {".version",
		"\x7f"
		"ELF",
		"\x50\xed\x55\xba"};
	static const int wanted[] = {CHECK_E_ANSWER, 0, 0};
	struct wire_message load = {.type = WIRE_LOAD_MODULE, .load_module = {.module = 1}};

	for (int i = 0; i < 3; i++)
		for (uint64_t more = 0; more < 2; more++) {
			int fd = fake_memfd(CHECK_LINK_BYTES + more, 0);

			ck_assert_int_eq(pwrite(fd, begins[i], 4, 0), 4);
			ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, SEALS), 0);
			load.load_module.bytes = CHECK_LINK_BYTES + more;
			ck_assert_int_eq(check(&load, fd), more ? wanted[i] : 0);
			if (more && wanted[i])
				ck_assert_int_eq(scope.finding.code, CUDA_ERROR_INVALID_IMAGE);
			close(fd);
		}
}

/* Inputs are like images; what is linked goes to a file of the service. */
TEST(requests, links_have_bounded_inputs)
{
	struct wire_option options[CHECK_OPTIONS_MAX + 1] = {{0}};
	struct wire_message add = {.type = WIRE_LINK_ADD, .link = {.bytes = 5000, .name = "input"}};
	struct wire_message complete = {.type = WIRE_LINK_COMPLETE, .link = {.name = ""}};
	struct wire_message drop = {.type = WIRE_LINK_DROP, .link = {.name = ""}};
	int good = fake_memfd(5000, SEALS), open_fd = fake_memfd(5000, 0);

	ck_assert_int_eq(check(&add, good), 0);
	ck_assert_int_eq(check(&add, open_fd), CHECK_E_BROKEN);
	add.link.bytes = CHECK_LINK_BYTES + 1;
	ck_assert_int_eq(check(&add, good), CHECK_E_ANSWER);
	add.link.bytes = 5000;
	add.link.position = CHECK_LINK_INPUTS;
	ck_assert_int_eq(check(&add, good), CHECK_E_ANSWER);
	add.link.position = 0;
	add.link.own = (struct wire_options){options, CHECK_OPTIONS_MAX + 1};
	ck_assert_int_eq(check(&add, good), CHECK_E_BROKEN);
	ck_assert_int_eq(check(&complete, -1), 0);
	complete.link.options = (struct wire_options){options, CHECK_OPTIONS_MAX + 1};
	ck_assert_int_eq(check(&complete, -1), CHECK_E_BROKEN);
	ck_assert_int_eq(check(&drop, -1), 0);
	close(good);
	close(open_fd);
}

TEST(requests, shared_events_are_pages_of_the_host_part)
{
	struct wire_message own = {.type = WIRE_MAP_HOST, .range = {HOST, 4096, WIRE_HOST_EVENTS}};
	struct wire_message import = {
		.type = WIRE_IMPORT_HOST, .import = {.address = HOST, .bytes = 4096, .session = 3}};

	ck_assert_int_eq(check(&own, -1), 0);
	ck_assert_int_eq(check(&import, -1), 0);
	own.range.bytes = import.import.bytes = 8192;
	ck_assert_int_eq(check(&own, -1), CHECK_E_BROKEN);
	ck_assert_int_eq(check(&import, -1), CHECK_E_BROKEN);
	own.range.bytes = import.import.bytes = 4096;
	own.range.flags = 2;
	ck_assert_int_eq(check(&own, -1), CHECK_E_BROKEN);
	import.import.address = BASE;
	ck_assert_int_eq(check(&import, -1), CHECK_E_BROKEN);
	own.range.flags = WIRE_HOST_EVENTS;
	note(&own);
	import.import.address = HOST;
	ck_assert_int_eq(check(&import, -1), CHECK_E_BROKEN); /* something is there */
}

/* What is kept for a session is bounded, and is free again with what it was for. */
TEST(requests, names_and_descriptions_are_bounded)
{
	struct wire_message load = {.type = WIRE_LOAD_MODULE, .load_module = {.module = 1}};
	struct wire_message find = {.type = WIRE_FIND_FUNCTION, .symbol = {1, 1, "k"}};
	struct wire_message graph = {.type = WIRE_MAKE_GRAPH, .graph = {5, 5000, 0}};
	int fd = fake_memfd(5000, SEALS);

	note(&load);
	ck_assert_int_eq(check(&find, -1), 0);
	ck_assert_int_eq(check(&graph, fd), 0);
	note(&graph);
	note(&find);
	ck_assert_uint_eq(holdings->kept_bytes, 5000 + sizeof("k"));
	resource_drop(holdings, &(struct wire_message){.type = WIRE_DROP_GRAPH, .graph = {5, 0, 0}});
	resource_drop(holdings, &(struct wire_message){.type = WIRE_UNLOAD_MODULE, .symbol.module = 1});
	ck_assert_uint_eq(holdings->kept_bytes, 0);
	note(&load);
	holdings->kept_bytes = HOLDINGS_KEPT_MAX - 4999;
	ck_assert_int_eq(check(&find, -1), 0);
	ck_assert_int_eq(check(&graph, fd), CHECK_E_ANSWER);
	ck_assert_int_eq(scope.finding.code, CUDA_ERROR_OUT_OF_MEMORY);
	holdings->kept_bytes = HOLDINGS_KEPT_MAX - 1;
	ck_assert_int_eq(check(&find, -1), CHECK_E_ANSWER);
	ck_assert_int_eq(scope.finding.code, CUDA_ERROR_OUT_OF_MEMORY);
	holdings->kept_bytes = 0;
	close(fd);
}

TEST(requests, image_limit_is_an_answer)
{
	struct wire_message load = {.type = WIRE_LOAD_MODULE, .load_module = {.module = 1, .bytes = 5000}};
	int fd = fake_memfd(5000, SEALS);

	note(&load);
	ck_assert_uint_eq(holdings->image_bytes, 5000);
	load.load_module.module = 2;
	scope.image_limit = 10000;
	ck_assert_int_eq(check(&load, fd), 0);
	scope.image_limit = 9999;
	ck_assert_int_eq(check(&load, fd), CHECK_E_ANSWER);
	ck_assert_int_eq(scope.finding.code, CUDA_ERROR_OUT_OF_MEMORY);
	scope.image_limit = 0;
	ck_assert_int_eq(check(&load, fd), 0);
	resource_drop(holdings, &(struct wire_message){.type = WIRE_UNLOAD_MODULE, .symbol.module = 1});
	ck_assert_uint_eq(holdings->image_bytes, 0);
	scope.image_limit = 5000;
	ck_assert_int_eq(check(&load, fd), 0);
	close(fd);
}

#define FUNCTIONS 60000u
#define MAPPINGS  30000u

/* Ranges are found whatever else there is, and at once: with a walk over everything for each
 * question this takes longer than any test may. */
TEST(requests, a_mapping_costs_the_same_beside_many_functions)
{
	struct wire_message find = {.type = WIRE_FIND_FUNCTION, .symbol = {.module = 1, .name = "k"}};
	struct wire_message map = {.type = WIRE_MAP_HOST, .range = {.bytes = 4096}};

	for (uint32_t i = 1; i < FUNCTIONS; i++) {
		find.symbol.function = i;
		note(&find);
	}
	/* From both ends, so that neighbours come last. */
	for (uint32_t i = 0; i < MAPPINGS; i++) {
		uint32_t place = i % 2 ? MAPPINGS - i / 2 : i / 2;

		map.range.address = HOST + place * UINT64_C(8192);
		ck_assert_int_eq(check(&map, -1), 0);
		note(&map);
		ck_assert_int_eq(check(&map, -1), CHECK_E_BROKEN);
	}
	map.range = (struct wire_range){.address = HOST + 4096, .bytes = 8192};
	ck_assert_int_eq(check(&map, -1), CHECK_E_BROKEN);
	map.range.bytes = 4096;
	ck_assert_int_eq(check(&map, -1), 0);
	ck_assert_ptr_null(holdings_find_range(holdings, WIRE_MAP_HOST, HOST, 8192));
	while (!RB_EMPTY(&holdings->ranges)) {
		struct holding *entry = RB_ROOT(&holdings->ranges);

		ck_assert_ptr_eq(
			holdings_find_range(holdings, WIRE_MAP_HOST, entry->range.address, 4096), entry);
		holdings_remove(holdings, entry);
	}
	ck_assert_uint_eq(holdings->host_bytes, 0);
}

TEST(requests, pinned_limit_is_an_answer)
{
	struct wire_message mapped = {.type = WIRE_MAP_HOST, .range = {.address = HOST, .bytes = 8192}};
	struct wire_message more = {.type = WIRE_MAP_HOST, .range = {.address = HOST + MIB, .bytes = 8192}};

	note(&mapped);
	scope.pinned_limit = 16384;
	ck_assert_int_eq(check(&more, -1), 0);
	scope.pinned_limit = 12288;
	ck_assert_int_eq(check(&more, -1), CHECK_E_ANSWER);
	ck_assert_int_eq(scope.finding.code, CUDA_ERROR_OUT_OF_MEMORY);
	scope.pinned_limit = 4096;
	ck_assert_int_eq(check(&more, -1), CHECK_E_ANSWER);
	/* What was freed and is kept open counts as well. */
	scope.pinned_limit = 16384;
	scope.kept_bytes = 4096;
	ck_assert_int_eq(check(&more, -1), CHECK_E_ANSWER);
	scope.kept_bytes = 0;
	scope.pinned_limit = 0;
	ck_assert_int_eq(check(&more, -1), 0);
}

TEST(requests, graphs_are_sealed_files_and_kept_by_id)
{
	struct wire_message make = {.type = WIRE_MAKE_GRAPH, .graph = {5, 5000, 0}}, again;
	struct wire_message drop = {.type = WIRE_DROP_GRAPH, .graph = {5, 0, 0}};
	int good = fake_memfd(5000, SEALS), open_fd = fake_memfd(5000, F_SEAL_SHRINK | F_SEAL_GROW);
	unsigned before = holdings->count;

	ck_assert_int_eq(check(&drop, -1), CHECK_E_ANSWER);
	ck_assert_int_eq(check(&make, good), 0);
	ck_assert_int_eq(check(&make, open_fd), CHECK_E_BROKEN);
	ck_assert_int_eq(check(&make, -1), CHECK_E_ANSWER);
	make.graph.bytes = 4999;
	ck_assert_int_eq(check(&make, good), CHECK_E_BROKEN);
	make.graph.bytes = FRMPS_GRAPH_BYTES_MAX + 1;
	ck_assert_int_eq(check(&make, good), CHECK_E_ANSWER);
	make.graph.bytes = 5000;
	make.graph.graph = 0;
	ck_assert_int_eq(check(&make, good), CHECK_E_BROKEN);
	make.graph.graph = FRMPS_GRAPH_IDS;
	ck_assert_int_eq(check(&make, good), CHECK_E_BROKEN);
	make.graph.graph = 5;
	note(&make);
	ck_assert_int_eq(check(&make, good), CHECK_E_BROKEN);
	ck_assert_int_eq(check(&drop, -1), 0);
	resource_again(TAILQ_LAST(&holdings->entries, holding_list), 9, &again);
	ck_assert_int_eq(again.type, WIRE_MAKE_GRAPH);
	ck_assert_uint_eq(again.graph.graph, 5);
	ck_assert_uint_eq(again.graph.bytes, 5000);
	resource_drop(holdings, &drop);
	ck_assert_uint_eq(holdings->count, before);
	ck_assert_int_eq(check(&make, good), 0);
	close(good);
	close(open_fd);
}

TEST(requests, arrays_lie_in_mapped_memory_and_take_their_objects_along)
{
	struct wire_message make = {.type = WIRE_MAKE_ARRAY}, back = {.type = WIRE_BACK_ARRAY};
	struct wire_message object = {.type = WIRE_MAKE_OBJECT}, drop = {.type = WIRE_DROP_ARRAY}, again;
	struct wire_message map = {.type = WIRE_MAP_MEMORY}, unmap = {.type = WIRE_UNMAP_MEMORY};
	unsigned before = holdings->count;

	make.array = (struct wire_array){7, 0, 64, 64, 0, CU_AD_FORMAT_FLOAT, 1, 0};
	drop.array.array = 7;
	ck_assert_int_eq(check(&drop, -1), CHECK_E_ANSWER);
	ck_assert_int_eq(check(&make, -1), 0);
	make.array.array = FRMPS_ARRAY_IDS;
	ck_assert_int_eq(check(&make, -1), CHECK_E_BROKEN);
	make.array.array = 7;
	make.array.channels = 3;
	ck_assert_int_eq(check(&make, -1), CHECK_E_ANSWER);
	make.array.channels = 1;
	make.array.width = make.array.height = UINT64_MAX / 8;
	ck_assert_int_eq(check(&make, -1), CHECK_E_ANSWER);
	make.array.width = make.array.height = 64;
	make.array.flags = CUDA_ARRAY3D_SPARSE;
	ck_assert_int_eq(check(&make, -1), CHECK_E_ANSWER);
	make.array.flags = 0;
	note(&make);
	ck_assert_int_eq(check(&make, -1), CHECK_E_BROKEN);

	map.range = unmap.range = (struct wire_range){.address = BASE + 16 * (2 * MIB), .bytes = (2 * MIB)};
	back.back_array = (struct wire_back_array){7, BASE + 16 * (2 * MIB) + 65536, 65536, 0, 0};
	ck_assert_int_eq(check(&back, -1), CHECK_E_BROKEN);
	note(&map);
	ck_assert_int_eq(check(&unmap, -1), 0);
	back.back_array.bytes = (2 * MIB);
	ck_assert_int_eq(check(&back, -1), CHECK_E_BROKEN);
	back.back_array.bytes = 65536;
	ck_assert_int_eq(check(&back, -1), 0);
	object.object = (struct wire_object){.object = 3, .array = 7, .has_texture = true};
	ck_assert_int_eq(check(&object, -1), CHECK_E_ANSWER);
	note(&back);
	ck_assert_int_eq(check(&unmap, -1), CHECK_E_BROKEN);
	ck_assert_int_eq(check(&object, -1), 0);
	object.object.value = 1;
	ck_assert_int_eq(check(&object, -1), CHECK_E_BROKEN);
	object.object.value = 0;
	object.object.kind = 1;
	ck_assert_int_eq(check(&object, -1), CHECK_E_BROKEN);
	object.object.kind = 0;
	note(&object);
	ck_assert_int_eq(check(&object, -1), CHECK_E_BROKEN);
	resource_again(TAILQ_LAST(&holdings->entries, holding_list), 9, &again);
	ck_assert_int_eq(again.type, WIRE_MAKE_OBJECT);
	ck_assert_uint_eq(again.object.array, 7);
	resource_drop(holdings, &drop);
	ck_assert(!holdings_has_object(holdings, 3) && !holdings_has_backed(holdings, 7));
	ck_assert_uint_eq(holdings->count, before + 1);
	ck_assert_int_eq(check(&unmap, -1), 0);
	holdings_remove(holdings, TAILQ_LAST(&holdings->entries, holding_list));
}

TEST(requests, options_are_bounded)
{
	struct wire_option options[CHECK_OPTIONS_MAX + 1] = {
		{.id = CU_JIT_INFO_LOG_BUFFER, .value = CHECK_OPTION_BYTES + 1}};
	struct wire_message load = {.type = WIRE_LOAD_MODULE,
		.load_module = {.module = 1, .bytes = 5000, .options = {options, CHECK_OPTIONS_MAX + 1}}};
	int fd = fake_memfd(5000, SEALS);

	ck_assert_int_eq(check(&load, fd), CHECK_E_BROKEN);
	load.load_module.options.count = 1;
	ck_assert_int_eq(check(&load, fd), CHECK_E_ANSWER);
	options[0].value = 64;
	ck_assert_int_eq(check(&load, fd), 0);
	options[0].reserved = 1;
	ck_assert_int_eq(check(&load, fd), CHECK_E_BROKEN);
	close(fd);
}

static void note_module(uint32_t module)
{
	struct wire_message load = {.type = WIRE_LOAD_MODULE, .load_module = {.module = module, .bytes = 1}};

	note(&load);
}

static void note_function(uint32_t module, uint32_t function)
{
	struct wire_message find = {
		.type = WIRE_FIND_FUNCTION, .symbol = {.module = module, .function = function, .name = "f"}};

	note(&find);
}

TEST(requests, symbols_need_their_module)
{
	struct wire_message find = {
		.type = WIRE_FIND_FUNCTION, .symbol = {.module = 3, .function = 5, .name = "f"}};
	char *longest = malloc(CHECK_NAME_MAX + 2);

	ck_assert_int_eq(check(&find, -1), CHECK_E_ANSWER);
	ck_assert_int_eq(scope.finding.code, CUDA_ERROR_INVALID_HANDLE);
	note_module(3);
	ck_assert_int_eq(check(&find, -1), 0);
	note_function(3, 5);
	ck_assert_int_eq(check(&find, -1), CHECK_E_BROKEN);
	find.symbol.function = 0;
	ck_assert_int_eq(check(&find, -1), CHECK_E_BROKEN);
	find.symbol.function = HOLDINGS_IDS;
	ck_assert_int_eq(check(&find, -1), CHECK_E_BROKEN);
	find.symbol.function = 6;
	find.symbol.name = "";
	ck_assert_int_eq(check(&find, -1), CHECK_E_ANSWER);
	memset(longest, 'x', CHECK_NAME_MAX + 1);
	longest[CHECK_NAME_MAX + 1] = '\0';
	find.symbol.name = longest;
	ck_assert_int_eq(check(&find, -1), CHECK_E_ANSWER);
	ck_assert_int_eq(scope.finding.code, CUDA_ERROR_NOT_FOUND);
	free(longest);
}

TEST(requests, other_requests_are_checked)
{
	uint32_t three[3] = {1, 1, 1};
	uint8_t attributes[sizeof(struct frmps_launch_attribute) * 17] = {0};
	struct wire_message occupancy = {.type = WIRE_QUERY_OCCUPANCY, .occupancy = {.function = 1}};
	struct wire_message set_value = {.type = WIRE_SET_FUNCTION, .set_function = {.function = 2}};
	struct wire_message activate = {.type = WIRE_ACTIVATE};

	note_module(1);
	note_function(1, 1);
	ck_assert_int_eq(check(&occupancy, -1), 0);
	occupancy.occupancy.grid = (struct wire_u32s){three, 2};
	ck_assert_int_eq(check(&occupancy, -1), CHECK_E_BROKEN);
	occupancy.occupancy.grid.count = 3;
	occupancy.occupancy.attributes = (struct wire_bytes){attributes, 71};
	ck_assert_int_eq(check(&occupancy, -1), CHECK_E_BROKEN);
	occupancy.occupancy.attributes.count = sizeof(attributes);
	ck_assert_int_eq(check(&occupancy, -1), CHECK_E_BROKEN);
	occupancy.occupancy.attributes.count = sizeof(struct frmps_launch_attribute);
	ck_assert_int_eq(check(&occupancy, -1), 0);
	occupancy.occupancy.query = 4;
	ck_assert_int_eq(check(&occupancy, -1), CHECK_E_BROKEN);
	ck_assert_int_eq(check(&set_value, -1), CHECK_E_ANSWER);
	ck_assert_int_eq(check(&activate, -1), CHECK_E_BROKEN);
}

TEST(requests, limits_are_checked)
{
	struct wire_message limit = {.type = WIRE_SET_LIMIT, .limit = {CU_LIMIT_STACK_SIZE, 4096}};

	ck_assert_int_eq(check(&limit, -1), 0);
	limit.limit.value = UINT64_MAX;
	ck_assert_int_eq(check(&limit, -1), CHECK_E_ANSWER);
	ck_assert_int_eq(scope.finding.code, CUDA_ERROR_INVALID_VALUE);
	/* The client keeps what is a hint, and its own. */
	limit.limit = (struct wire_limit){CU_LIMIT_PRINTF_FIFO_SIZE, 4096};
	ck_assert_int_eq(check(&limit, -1), CHECK_E_BROKEN);
	limit.limit.limit = UINT32_MAX;
	ck_assert_int_eq(check(&limit, -1), CHECK_E_BROKEN);
}

TEST(requests, request_needs_a_number)
{
	struct wire_message query = {.type = WIRE_QUERY_MEMORY};

	ck_assert_int_eq(check_request(&scope, &query), CHECK_E_BROKEN);
}

TEST(requests, unloading_takes_everything_of_the_module)
{
	struct wire_message set_value = {
		.type = WIRE_SET_FUNCTION, .set_function = {.function = 1, .attribute = 8, .value = 1}};
	struct wire_message global = {.type = WIRE_FIND_GLOBAL, .symbol = {.module = 1, .name = "g"}};
	const uint64_t values[2] = {1, 2};
	struct holding *entry;

	note_module(1);
	note_module(2);
	note_function(1, 1);
	note_function(2, 2);
	note(&set_value);
	set_value.set_function.value = 7;
	note(&set_value);
	/* The later value took the earlier one's place. */
	ck_assert_uint_eq(holdings->count, 5);
	ck_assert_int_eq(TAILQ_LAST(&holdings->entries, holding_list)->value, 7);
	ck_assert_int_eq(
		resource_note(holdings, &global, &(struct wire_u64s){values, 2}, NULL, NULL, &entry), 0);
	ck_assert_uint_eq(entry->global[1], 2);
	ck_assert_int_eq(
		resource_note(holdings, &global, &(struct wire_u64s){values, 2}, NULL, NULL, &entry), 0);
	ck_assert_ptr_null(entry);
	resource_drop(holdings, &(struct wire_message){.type = WIRE_UNLOAD_MODULE, .symbol.module = 1});
	ck_assert_uint_eq(holdings->count, 2);
	ck_assert(!holdings_has_module(holdings, 1) && holdings_has_module(holdings, 2));
	ck_assert(!holdings_has_function(holdings, 1) && holdings_has_function(holdings, 2));
}

/* Later executors are asked for the address that the first one had; a client asks for none. */
TEST(requests, code_stays_where_it_was)
{
	struct wire_message load = {.type = WIRE_LOAD_MODULE, .load_module = {.module = 1, .bytes = 5000}};
	const uint64_t values[4] = {1, 0, 0x777700, 0};
	struct wire_message again;
	struct holding *entry;
	int fd = fake_memfd(5000, SEALS);

	ck_assert_int_eq(check(&load, fd), 0);
	load.load_module.code = 0x777700;
	ck_assert_int_eq(check(&load, fd), CHECK_E_BROKEN);
	load.load_module.code = WIRE_CODE_ASKED;
	ck_assert_int_eq(
		resource_note(holdings, &load, &(struct wire_u64s){values, 4}, NULL, NULL, &entry), 0);
	resource_again(entry, 7, &again);
	ck_assert_uint_eq(again.load_module.code, 0x777700);
	close(fd);
}

int main(void)
{
	Suite *suite = suite_create("check");
	TCase *requests = suite_case(suite, "requests");

	tcase_add_checked_fixture(requests, hold, let_go);
	suite_add(requests, "requests");
	return suite_run(suite);
}
