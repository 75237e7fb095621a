// Turns of the instruction caches, on a device of the test's own: its multiprocessors run code as
// their caches have it, and may have no room for a kernel.

#include "protocol/wire.h"
#include "server/backend/backend.h"
#include "server/backend/cuda/code_caches.h"
#include "server/backend/cuda/code_memory.h"
#include "server/backend/cuda/loader.h"
#include "tests/unit/server/backend/fake_libraries.h"
#include "tests/unit/server/backend/fake_memory.h"
#include "tests/unit/server/backend/image_bed.h"

#define MULTIPROCESSORS 5u
#define PARTS		(4u * MULTIPROCESSORS)
#define MEMORY_BYTES	BACKEND_CHUNK_GRANULE
#define CACHED		8u
/* The words of the code that this device knows. */
#define FORGET	 UINT64_C(0x00000000ff00798f)
#define IS_VALUE 0x7435u

static uint8_t memory[MEMORY_BYTES];
static uint64_t memory_at; /* of the first place */
/* By part: addresses of code, and the value that the code notes. */
static struct {
	uint64_t at;
	uint8_t value;
} cached[PARTS][CACHED];
static bool forgets, is_full[PARTS], is_running;
static unsigned launches;

static bool is_there(uint64_t address)
{
	memory_at = memory_at ? memory_at : address;
	return address >= memory_at && address - memory_at < MEMORY_BYTES;
}

static uint8_t *at(uint64_t address)
{
	ck_assert(is_there(address));
	return memory + (address - memory_at);
}

static CUresult copy_to_device(CUdeviceptr dst, const void *src, size_t bytes, CUstream stream)
{
	(void)stream;
	if (is_there(dst))
		memcpy(at(dst), src, bytes);
	return CUDA_SUCCESS;
}

static CUresult copy_to_host(void *dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
	(void)stream;
	memcpy(dst, at(src), bytes);
	return CUDA_SUCCESS;
}

static CUresult set8(CUdeviceptr dst, unsigned char value, size_t count, CUstream stream)
{
	(void)stream;
	memset(at(dst), value, count);
	return CUDA_SUCCESS;
}

