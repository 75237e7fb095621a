// Limits and guarantees of device memory are exact to the granule: eight programs take and give
// back at random, 10 000 times together, and each call is answered as a model says. And who ends,
// and who is refused, when what is guaranteed is needed. What fills the whole device is for the
// host backend.

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/lib/service.h"
#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/program.h"
#include "tests/system/status.h"

#define GRANULE	 (UINT64_C(2) << 20)
#define PROGRAMS 8
#define CALLS	 1250 /* of each */
#define PIECES	 64
#define SECONDS	 60

static const CUmemAllocationProp kind = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
	.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
	.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};

static struct service service;

/* What the programs hold, in granules. A call and what the model says of it are one step. */
static struct model {
	pthread_mutex_t lock;
	unsigned next;	    /* number of the next program */
	uint64_t total;	    /* of the device; 0: enough for everybody */
	uint64_t guarantee; /* of each program */
	uint64_t held[PROGRAMS], limit[PROGRAMS];
	uint64_t refusals;
} * model;

static void start(const char *memory, const char *text)
{
	pthread_mutexattr_t shared;

	setenv("FRMPS_HOST_MEMORY", memory, 1);
	ck_assert(service_start_configured(&service, text));
	model = mmap(NULL, sizeof(*model), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(model, MAP_FAILED);
	pthread_mutexattr_init(&shared);
	pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&model->lock, &shared);
}

static void stop(void)
{
	ck_assert_int_eq(service_stop(&service), 0);
}

/* Granules that a program may still have. */
static uint64_t room_of(unsigned who)
{
	uint64_t own = model->guarantee > model->held[who] ? model->guarantee - model->held[who] : 0;
	uint64_t taken = 0, room;

	for (unsigned i = 0; i < PROGRAMS; i++)
		taken += i == who || model->held[i] > model->guarantee ? model->held[i] : model->guarantee;
	room = model->total > taken ? model->total - taken : 0;
	if (!model->total)
		room = UINT64_MAX;
	room = room > own ? room : own;
	if (model->limit[who] && room > model->limit[who] - model->held[who])
		room = model->limit[who] - model->held[who];
	return room;
}

struct piece {
	CUmemGenericAllocationHandle handle;
	uint64_t granules;
};

/* Return: false if the answer is not the model's. */
static bool take(unsigned who, struct piece *piece, uint64_t granules)
{
	uint64_t room = room_of(who);
	CUresult code = cuMemCreate(&piece->handle, granules * GRANULE, &kind, 0);

	if (code != (granules <= room ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY)) {
		fprintf(stderr, "program %u: %llu granules are %d with room for %llu\n", who,
			(unsigned long long)granules, (int)code, (unsigned long long)room);
		return false;
	}
	model->refusals += code != CUDA_SUCCESS;
	piece->granules = code ? 0 : granules;
	model->held[who] += piece->granules;
	return true;
}

static bool give(unsigned who, struct piece *piece)
{
	model->held[who] -= piece->granules;
	piece->granules = 0;
	return cuMemRelease(piece->handle) == CUDA_SUCCESS;
}

/* Whether somebody's guarantee keeps memory from a program. */
static bool is_kept(unsigned who)
{
	bool kept = false;

	for (unsigned i = 0; i < PROGRAMS; i++)
		kept = kept || (i != who && model->held[i] < model->guarantee);
	return kept;
}

/* What the program sees is what it gets. The host backend does not say what is not mapped. */
static bool shows_room(unsigned who)
{
	size_t free_bytes, total;

	if (cuMemGetInfo_v2(&free_bytes, &total))
		return false;
	if (model->limit[who] && total != model->limit[who] * GRANULE)
		return false;
	return (model->total && !is_kept(who)) || free_bytes == room_of(who) * GRANULE;
}

static int taker(int progress, int orders)
{
	struct piece pieces[PIECES] = {0};
	unsigned seed, who;
	char limit[64];
	bool fits = true;

	pthread_mutex_lock(&model->lock);
	who = model->next++;
	snprintf(limit, sizeof(limit), "0=%lluM", (unsigned long long)(model->limit[who] * GRANULE >> 20));
	pthread_mutex_unlock(&model->lock);
	if (model->limit[who])
		setenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", limit, 1);
	driver_attach();
	report(progress);
	ordered(orders, true);
	seed = who + 1;
	for (int call = 0; fits && call < CALLS; call++) {
		struct piece *piece = &pieces[rand_r(&seed) % PIECES];

		pthread_mutex_lock(&model->lock);
		fits = piece->granules ? give(who, piece) : take(who, piece, 1 + (uint64_t)rand_r(&seed) % 8);
		if (fits && call % 100 == 0)
			fits = shows_room(who);
		pthread_mutex_unlock(&model->lock);
	}
	report(progress);
	ordered(orders, true);
	return fits ? 0 : 2;
}

static void run_takers(void)
{
	struct child children[PROGRAMS];
	uint64_t held = 0;

	for (int i = 0; i < PROGRAMS; i++)
		children[i] = child_start(taker);
	for (int i = 0; i < PROGRAMS; i++)
		child_wait(&children[i], 1);
	for (int i = 0; i < PROGRAMS; i++)
		child_order(&children[i]);
	for (int i = 0; i < PROGRAMS; i++)
		child_wait(&children[i], 1);
	for (int i = 0; i < PROGRAMS; i++)
		held += model->held[i];
	if (model->total)
		ck_assert_uint_le(held, model->total);
	for (int i = 0; i < PROGRAMS; i++)
		child_order(&children[i]);
	for (int i = 0; i < PROGRAMS; i++)
		ck_assert_int_eq(child_end(&children[i]), 0);
	ck_assert_uint_gt(model->refusals, CALLS / 10);
}