static CUresult stream_query(CUstream stream)
{
	(void)stream;
	return is_running ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult device_attribute(int *ret_value, CUdevice_attribute attribute, CUdevice device)
{
	(void)attribute;
	(void)device;
	*ret_value = MULTIPROCESSORS;
	return CUDA_SUCCESS;
}

/* The value that code in memory notes. */
static uint8_t value_at(uint64_t address)
{
	uint64_t words[2];

	for (uint64_t i = address;; i += sizeof(words)) {
		memcpy(words, at(i), sizeof(words));
		if ((words[0] & 0xffff) == IS_VALUE)
			return (uint8_t)(words[0] >> 32);
	}
}

static void run(unsigned part, uint64_t entry, uint64_t notes)
{
	uint64_t first;
	unsigned i = 0;

	memcpy(&first, at(entry), sizeof(first));
	if (first == FORGET && forgets)
		memset(cached[part], 0, sizeof(cached[part]));
	while (cached[part][i].at && cached[part][i].at != entry)
		ck_assert_uint_lt(++i, CACHED);
	if (!cached[part][i].at) {
		cached[part][i].at = entry;
		cached[part][i].value = value_at(entry);
	}
	*at(notes + part) = cached[part][i].value;
}

static CUresult launch(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
	unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream,
	void **params, void **extra)
{
	const uint8_t *carried = extra[1];
	uint64_t entry, notes;

	(void)function;
	(void)grid_y;
	(void)grid_z;
	(void)block_y;
	(void)block_z;
	(void)shared_bytes;
	(void)stream;
	(void)params;
	ck_assert_uint_ge(grid_x * block_x, PARTS * 32);
	memcpy(&notes, carried, sizeof(notes));
	memcpy(&entry, carried + *(size_t *)extra[3] - sizeof(entry), sizeof(entry));
	for (unsigned i = 0; i < PARTS; i++)
		if (!is_full[i])
			run(i, entry, notes);
	launches++;
	return CUDA_SUCCESS;
}

static CUresult context_limit(size_t *ret_value, CUlimit limit)
{
	(void)limit;
	*ret_value = 1024;
	return CUDA_SUCCESS;
}

static void open_device(bool can_forget)
{
	fake_memory_open();
	fake_libraries_open();
	driver.context_limit = context_limit;
	driver.copy_to_device = copy_to_device;
	driver.copy_to_host = copy_to_host;
	driver.set8 = set8;
	driver.stream_query = stream_query;
	driver.device_attribute = device_attribute;
	driver.launch = launch;
	memory_at = 0;
	memset(cached, 0, sizeof(cached));
	memset(is_full, 0, sizeof(is_full));
	is_running = false;
	forgets = can_forget;
}

static void open_caches(bool can_forget)
{
	static const struct trampoline enter = {.carried = 64};

	open_device(can_forget);
	ck_assert_int_eq(code_memory_open(0), CUDA_SUCCESS);
	code_caches_open(0, &enter);
	launches = 0;
}

static void close_caches(void)
{
	code_caches_close();
	code_memory_close();
}

/* So that the caches should have a turn. */
static void wear(void)
{
	struct code_memory place;

	for (unsigned i = 0; i < 100 && !code_memory_is_worn(); i++) {
		ck_assert_int_eq(code_memory_take(BACKEND_CHUNK_GRANULE, &place), CUDA_SUCCESS);
		ck_assert_int_eq(code_memory_settle(&place, 0), CUDA_SUCCESS);
		code_memory_give(&place);
	}
	ck_assert(code_memory_is_worn());
}

TEST(caches, a_turn_begins_when_much_rests)
{
	open_caches(true);
	code_caches_tend();
	ck_assert_uint_eq(launches, 0);
	wear();
	code_caches_tend();
	ck_assert_uint_eq(launches, 1);
	ck_assert(!code_memory_is_worn());
	code_caches_tend();
	code_caches_tend();
	ck_assert_uint_eq(launches, 1);
	close_caches();
}

#define WINDOW	   (UINT64_C(0x100000000000) + (UINT64_C(3) << 38))
#define PLACE_CODE 1000u

/* Return: a place of a session that rests */
static uint64_t leave_code(void)
{
	struct code_memory place;

	ck_assert_int_eq(code_memory_take_at(WINDOW, 0, PLACE_CODE, &place), CUDA_SUCCESS);
	ck_assert_int_eq(code_memory_settle(&place, 1), CUDA_SUCCESS);
	code_memory_give(&place);
	return place.at;
}

/* Return: true if other code can have its place */
static bool is_free(uint64_t address)
{
	struct code_memory place;
	bool can;

	ck_assert_int_eq(code_memory_take_at(WINDOW, address, PLACE_CODE, &place), CUDA_SUCCESS);
	can = code_memory_settle(&place, 2) == CUDA_SUCCESS;
	code_memory_give(&place);
	return can;
}

/* Kernels of others fill one of them for long. Nobody waits for that. */
TEST(caches, a_turn_ends_when_all_have_forgotten)
{
	struct code_memory held;
	uint64_t place;

	open_caches(true);
	place = leave_code();
	is_full[7] = true;
	wear();
	for (unsigned i = 1; i <= 5; i++) {
		code_caches_tend();
		ck_assert_uint_eq(launches, i);
	}
	ck_assert_int_eq(code_memory_take_at(WINDOW, place, PLACE_CODE, &held), CUDA_SUCCESS);
	ck_assert_int_eq(code_memory_settle(&held, 2), CUDA_ERROR_NOT_SUPPORTED);
	code_memory_give(&held);
	is_full[7] = false;
	/* One launch more, whose notes the next look sees. What was given back meanwhile is for the
	 * next turn. */
	code_caches_tend();
	code_caches_tend();
	ck_assert_uint_eq(launches, 7);
	code_caches_tend();
	ck_assert(is_free(place));
	close_caches();
}

/* The kernel itself may wait for room. */
TEST(caches, a_kernel_that_waits_is_left_alone)
{
	uint64_t place;

	open_caches(true);
	place = leave_code();
	wear();
	is_running = true;
	for (unsigned i = 0; i < 5; i++)
		code_caches_tend();
	ck_assert_uint_eq(launches, 1);
	is_running = false;
	code_caches_tend();
	ck_assert_uint_eq(launches, 1);
	ck_assert(is_free(place));
	close_caches();
}

/* Then each address is given out once. */
TEST(caches, caches_that_do_not_forget_have_no_turns)
{
	uint64_t place;

	open_caches(false);
	place = leave_code();
	wear();
	for (unsigned i = 0; i < 5; i++)
		code_caches_tend();
	ck_assert_uint_eq(launches, 0);
	ck_assert(!is_free(place));
	close_caches();
}

TEST(caches, whoever_is_refused_may_wait_for_a_turn)
{
	uint64_t place;

	open_caches(true);
	ck_assert(!code_caches_renew());
	place = leave_code();
	ck_assert(!is_free(place));
	ck_assert(code_caches_renew());
	ck_assert(is_free(place));
	/* Not for ever. */
	wear();
	is_running = true;
	ck_assert(!code_caches_renew());
	close_caches();
}

static struct loader_module *load_at(uint64_t wish, uint64_t *ret_code)
{
	struct fatbin_bytes cubin = {malloc(image_bytes), image_bytes};
	struct backend_load load = {.window = WINDOW, .code = wish};
	struct loader_module *module;
	enum load_reason why;

	memcpy(cubin.at, image, image_bytes);
	ck_assert_msg(!loader_load(&cubin, NULL, &load, &module, &why), "%s", load_reason_text(why));
	*ret_code = load.code;
	return module;
}

/* A program has been in another executor, and has other code there by now, where its first code
 * was here. */
TEST(caches, a_module_is_loaded_where_other_code_rests)
{
	Elf64_Shdr *section;
	uint64_t first, again;

	open_device(true);
	ck_assert(loader_open(0));
	loader_open_caches(0);
	load("called.cubin");
	loader_unload(load_at(WIRE_CODE_ASKED, &first));
	((uint8_t *)section_in(image, ".text._Z7descendi", &section))[4] ^= 1;
	loader_unload(load_at(first, &again));
	ck_assert_uint_eq(again, first);
	loader_close();
	unload();
}

int main(void)
{
	Suite *suite = suite_create("code_caches");
	TCase *caches = suite_case(suite, "caches");

	suite_add(caches, "caches");
	return suite_run(suite);
}