TEST(limits, limits_are_exact)
{
	start("8G", "guard = off\n");
	for (unsigned i = 0; i < PROGRAMS; i++)
		model->limit[i] = 20 + 17 * i;
	run_takers();
}

TEST(whole_device, guarantees_are_exact)
{
	start("640M", "guard = off\nmemory_guarantee = 40M\n");
	model->total = 320;
	model->guarantee = 20;
	run_takers();
}

/* Some have a limit as well. */
TEST(whole_device, guarantees_and_limits_are_exact)
{
	start("640M", "guard = off\nmemory_guarantee = 40M\n");
	model->total = 320;
	model->guarantee = 20;
	for (unsigned i = 0; i < PROGRAMS; i += 2)
		model->limit[i] = 20 + 5 * i;
	run_takers();
}

/*
 * Who ends, who is refused
 */

/* Takes granules, one piece each, as often as it is ordered to. Ends: 0 at the end of its orders,
 * 10 where it got less, 20 where it was ended. */
static int holder(int progress, int orders, uint64_t granules)
{
	CUmemGenericAllocationHandle handle;
	CUresult code = CUDA_SUCCESS;

	driver_attach();
	for (uint64_t i = 0; i < granules && !code; i++)
		code = cuMemCreate(&handle, GRANULE, &kind, 0);
	report(progress);
	ordered(orders, true);
	if (code == CUDA_ERROR_OUT_OF_MEMORY)
		return 10;
	return cuCtxSynchronize() == CUDA_ERROR_MPS_CLIENT_TERMINATED ? 20 : code ? 30 : 0;
}

static int holder_of_80(int progress, int orders)
{
	return holder(progress, orders, 80);
}

static int holder_of_48(int progress, int orders)
{
	return holder(progress, orders, 48);
}

static int holder_of_32(int progress, int orders)
{
	return holder(progress, orders, 32);
}

static int holder_of_1(int progress, int orders)
{
	return holder(progress, orders, 1);
}

static struct child started(child_function *function)
{
	struct child child = child_start(function);

	child_wait(&child, 1);
	return child;
}

static int ended(struct child *child)
{
	child_order(child);
	return child_end(child);
}

/* 128 granules. */
TEST(whole_device, who_is_furthest_beyond_its_guarantee_ends)
{
	struct child most, more, owner;

	start("256M", "guard = off\nmemory_guarantee = 64M\nmemory_policy = evict\n");
	most = started(holder_of_80);
	more = started(holder_of_48);
	owner = started(holder_of_32);
	ck_assert_int_eq(status_counter(&service, "sessions_evicted"), 1);
	ck_assert_int_eq(
		service_log_count(&service, "is evicted: its device memory, 160M, is needed for what is "
					    "guaranteed to session"),
		1);
	ck_assert_int_eq(ended(&owner), 0);
	ck_assert_int_eq(ended(&more), 0);
	ck_assert_int_eq(ended(&most), 20);
}

TEST(whole_device, nobody_ends_for_more_than_a_guarantee)
{
	struct child most, other;

	start("256M", "guard = off\nmemory_guarantee = 64M\nmemory_policy = evict\n");
	most = started(holder_of_80);
	/* 48 are free. */
	other = started(holder_of_80);
	ck_assert_int_eq(status_counter(&service, "sessions_evicted"), 0);
	ck_assert_int_eq(ended(&other), 10);
	ck_assert_int_eq(ended(&most), 0);
}

static int refused(int unused)
{
	(void)unused;
	return cuInit(0) == CUDA_ERROR_OUT_OF_MEMORY ? 0 : 2;
}

TEST(whole_device, who_cannot_have_its_guarantee_is_refused)
{
	struct child first;

	start("256M", "guard = off\nmemory_guarantee = 160M\n");
	first = started(holder_of_1);
	ck_assert_int_eq(exit_status(spawn(refused, 0)), 0);
	ck_assert(service_log_wait(&service,
		"is refused: its memory_guarantee of 160M cannot be kept: 160M are guaranteed to "
		"others, and "
		"there are 256M",
		1, SECONDS));
	ck_assert_int_eq(ended(&first), 0);
}

TEST(whole_device, what_others_hold_already_cannot_be_guaranteed)
{
	struct child first;

	start("256M", "guard = off\nmemory_guarantee = 128M\n");
	first = started(holder_of_80);
	ck_assert_int_eq(exit_status(spawn(refused, 0)), 0);
	ck_assert(service_log_wait(&service,
		"is refused: its memory_guarantee of 128M cannot be kept: others hold 160M, and there "
		"are 256M",
		1, SECONDS));
	ck_assert_int_eq(ended(&first), 0);
}

int main(void)
{
	const char *backend = getenv("FRMPS_TEST_BACKEND");
	Suite *suite = suite_create("exact");
	TCase *limits = suite_case(suite, "limits"), *whole = suite_case(suite, "whole device");

	tcase_set_timeout(limits, 300);
	tcase_set_timeout(whole, 300);
	tcase_add_checked_fixture(limits, NULL, stop);
	tcase_add_checked_fixture(whole, NULL, stop);
	suite_add(limits, "limits");
	if (!backend || strcmp(backend, "host") == 0) {
		suite_add(whole, "whole_device");
	}
	return suite_run(suite);
}
